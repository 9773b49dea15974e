"""A worker's part in a room."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kvservice.domain.types import Completion, Destination, Peer, Poll, Role

# Shared, as what follows is replaced and never changed: a room that ended is remembered for long, by many.
NOTHING_HELD: Mapping[str, Completion] = MappingProxyType({})
NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Participant:
    """`join_id` is 0, and the process unknown, until the worker joins."""

    peer: Peer
    role: Role
    updated: float
    join_id: int = 0
    epoch: int = 0
    poll: Poll = Poll.BOOTSTRAPPING
    transferred_bytes: int = 0
    released: bool = False
    gone: bool = False
    touched: bool = False  # may have to be told something
    peer_engine_id: str = ""
    destination: Destination | None = None
    granted: frozenset[str] = NOBODY  # senders that may have been told a receiver's offer
    completions: Mapping[str, Completion] = field(default_factory=lambda: NOTHING_HELD)  # of a receiver, by sender

    @property
    def joined(self) -> bool:
        return self.join_id != 0

    def over(self) -> None:
        """The room has closed: lets go of what only an open one needs."""
        self.destination = None
        self.completions = NOTHING_HELD
        self.granted = NOBODY

    @property
    def worker_id(self) -> str:
        return self.peer.worker_id

    @property
    def instance_id(self) -> str:
        return self.peer.instance_id
