"""Somebody who watches all rooms: what it was told, piece by piece, must be all that there is to see."""

from .service import SimulatedService
from .snapshot import RoomShot, room_shot, rooms_shot
from .world import Violation


class Follower:
    """Follows one life of the service by the real watcher, from revision 0 on."""

    def __init__(self, service: SimulatedService) -> None:
        self._service = service
        self._told: dict[int, RoomShot] = {}
        service.run(self._follow())

    def look(self) -> None:
        """Compares what was told with what there is, unless something is yet to be told."""
        if self._service.loop.idle and self._told != rooms_shot(self._service.control):
            raise Violation(4, f"a watcher was told {self._told}, there is {rooms_shot(self._service.control)}")

    async def _follow(self) -> None:
        with self._service.service.watch(frozenset(), "", 0) as watcher:
            while True:
                changes = await watcher.next()
                for number in changes.forgotten:
                    self._told.pop(number, None)
                self._told.update((room.room, room_shot(room)) for room in changes.rooms)
