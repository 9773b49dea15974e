"""What a worker's session has not been told yet.

State, not events: marks say what to look at, the newest state is read when a message is composed, and a new stream is
marked with everything.
"""

from dataclasses import dataclass, field

from kvservice.domain.pages import JoinKey
from kvservice.domain.types import Completion, Offer, PeerChange, Release, RoomUpdate


@dataclass(slots=True)
class News:
    """One message's worth."""

    updates: list[RoomUpdate] = field(default_factory=list)
    offers: list[tuple[int, list[Offer]]] = field(default_factory=list)
    completions: list[Completion] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    peers: list[PeerChange] = field(default_factory=list)


@dataclass(slots=True)
class Outbox:
    """Marks of one stream, and what it was told last, so that only what changed is sent."""

    rooms: dict[int, None] = field(default_factory=dict)
    releases: dict[JoinKey, Release] = field(default_factory=dict)
    peers: dict[str, PeerChange] = field(default_factory=dict)  # by instance: the newest counts
    strangers: dict[JoinKey, RoomUpdate] = field(default_factory=dict)  # rooms it told that nobody here knows
    told_update: dict[int, RoomUpdate] = field(default_factory=dict)
    told_offers: dict[int, list[Offer]] = field(default_factory=dict)
    told_completions: dict[int, int] = field(default_factory=dict)

    @property
    def pending(self) -> bool:
        return bool(self.rooms or self.releases or self.peers or self.strangers)

    def forget(self, room: int) -> None:
        """The worker released the room, or the room is forgotten."""
        self.rooms.pop(room, None)
        for told in (self.told_update, self.told_offers, self.told_completions):
            told.pop(room, None)
