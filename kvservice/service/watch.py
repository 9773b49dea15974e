"""Following rooms: always the newest state, so that a slow reader skips and nothing piles up."""

import asyncio
from dataclasses import dataclass

from kvservice.domain.changes import Forgotten
from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.errors import Draining
from kvservice.domain.transfer import Room


@dataclass(frozen=True, slots=True)
class Changes:
    """Rooms that changed, and everything up to `revision` is among them or was before."""

    rooms: list[Room]
    forgotten: list[int]
    revision: int


class Watcher:
    """Rooms among `rooms` (all if empty) in which `engine_id` (any if empty) takes part, after a revision."""

    def __init__(self, control: ControlPlane, rooms: frozenset[int], engine_id: str, after: int) -> None:
        self.bell = asyncio.Event()
        self.bell.set()
        self._control = control
        self.rooms = rooms
        self._engine_id = engine_id
        self._seen = after
        self._first = True

    async def next(self) -> Changes:
        """At first the state now, even if there is none; then what changed, once something has.

        Raises Draining when the service is.
        """
        while True:
            await self.bell.wait()
            self.bell.clear()
            if self._control.draining:
                raise Draining("the server is shutting down")
            first, self._first = self._first, False
            changes = self._take()
            if first or changes.rooms or changes.forgotten:
                return changes

    def _take(self) -> Changes:
        after, self._seen = self._seen, self._control.changes.revision
        rooms = [room for room in self._changed_after(after) if self._wanted(room)]
        forgotten = []
        if after:  # who has seen nothing has nothing to forget
            gone = [each.room for each in self._control.changes.forgotten_since(after) if self._wanted(each)]
            if after < self._control.changes.start:  # it watched a former life of the service
                gone = [*self.rooms]
            forgotten = [number for number in gone if number not in self._control.rooms]  # else opened again since
        return Changes(rooms, forgotten, self._seen)

    def _changed_after(self, revision: int) -> list[Room]:
        if not self.rooms:
            return self._control.changes.since(revision)
        known = (self._control.rooms[number] for number in self.rooms if number in self._control.rooms)
        return sorted((room for room in known if room.revision > revision), key=lambda room: room.revision)

    def _wanted(self, room: Room | Forgotten) -> bool:
        if self.rooms and room.room not in self.rooms:
            return False
        return not self._engine_id or self._engine_id in room.engines
