"""A worker's part in a room."""

from dataclasses import dataclass, field

from kvservice.domain.types import Completion, Destination, Peer, Poll, Role


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
    peer_engine_id: str = ""
    destination: Destination | None = None
    completions: dict[str, Completion] = field(default_factory=dict)  # of a receiver, by sender
    granted: set[str] = field(default_factory=set)  # senders that may have been told a receiver's offer

    @property
    def joined(self) -> bool:
        return self.join_id != 0

    @property
    def worker_id(self) -> str:
        return self.peer.worker_id

    @property
    def instance_id(self) -> str:
        return self.peer.instance_id
