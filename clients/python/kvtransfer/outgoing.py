"""What a worker has yet to tell the service, as numbered batches.

Marks say what to tell; the newest state is read when a batch is built. What a stream took along without its having been
applied is marked again on the next one.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvtransfer import v1 as pb

# A batch holds at most 1000 items and 2 MiB.
MAX_ITEMS = 1000
MAX_BYTES = 1 << 20

# A worker's entry into a room: (room, join_id).
JoinKey = tuple[int, int]


@dataclass(slots=True)
class _Marks:
    joins: dict[JoinKey, None] = field(default_factory=dict)
    progress: dict[JoinKey, None] = field(default_factory=dict)
    cleanups: dict[JoinKey, bool] = field(default_factory=dict)
    """Whether progress goes along: what of it was applied already does not, a lost report must."""

    def __len__(self) -> int:
        return len(self.joins) + len(self.progress) + len(self.cleanups)


@dataclass(slots=True)
class _Sent:
    batch: int
    sent_at: float
    marks: _Marks


@dataclass(frozen=True, slots=True)
class Builders:
    """Read the newest state of a join; None where there is nothing to tell any more."""

    join: Callable[[JoinKey], pb.Join | None]
    progress: Callable[[JoinKey], pb.Progress | None]
    cleanup: Callable[[JoinKey, bool], pb.CleanupItem | None]
    """With the last progress or without."""


class Outgoing:
    """Marks, and batches in flight."""

    def __init__(self, builders: Builders) -> None:
        self._builders = builders
        self._marks = _Marks()
        self._sent: deque[_Sent] = deque()
        self._batch = 0
        self.urgent = False
        """Somebody waits for what is pending; the rest may wait for company."""
        self.stirred = False
        """There is something to send, or it has become urgent, since this was last set to False."""
        self._draining: bool | None = None
        self._draining_told = True

    @property
    def pending(self) -> bool:
        return len(self._marks) > 0 or not self._draining_told

    def drain(self, draining: bool) -> None:
        """Whether routers should send this worker no new rooms: told now, and first on each new stream."""
        self._stir(urgent=True)
        self._draining, self._draining_told = draining, False

    def join(self, key: JoinKey, *, urgent: bool = True) -> None:
        self._stir(urgent=urgent)
        self._marks.joins[key] = None

    def progress(self, key: JoinKey, *, urgent: bool = False) -> None:
        self._stir(urgent=urgent)
        self._marks.progress[key] = None

    def cleanup(self, key: JoinKey) -> None:
        self._stir(urgent=False)
        untold = any(key in marks.progress for marks in (self._marks, *(sent.marks for sent in self._sent)))
        self._marks.progress.pop(key, None)
        self._marks.cleanups[key] = untold or self._marks.cleanups.get(key, False)

    def _stir(self, *, urgent: bool) -> None:
        self.stirred = self.stirred or not self.pending or (urgent and not self.urgent)
        self.urgent = self.urgent or urgent

    def drop(self, key: JoinKey) -> None:
        """Nothing more is to be told of a join."""
        for marks in (self._marks, *(sent.marks for sent in self._sent)):
            for kind in (marks.joins, marks.progress, marks.cleanups):
                kind.pop(key, None)

    def new_stream(self) -> None:
        """A stream begins: what was not applied is to be sent again, first."""
        again = _Marks()
        for sent in self._sent:
            again.joins |= sent.marks.joins
            again.progress |= sent.marks.progress
            again.cleanups |= sent.marks.cleanups
        again.joins |= self._marks.joins
        again.progress |= self._marks.progress
        again.cleanups |= self._marks.cleanups
        self._marks = again
        self._draining_told = self._draining is None
        self.urgent = self.stirred = self.pending
        self._sent.clear()
        self._batch = 0

    def take(self, now: float) -> pb.SessionRequest:
        """Builds the next batch, sent at `now`; an empty one renews the lease."""
        self._batch += 1
        batch, taken, size = pb.SessionRequest(batch=self._batch), _Marks(), 0
        if self._draining is not None and not self._draining_told:
            batch.draining, self._draining_told = self._draining, True
        rows: tuple[tuple[dict[JoinKey, Any], dict[JoinKey, Any], Callable[[JoinKey], Any], Any], ...] = (
            (self._marks.joins, taken.joins, self._builders.join, batch.joins),
            (self._marks.progress, taken.progress, self._builders.progress, batch.progress),
            (self._marks.cleanups, taken.cleanups, self._build_cleanup, batch.cleanups),
        )
        for marks, took, build, into in rows:
            while marks and len(taken) < MAX_ITEMS and size < MAX_BYTES:
                key = next(iter(marks))
                item = build(key)
                mark = marks.pop(key)
                if item is not None:
                    took[key] = mark
                    into.append(item)
                    size += item.ByteSize()
            if marks:
                break  # joins before progress before cleanups
        self.urgent = self.urgent and self.pending
        self._sent.append(_Sent(self._batch, now, taken))
        return batch

    def _build_cleanup(self, key: JoinKey) -> pb.CleanupItem | None:
        return self._builders.cleanup(key, self._marks.cleanups[key])

    def applied(self, batch: int) -> float | None:
        """Everything up to `batch` was applied. Returns when that batch was sent, None if it is no news."""
        sent_at = None
        while self._sent and self._sent[0].batch <= batch:
            sent_at = self._sent.popleft().sent_at
        return sent_at

    def sent(self, key: JoinKey) -> bool:
        """Whether a join may be on its way."""
        return any(key in sent.marks.joins for sent in self._sent)
