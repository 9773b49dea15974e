"""The lock around a worker's rooms, and the way of their actions to whoever carries them out."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, Self

from kvtransfer import v1 as pb
from kvtransfer.actions import Action, Cancel, Drain, LinkStats, Outcome, Post
from kvtransfer.errors import KVTransferError
from kvtransfer.rooms import Rooms
from kvtransfer.roster import FetchLinks

log = logging.getLogger("kvtransfer")

TICK = 0.25
"""Longest time between two looks at what time alone brings about, in seconds."""
BUSY_TICK = 0.05
"""The same while some room is young or transferring."""


class ActionSink(Protocol):
    """Carries out what concerns memory: the mover."""

    def submit(self, action: Action) -> None:
        """Takes an action. Must not block."""

    def queue(self, action: Action) -> None:
        """The same, for a caller that calls `lend` next."""

    def lend(self) -> None:
        """Carries out what can be at once, on the calling thread."""

    def look(self) -> None:
        """Delivers notifications that have arrived, on the calling thread."""


def boottime() -> float:
    """Seconds on CLOCK_BOOTTIME, which goes on while the machine sleeps, as leases do."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Core:
    """Rooms under one lock. Every entry is a `step`; its actions leave, in order, before the lock is given up."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        """Told when there is something to send."""
        self.mover: ActionSink | None = None
        self.fetch_links: Callable[[FetchLinks], None] | None = None
        self.fatal: KVTransferError | None = None
        """Why the worker can never serve, if so."""
        self._stop = threading.Event()
        self._clock = threading.Thread(target=self._run_clock, name="kvtransfer-clock", daemon=True)

    def start(self) -> None:
        """Starts the clock, once the mover and the session are there to take actions."""
        self._clock.start()

    def close(self) -> None:
        """Stops the clock."""
        self._stop.set()
        self._clock.join()

    def step(self) -> Self:
        """One event, as a `with` block: what it brings about has been handed over when the block ends."""
        return self  # a generator for each block would cost more than most events

    def __enter__(self) -> Rooms:
        self._lock.acquire()
        return self._rooms

    def __exit__(self, *_: object) -> None:
        try:
            for action in self._rooms.take_actions():
                self._dispatch(action)
            if self._rooms.outgoing.stirred:
                self._rooms.outgoing.stirred = False
                self.changed.notify_all()
        finally:
            self._lock.release()

    def received(self, news: pb.SessionResponse) -> None:
        """A message of the service. Writes that it lets begin do so on this thread."""
        assert self.mover is not None
        with self.step() as rooms:
            rooms.received(news, boottime())
            actions = rooms.take_actions()
            lent = bool(actions) and all(isinstance(action, Post | Cancel | Drain) for action in actions)
            for action in actions:
                self._dispatch(action, lent=lent)
        if lent:
            self.mover.lend()

    def look(self) -> None:
        """Sees to notifications that have arrived, on the calling thread."""
        assert self.mover is not None
        self.mover.look()

    def _dispatch(self, action: Action | FetchLinks, *, lent: bool = False) -> None:
        assert self.mover is not None
        if isinstance(action, FetchLinks):
            assert self.fetch_links is not None
            self.fetch_links(action)
        elif lent:
            self.mover.queue(action)
        else:
            self.mover.submit(action)

    def _run_clock(self) -> None:
        while not self._stop.wait(BUSY_TICK if self._rooms.pacing.busy else TICK):
            with self.step() as rooms:
                rooms.tick(boottime())

    # --- MoverEvents, on the thread that has the mover's turn ---

    def peer_ready(self, instance_id: str, stats: LinkStats) -> None:
        with self.step() as rooms:
            rooms.roster.met(instance_id, stats)

    def peer_failed(self, instance_id: str, error: str) -> None:
        with self.step() as rooms:
            rooms.roster.failed(instance_id, error, boottime())

    def post_progress(self, post_id: int, moved: int) -> None:
        with self.step() as rooms:
            rooms.post_progress(post_id, moved)

    def post_ended(self, post_id: int, outcome: Outcome, moved: int, error: str, disconnected: bool) -> None:
        with self.step() as rooms:
            rooms.post_ended(post_id, outcome, moved, error, disconnected, boottime())

    def notified(self, sender: str, payload: bytes) -> None:
        with self.step() as rooms:
            rooms.notified(payload, boottime())

    def drained(self, token: int) -> None:
        with self.step() as rooms:
            rooms.drained(token, boottime())

    def may_post(self, post_id: int) -> bool:
        with self._lock:
            return self._rooms.may_post(post_id, boottime())

    def mover_died(self, error: str) -> None:
        log.error("the mover ended: %s", error)
        with self.step() as rooms:
            rooms.mover_died(error)
