"""Every bound and duration that the domain obeys. `kvservice.config` documents each and fills them in."""

from dataclasses import dataclass, field

from kvservice.domain.types import Timeouts


@dataclass(frozen=True, slots=True)
class Policy:
    """Durations in seconds, limits in items unless said."""

    timeouts: Timeouts = field(default_factory=lambda: Timeouts(120, 300, 60, 900))
    vote: float = 5
    reconnect_grace: float = 3
    lease_ttl: float = 15
    max_lease_ttl: float = 60
    retention: float = 120
    max_engines: int = 1024
    max_workers: int = 8192
    max_open_rooms: int = 65536
    max_closed_rooms: int = 524288
    max_room_indices: int = 262144
    max_metadata_bytes: int = 128 * 1024
