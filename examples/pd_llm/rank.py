"""One rank of an engine: its model, its pool and its part in each room.

Every public method here is a command: rank 0's scheduler decides, and all ranks carry out the same commands in the same
order (`lockstep.py`), since most of them gather something from all ranks on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from kvtransfer import KVManager, KVPoll, KVReceiver, KVSender
from kvtransfer.errors import KVTransferError

from .evidence import Evidence
from .kv_pool import Indices, KVPool
from .model import Model
from .tp import Group


@dataclass(slots=True)
class Place:
    """What a room occupies in a rank's pool, until the transfer gives it back."""

    pages: list[int]
    slot: int
    handle: KVSender | KVReceiver | None = None
    """None if the room could not be joined."""
    lent: bool = False
    """Whether NIXL may touch the pages: then only `KVManager.released()` frees them."""
    error: str = ""
    """What failed in this rank before the transfer could know of it."""
    last_poll: int = 0
    tokens: list[int] = field(default_factory=list)
    """Prefill: the prompt."""
    done: int = 0
    """Tokens whose keys and values are in the pool."""

    def poll(self) -> int:
        return KVPoll.FAILED if self.handle is None or self.error else int(self.handle.poll())


class Rank:
    """What prefill and decode have in common."""

    def __init__(
        self, model: Model, pool: KVPool, pages: Indices, slots: Indices, manager: KVManager, group: Group,
        evidence: Evidence,
    ) -> None:  # fmt: skip
        self.group = group
        self._model, self._pool, self._pages, self._slots = model, pool, pages, slots
        self._manager, self._evidence = manager, evidence
        self._open: dict[int, Place] = {}
        self._closed: dict[int, Place] = {}

    def ready(self) -> bool:
        """Whether every rank has met its peers."""
        ready = all(answer for (answer,) in self.group.gather_ints([int(self._manager.ready())]))
        if ready:
            self._evidence.started(self._manager.instance_id)
        return ready

    def own_polls(self) -> dict[int, int]:
        """This rank's KVPoll of each open room. Not a command: it asks nobody else."""
        return {room: place.poll() for room, place in self._open.items()}

    def sync(self) -> tuple[int, int, dict[int, int]]:
        """Free pages, free slots and each open room's KVPoll, each the least over the ranks."""
        for released in self._manager.released():
            if place := self._closed.pop(released.room, None):
                self._give_back(place)
        polls = self.own_polls()
        for room, poll in polls.items():
            self._note_poll(room, poll)
        rows = self.group.gather_ints([self._pages.free, self._slots.free, *polls.values()])
        pages, slots, *least = (min(column) for column in zip(*rows, strict=True))
        return pages, slots, dict(zip(polls, least, strict=True))

    def failure(self, room: int) -> str:
        """Why a room has failed, as far as this rank knows. Not a command."""
        place = self._open[room]
        known = place.handle.failure() if place.handle else None
        return place.error or (f"{known.reason}: {known.message}" if known else "another rank failed")

    def abort(self, room: int, message: str) -> None:
        """Ask the room to end."""
        if handle := self._open[room].handle:
            handle.abort(message)

    def close(self, room: int) -> None:
        """Be done with a room. What was lent comes back by `sync`."""
        place = self._open.pop(room)
        if place.handle:
            place.handle.close()
        if place.lent:
            self._closed[room] = place
        else:
            self._give_back(place)

    def stop(self) -> None:
        """Write down the state of untouched memory, and leave the service."""
        self._evidence.untouched(self._pool, self._pages, self._slots)
        self._manager.close()

    def _take(self, tokens: int) -> Place:
        return Place(self._pages.take(self._pool.pages_for(tokens)), self._slots.take(1)[0])

    def _give_back(self, place: Place) -> None:
        self._pages.give_back(place.pages)
        self._slots.give_back([place.slot])

    def _note_poll(self, room: int, poll: int) -> None:
        place = self._open[room]
        if poll != place.last_poll:
            place.last_poll = poll
            self._evidence.poll(room, poll)

    def _attempt(self, place: Place, step: Callable[[], None]) -> None:
        """Do what may raise in this rank alone; the room then fails for all of them."""
        try:
            step()
        except KVTransferError as error:
            place.error = str(error)
            if place.handle:
                place.handle.abort(place.error)
