"""What the pages and slots of a process hold, and to which join each is lent. Contents are names, not bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
from kvtransfer.layout import LocalMemory, PagedGroup, Part, SlotGroup
from kvtransfer.polls import Released
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.sending import SenderRoom

PAGE_TOKENS = 4
PAGES = 48
SLOTS = 16

Place = tuple[str, int]
"""Group, and index of a page or slot in it."""


@dataclass(frozen=True, slots=True)
class Item:
    """What a sender computed: one page or slot of one attempt."""

    room: int
    sender_join_id: int
    group: str
    position: int


@lru_cache
def described(model: str, tp_rank: int, tp_size: int) -> LocalMemory:
    """The layout of a rank. Nobody reads or writes the memory behind it, so that processes may share it."""
    pages = np.zeros((PAGES, PAGE_TOKENS, 1, 2), np.int8)
    paged = PagedGroup("kv", PAGE_TOKENS, [Part("kv", {0: pages}, "token_head", tp_size, tp_rank, 1)])
    return LocalMemory(model, [paged, SlotGroup("aux", [Part("row", np.zeros((SLOTS, 2), np.int8))])])


class Memory:
    """The memory of one process."""

    def __init__(self) -> None:
        self.contents: dict[Place, Item | None] = {}
        """None, or no entry: nothing that anybody should see."""
        self.lent: dict[Place, SenderRoom | ReceiverRoom] = {}
        self._free = {"kv": list(range(PAGES)), "aux": list(range(SLOTS))}

    def take(self, group: str, count: int, chance: Random) -> list[int] | None:
        """Free items, in no order; None if there are too few."""
        free = self._free[group]
        if len(free) < count:
            return None
        taken = chance.sample(free, count)
        for index in taken:
            free.remove(index)
        return taken

    def lend(self, room: SenderRoom | ReceiverRoom, group: str, indices: Iterable[int]) -> None:
        for index in indices:
            self.lent[group, index] = room

    def untake(self, group: str, indices: Iterable[int]) -> None:
        """What was taken was not used."""
        self._free[group].extend(indices)

    def give_back(self, places: Iterable[Place]) -> None:
        """The engine owns the items again, and spoils them at once."""
        for place in places:
            del self.lent[place]
            self.contents[place] = None
            self._free[place[0]].append(place[1])


def places_of(released: Released) -> list[Place]:
    """All that came back."""
    pages = [(group, index) for group, indices in released.pages.items() for index in indices]
    return pages + list(released.slots.items())


def offered_places(room: ReceiverRoom) -> list[tuple[Place, str, int]]:
    """Each place of a receiver's offer, with the group and position in the request that belong there."""
    found = []
    assert room.destination is not None
    for listed in room.destination.groups:
        first = listed.first_token // PAGE_TOKENS if listed.group == "kv" else 0
        for offset, index in enumerate(listed.indices):
            found.append(((listed.group, index), listed.group, first + offset))
    return found
