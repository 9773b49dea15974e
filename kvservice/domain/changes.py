"""Revisions: which rooms changed since when."""

from collections import OrderedDict, deque
from dataclasses import dataclass

from kvservice.domain.transfer import Room

MAX_FORGOTTEN = 65536


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What is left of a room that was forgotten."""

    revision: int
    room: int
    engines: tuple[str, ...]


class ChangeLog:
    """Gives each change of a room a revision of its own, and finds what changed after one."""

    def __init__(self, start: int) -> None:
        self.start = self.revision = start
        self._rooms: OrderedDict[int, Room] = OrderedDict()  # by revision
        self._forgotten: deque[Forgotten] = deque(maxlen=MAX_FORGOTTEN)

    def record(self, room: Room) -> None:
        """A room changed."""
        self.revision += 1
        room.revision = self.revision
        self._rooms[room.room] = room
        self._rooms.move_to_end(room.room)

    def forget(self, room: Room) -> None:
        """A room is forgotten, which is its last change."""
        self.revision += 1
        self._rooms.pop(room.room, None)
        self._forgotten.append(Forgotten(self.revision, room.room, room.engines))

    def since(self, revision: int) -> list[Room]:
        """Rooms that changed after `revision`, the oldest change first."""
        changed = []
        for room in reversed(self._rooms.values()):
            if room.revision <= revision:
                break
            changed.append(room)
        return changed[::-1]

    def forgotten_since(self, revision: int) -> list[Forgotten]:
        """Rooms forgotten after `revision`; the newest 65536 are remembered."""
        forgotten = []
        for gone in reversed(self._forgotten):
            if gone.revision <= revision:
                break
            forgotten.append(gone)
        return forgotten[::-1]
