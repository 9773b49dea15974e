"""Revisions: which rooms changed since when."""

from collections import OrderedDict, deque

from kvservice.domain.transfer import Room

MAX_FORGOTTEN = 65536


class ChangeLog:
    """Gives each change of a room a revision of its own, and finds what changed after one."""

    def __init__(self, start: int) -> None:
        self.revision = start
        self._rooms: OrderedDict[int, Room] = OrderedDict()  # by revision
        self._forgotten: deque[tuple[int, int]] = deque(maxlen=MAX_FORGOTTEN)

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
        self._forgotten.append((self.revision, room.room))

    def since(self, revision: int) -> list[Room]:
        """Rooms that changed after `revision`, the oldest change first."""
        changed = []
        for room in reversed(self._rooms.values()):
            if room.revision <= revision:
                break
            changed.append(room)
        return changed[::-1]

    def forgotten_since(self, revision: int) -> list[int]:
        """Rooms forgotten after `revision`; the newest 65536 are remembered."""
        forgotten = []
        for at, room in reversed(self._forgotten):
            if at <= revision:
                break
            forgotten.append(room)
        return forgotten[::-1]
