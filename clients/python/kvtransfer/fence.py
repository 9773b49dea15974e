"""When a worker has to stop writing: its lease, counted from when it asked for it, less a margin."""

from google.protobuf.duration_pb2 import Duration


class Fence:
    """Lapses once, and stays so until the worker has registered again. Instants in seconds on CLOCK_BOOTTIME."""

    def __init__(self, margin: float) -> None:
        """`margin`: seconds before the end of the lease, or a third of the lease if that is less."""
        self.lapsed = True  # until registered
        self._margin = margin
        self._at = 0.0

    def registered(self, sent_at: float, ttl: Duration) -> None:
        """A new epoch: what an earlier one was granted counts no more."""
        self.lapsed = False
        self._at = 0.0
        self.extend(sent_at, ttl)

    def extend(self, sent_at: float, ttl: Duration) -> None:
        """A lease was granted to what was sent at `sent_at`."""
        seconds = ttl.ToNanoseconds() / 1e9
        self._at = max(self._at, sent_at + seconds - min(self._margin, seconds / 3))

    def check(self, now: float) -> bool:
        """Whether it has lapsed by now."""
        self.lapsed = self.lapsed or now >= self._at
        return self.lapsed
