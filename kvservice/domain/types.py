"""Values of the domain. Numbers of enums are those of the wire.

What is made for every room is a NamedTuple: a frozen dataclass takes four times as long to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple


class Role(IntEnum):
    """The side of a transfer that an engine takes."""

    PREFILL = 1
    DECODE = 2

    @property
    def other(self) -> "Role":
        return Role.DECODE if self is Role.PREFILL else Role.PREFILL


class Poll(IntEnum):
    """Progress of a participant or a room. The order is part of the contract: ranks agree by the least."""

    FAILED = 1
    BOOTSTRAPPING = 2
    WAITING_FOR_INPUT = 3
    TRANSFERRING = 4
    SUCCESS = 5

    final: bool

    def __init__(self, number: int) -> None:
        self.final = number in (1, 5)


class FailureReason(IntEnum):
    """Why a transfer failed."""

    ABORTED = 1
    LEASE_EXPIRED = 2
    WORKER_REPLACED = 3
    WORKER_DEREGISTERED = 4
    HANDSHAKE_TIMEOUT = 5
    INPUT_TIMEOUT = 6
    NO_PROGRESS = 7
    TRANSFER_TIMEOUT = 8
    DISCONNECTED = 9
    WORKER_REPORTED = 10
    COMPLETION_MISMATCH = 11
    LAYOUT_MISMATCH = 12
    SERVICE_RESTARTED = 13
    SESSION_LOST = 14


@dataclass(frozen=True, slots=True)
class Topology:
    """Parallel sizes of an engine."""

    tp_size: int
    pp_size: int
    dp_size: int

    @property
    def workers(self) -> int:
        return self.tp_size * self.pp_size * self.dp_size


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """Position of a worker in its engine; ordered by replica, stage, tensor rank."""

    dp_rank: int
    pp_rank: int
    tp_rank: int


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """Who calls: a worker under one of its registrations."""

    worker_id: str
    epoch: int


class Peer(NamedTuple):
    """One process at one rank."""

    worker_id: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a transfer failed, and the worker it began with (empty if none)."""

    reason: FailureReason
    message: str
    worker_id: str = ""


# Positions `[first, first + count)` of a list of indices.
Ranges = tuple[tuple[int, int], ...]


class Completion(NamedTuple):
    """What a sender wrote to a receiver in a room."""

    room: int
    sender: str
    receiver: str
    offer_id: int
    sender_join_id: int
    groups: tuple[tuple[str, Ranges], ...]
    bytes: int


class GroupIndices(NamedTuple):
    """A receiver's indices of one group in one room."""

    group: str
    first_token: int
    indices: tuple[int, ...]


class Destination(NamedTuple):
    """Where a receiver wants one room's items."""

    tokens: int
    prefix_tokens: int
    groups: tuple[GroupIndices, ...]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time allowed to a room, in seconds."""

    bootstrapping: float
    waiting_for_input: float
    no_progress: float
    total: float

    def least(self, other: "Timeouts") -> "Timeouts":
        return Timeouts(
            min(self.bootstrapping, other.bootstrapping),
            min(self.waiting_for_input, other.waiting_for_input),
            min(self.no_progress, other.no_progress),
            min(self.total, other.total),
        )


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a room; `dp_rank` is None until known."""

    engine_id: str
    dp_rank: int | None


class Join(NamedTuple):
    """A worker's entry into a room. `timeouts` hold infinity where the worker asked for nothing."""

    room: int
    join_id: int
    peer_engine_id: str = ""
    peer_dp_rank: int | None = None
    destination: Destination | None = None
    timeouts: Timeouts | None = None
    request_id: str = ""
    traceparent: str = ""


class Progress(NamedTuple):
    """Progress of one worker in one room."""

    room: int
    join_id: int
    poll: Poll
    transferred_bytes: int = 0
    failure: Failure | None = None
    completions: tuple[Completion, ...] = ()


class CleanupItem(NamedTuple):
    """The release of one room by one worker."""

    room: int
    join_id: int
    last: Progress | None = None
    drained: bool = False


class ReleaseState(IntEnum):
    """What is known of writes to a worker's pages."""

    FREE = 1
    WAITING = 2
    QUARANTINED = 3
    UNKNOWN = 4


class Release(NamedTuple):
    """When a worker may use its pages of a room again."""

    room: int
    join_id: int
    state: ReleaseState
    waiting_for: tuple[str, ...] = ()


class Offer(NamedTuple):
    """A destination and the receivers that offer just this, each with its join."""

    receivers: tuple[tuple[Peer, int], ...]
    destination: Destination


class RoomUpdate(NamedTuple):
    """What one worker needs to know of a room."""

    room: int
    join_id: int
    poll: Poll
    own_poll: Poll | None
    failure: Failure | None
    senders: tuple[Peer, ...]
    confirmed: bool
    revision: int  # the last: what goes before it is the news


class PeerNews(IntEnum):
    """What happened to a peer."""

    READY = 1
    DRAINING = 2
    GONE = 3
    UNFIT = 4


@dataclass(frozen=True, slots=True)
class PeerChange:
    """News of a worker of another engine."""

    peer: Peer
    kind: PeerNews
    engine_id: str
    dp_rank: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class RoomState:
    """A room as a worker tells it when it registers again."""

    room: int
    join_id: int
    poll: Poll
    failure: Failure | None = None
    completions: tuple[Completion, ...] = ()


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says when it registers. `lease_ttl` in seconds, None for the default."""

    engine_id: str
    role: Role
    topology: Topology
    rank: Rank
    instance_id: str
    layout: "Layout"
    nixl_metadata: bytes
    lease_ttl: float | None = None
    birth_epoch: int = 0
    rooms: tuple[RoomState, ...] = ()
    exited_instances: tuple[str, ...] = ()
    endpoint: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    user_agent: str = ""


class GroupKind(IntEnum):
    """How the items of a group are addressed."""

    PAGED = 1
    SLOT = 2


class Order(IntEnum):
    """Order of the axes within an item."""

    WHOLE = 1
    TOKEN_HEAD = 2
    HEAD_TOKEN = 3


class MemoryKind(IntEnum):
    """NIXL memory kinds."""

    DRAM = 1
    VRAM = 2


@dataclass(frozen=True, slots=True)
class Region:
    """A strided array of items. `address` uses all 64 bits; `layer` is None if none."""

    layer: int | None
    address: int
    item_count: int
    item_stride: int
    memory: MemoryKind
    device: int


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of tensor in a group."""

    name: str
    dtype: str
    order: Order
    total_heads: int
    first_head: int
    head_count: int
    item_bytes: int
    regions: tuple[Region, ...]


@dataclass(frozen=True)  # without slots, for the cached property
class BufferGroup:
    """Memory addressed by one list of indices per room."""

    name: str
    kind: GroupKind
    page_tokens: int
    allow_missing: bool
    parts: tuple[Part, ...]

    @cached_property
    def item_count(self) -> int:
        """Items that every region of the group holds."""
        return min(region.item_count for part in self.parts for region in part.regions)


@dataclass(frozen=True)  # as above
class Layout:
    """The memory that a worker lends to transfers."""

    model: str
    groups: tuple[BufferGroup, ...]
    scratch: Region | None

    def group(self, name: str) -> BufferGroup | None:
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, BufferGroup]:
        return {group.name: group for group in self.groups}
