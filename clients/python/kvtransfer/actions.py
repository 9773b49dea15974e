"""What a worker's side of the protocol asks of its data plane, and what it hears back.

`rooms.py` decides and hands over actions; a mover (the real one owns NIXL, the simulator has its own) carries them out
and calls `MoverEvents`. Actions are taken up in the order in which they are given, but a post takes its time: later
actions do not wait for it.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvtransfer import v1 as pb

ItemIndices = npt.NDArray[np.int32] | npt.NDArray[np.int64]

NOTIFICATION_PREFIX = b"KVT1"
"""First bytes of each notification between workers; a serialized `Notification` follows."""


class Outcome(enum.Enum):
    """How a post ended."""

    DONE = enum.auto()
    """Every byte was written."""
    CANCELLED = enum.auto()
    """Stopped between two pieces by Cancel or a refused `may_post`. Nothing is in flight: NIXL did all it was given."""
    REFUSED = enum.auto()
    """Could not go on, though nothing is in flight: its fence raised, its peer is unknown, failed or dropped, an index
    is outside the link. `error` says why."""
    FAILED = enum.auto()
    """NIXL broke off. All handles have ended, but bytes may still be landing at the receiver."""


@dataclass(frozen=True, slots=True)
class Items:
    """One group's share of a post: the sender's item `sender[i]` goes to the receiver's item `receiver[i]`.

    Both arrays have one axis and the same length. Indices are of pages (of each side's own size) or slots.
    """

    group: str
    sender: ItemIndices
    receiver: ItemIndices


@dataclass(frozen=True, slots=True)
class AddPeer:
    """Meet a worker of the other side: connect, warm up, then `peer_ready` or `peer_failed`.

    A second one for the same process is ignored while the first stands; after `peer_failed` it tries again.
    """

    peer: pb.Peer
    layout: pb.Layout
    metadata: bytes
    """What the peer's `Mover.start` returned."""
    links: tuple[pb.Link, ...]
    """Between this worker and the peer; this worker is the sender or the receiver of each."""


@dataclass(frozen=True, slots=True)
class DropPeer:
    """Forget a worker. Posts to it stop before their next piece and end REFUSED, or as NIXL ends what it was given."""

    instance_id: str


@dataclass(frozen=True, slots=True)
class Post:
    """Write items to a receiver. Ends with one `post_ended`; waits for a peer that is not ready yet."""

    post_id: int
    """Chosen by the caller, unique among the posts that have not ended."""
    receiver: str
    """`instance_id`."""
    items: tuple[Items, ...]
    ready: object | None
    """When the items may be read: a CUDA event (has `.query() -> bool`), a callable that returns a bool, or None: now.
    Asked in the mover's turns until it is true, on a thread of the worker's; must not block."""
    completion: pb.Completion | None = None
    """What the receiver is to hear as soon as every byte is written, and before `post_ended`: the post is the last that
    it waits for. Its `bytes` are raised by those of the post."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a post before its next piece. What NIXL was given goes on to its end first."""

    post_id: int


@dataclass(frozen=True, slots=True)
class Notify:
    """Send a notification, best effort. `payload` begins with `NOTIFICATION_PREFIX`."""

    instance_id: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Drain:
    """Deliver every notification that has arrived, then `drained(token)`."""

    token: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How closely to watch for notifications: seconds between two looks, while nothing else is going on."""

    pause: float


def completion_notification(completion: pb.Completion) -> bytes:
    """The payload that tells a receiver of it."""
    return NOTIFICATION_PREFIX + pb.Notification(completion=completion).SerializeToString()


Action = AddPeer | DropPeer | Post | Cancel | Notify | Drain | Pace


@dataclass(frozen=True, slots=True)
class LinkStats:
    """What the warm-up of a pair showed."""

    transport: str
    """How bytes reach the peer, such as `cma` or `tcp`, by UCX's name; empty if this worker sends nothing to it."""
    bandwidth_bytes_s: float
    """Of a 1 MiB write into the peer's scratch region, in bytes/s; 0 if this worker sends nothing to it."""
    descriptors: Mapping[str, int]
    """Group -> descriptors that one page or slot takes, before neighbours are merged. Empty for a receiver."""


class MoverEvents(Protocol):
    """Called in the mover's turns, so one at a time, on whichever thread has the turn; must not block.

    An exception ends the mover; in a look it is the caller's.
    """

    def peer_ready(self, instance_id: str, stats: LinkStats) -> None:
        """Connected: a Hello went both ways and, to a receiver, real writes into its scratch region ended well.

        Comes again when a lost connection was made anew.
        """

    def peer_failed(self, instance_id: str, error: str) -> None:
        """The peer could not be met. Posts to it end REFUSED; AddPeer tries again."""

    def post_progress(self, post_id: int, moved: int) -> None:
        """`moved` bytes of the post are written so far."""

    def post_ended(self, post_id: int, outcome: Outcome, moved: int, error: str, disconnected: bool) -> None:
        """The last word on a post. `moved` counts bytes known to be written; `disconnected`: NIXL lost the peer."""

    def notified(self, sender: str, payload: bytes) -> None:
        """A notification from the process `sender`, without `NOTIFICATION_PREFIX`; others are left alone."""

    def drained(self, token: int) -> None:
        """All that had arrived before `Drain(token)` was taken up has been delivered."""

    def may_post(self, post_id: int) -> bool:
        """Whether the worker may write now. Asked right before each piece; False ends the post CANCELLED."""

    def mover_died(self, error: str) -> None:
        """The mover ended by an unexpected exception: no event follows, no action is carried out."""
