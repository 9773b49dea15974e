"""Rooms that come at set times: one side's part of them, done call by call on its engine's thread."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvtransfer import KVManager, KVPoll, KVReceiver, KVSender

from benchmarks.processes import Span
from benchmarks.shapes import Shape

LATE_S = 30.0
"""After the last room was due, how long all may take to end."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Rooms of both sides, of one prompt each."""

    rooms: Sequence[int]
    first_at: float
    """When the first is due, on CLOCK_MONOTONIC."""
    every_s: float
    prefill_engine: str
    """Whom all of them come from."""

    def due(self, number: int) -> float:
        """When a room is, counted from 0."""
        return self.first_at + number * self.every_s


@dataclass(slots=True)
class Traffic:
    """A side's part in a schedule. The n-th room takes the same pages on both sides: prompts in turn, over the pool."""

    manager: KVManager
    shape: Shape
    schedule: Schedule
    spans: list[Span] = field(default_factory=list)
    """Of each room that ended: when it joined, and when its Success was seen, on CLOCK_MONOTONIC."""
    _joined: int = 0
    _open: dict[int, tuple[KVSender | KVReceiver, float]] = field(default_factory=dict)
    _closing: set[int] = field(default_factory=set)

    @property
    def over(self) -> bool:
        """Whether all rooms have come and gone."""
        return self._joined == len(self.schedule.rooms) and not self._open and not self._closing

    def turn(self) -> None:
        """Joins rooms that are due, closes those that have ended, takes pages back.

        Raises RuntimeError if a room failed, TimeoutError if one does not end.
        """
        now = time.monotonic()
        for room in [room for room, (handle, _) in self._open.items() if handle.poll().final]:
            handle, joined = self._open.pop(room)
            if handle.poll() is not KVPoll.SUCCESS:
                raise RuntimeError(f"room {room}: {handle.failure()}")
            self.spans.append((joined, now))
            handle.close()
            self._closing.add(room)
        if self._closing:
            self._closing.difference_update(released.room for released in self.manager.released())
        while self._joined < len(self.schedule.rooms) and self.schedule.due(self._joined) <= now and self._has_pages():
            self._join(self.schedule.rooms[self._joined], now)
            self._joined += 1
        if now > self.schedule.due(len(self.schedule.rooms)) + LATE_S:
            raise TimeoutError(f"rooms {sorted(self._open) or sorted(self._closing)} did not end in {LATE_S:g} s")

    def _has_pages(self) -> bool:
        prompts = self.shape.pool_pages // self.shape.pages
        former = self._joined - prompts
        return former < 0 or self.schedule.rooms[former] not in self._open.keys() | self._closing

    def _join(self, room: int, now: float) -> None:
        first = self._joined * self.shape.pages % (self.shape.pool_pages // self.shape.pages * self.shape.pages)
        pages = {"kv": range(first, first + self.shape.pages)}
        handle: KVSender | KVReceiver
        if self.manager.role == "prefill":
            handle = self.manager.sender(room, self.shape.tokens)
            handle.send(pages, last=True)
        else:
            handle = self.manager.receiver(room, self.schedule.prefill_engine)
            handle.offer(self.shape.tokens, pages)
        self._open[room] = (handle, now)
