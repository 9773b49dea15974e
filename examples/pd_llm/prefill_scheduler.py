"""What the prefill engine computes next."""

from .rank import Rank
from .scheduler import Job, Scheduler


class PrefillScheduler(Scheduler[Job]):
    """One prompt at a time, the oldest first, chunk by chunk."""

    def __init__(self, rank: Rank, max_rooms: int) -> None:
        super().__init__(rank, max_rooms)
        self._computed: set[int] = set()

    def _compute(self) -> bool:
        for room in self._open:
            if room not in self._computed:
                if self._command("step", room=room):
                    self._computed.add(room)
                return True
        return False

    def _on_success(self, job: Job) -> None:
        self._command("sent", room=job.room)
        self._computed.discard(job.room)
        self._close(job.room)

    def _on_failure(self, job: Job, message: str) -> None:
        self._computed.discard(job.room)
