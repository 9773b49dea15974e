"""Rank 0's model thread: which room is opened, computed and closed when. The other ranks follow."""

import queue
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kvtransfer import KVPoll

from .lockstep import command
from .rank import Rank
from .request_errors import Busy, RoomInUse

_TICK_S = 0.001  # between two looks at transfers while there is nothing to compute
_AGREE_S = 0.05  # between two gatherings of all ranks' polls, when this rank sees no reason for one


@dataclass(slots=True, eq=False)
class Job:
    """A request at this engine."""

    room: int
    pages: int
    """That it takes of each rank's pool."""
    arguments: dict[str, Any]
    """Of the rank's `open`."""
    settled: bool = field(default=False, init=False)
    """Whether its transfer has ended."""


J = TypeVar("J", bound=Job)


class Scheduler(ABC, Generic[J]):
    """Admits jobs in order of arrival while every rank has room, and computes one at a time."""

    def __init__(self, rank: Rank, max_rooms: int) -> None:
        """`max_rooms`: most jobs at once, waiting for pages or open."""
        self._rank = rank
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._max_rooms = max_rooms
        self._rooms: set[int] = set()
        self._waiting: deque[J] = deque()
        self._open: dict[int, J] = {}
        self._stopping = False
        self._agreed = 0.0
        self.ready = False

    # Called by other threads.

    @property
    def rooms(self) -> int:
        """Jobs waiting or open."""
        return len(self._rooms)

    def submit(self, job: J) -> None:
        """Take a job in. Always from the same thread.

        Raises:
            Busy: As many are here as may be.
            RoomInUse: One of them is for this room.
        """
        if job.room in self._rooms:
            raise RoomInUse(f"room: {job.room} is in use")
        if len(self._rooms) >= self._max_rooms:
            raise Busy(f"{self._max_rooms} rooms are open or waiting already")
        self._rooms.add(job.room)
        self._inbox.put(lambda: self._waiting.append(job))

    def cancel(self, room: int, message: str) -> None:
        """End a room, wherever it stands."""
        self._inbox.put(lambda: self._cancel(room, message))

    def stop(self) -> None:
        """End `run`."""

        def stop() -> None:
            self._stopping = True

        self._inbox.put(stop)

    # The model thread.

    def run(self) -> None:
        """Meet the peers, then work until `stop`."""
        while not self._stopping and not self.ready:
            self._take_messages(0.02)
            self.ready = self._command("ready")
        computing = False
        while not self._stopping:
            idle = not self._open and not self._waiting
            self._take_messages(0 if computing else None if idle else _TICK_S)
            if self._waiting or self._should_agree():
                self._agree()
            computing = self._compute()
        for room in list(self._open):
            self._command("abort", room=room, message="the engine stops")
            self._close(room)
        self._command("stop")

    @abstractmethod
    def _compute(self) -> bool:
        """Do one piece of work, if there is any."""

    def _on_open(self, job: J) -> None:
        """Every rank has joined the job's room."""

    @abstractmethod
    def _on_success(self, job: J) -> None:
        """Every rank has seen the job's transfer end well."""

    @abstractmethod
    def _on_failure(self, job: J, message: str) -> None:
        """The job has come to nothing, and is gone."""

    def _command(self, name: str, **arguments: Any) -> Any:
        return command(self._rank, name, **arguments)

    def _close(self, room: int) -> None:
        self._command("close", room=room)
        del self._open[room]
        self._rooms.discard(room)

    def _take_messages(self, wait_s: float | None) -> None:
        """Carry out what other threads asked for; wait for the first such request, for ever if None."""
        try:
            message = self._inbox.get(timeout=wait_s) if wait_s != 0 else self._inbox.get_nowait()
            while True:
                message()
                message = self._inbox.get_nowait()
        except queue.Empty:
            pass

    def _should_agree(self) -> bool:
        """Asking all ranks costs some of the time to compute, so do it when this one's own polls have news."""
        unsettled = [room for room, job in self._open.items() if not job.settled]
        if not unsettled:
            return False
        polls = self._rank.own_polls()
        news = any(KVPoll(polls[room]).final for room in unsettled)
        return news or time.monotonic() - self._agreed > _AGREE_S

    def _agree(self) -> None:
        """Act on the least of all ranks' polls, then open what there is room for."""
        pages, slots, polls = self._command("sync")
        self._agreed = time.monotonic()
        for room, poll in polls.items():
            job = self._open[room]
            if poll == KVPoll.SUCCESS and not job.settled:
                job.settled = True
                self._on_success(job)
            elif poll == KVPoll.FAILED:
                self._fail(job, self._rank.failure(room))
        while self._waiting and self._waiting[0].pages <= pages and slots > 0:
            job = self._waiting.popleft()
            pages, slots = pages - job.pages, slots - 1
            self._open[job.room] = job
            self._command("open", room=job.room, **job.arguments)
            self._on_open(job)

    def _fail(self, job: J, message: str) -> None:
        print(f"room {job.room} failed: {message}", flush=True)
        self._close(job.room)
        self._on_failure(job, message)

    def _cancel(self, room: int, message: str) -> None:
        if job := self._open.get(room):
            self._command("abort", room=room, message=message)
            self._fail(job, message)
        for job in [job for job in self._waiting if job.room == room]:
            self._waiting.remove(job)
            self._rooms.discard(room)
            self._on_failure(job, message)
