"""A control plane with two engines, driven by hand: `now` is what the test says."""

import itertools
import uuid
from collections.abc import Sequence
from typing import Any

from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.news import compose
from kvservice.domain.outbox import News
from kvservice.domain.policy import Policy
from kvservice.domain.registry import Worker
from kvservice.domain.transfer import Room
from kvservice.domain.types import (
    BufferGroup,
    CleanupItem,
    Completion,
    Destination,
    Failure,
    GroupIndices,
    GroupKind,
    Join,
    Layout,
    MemoryKind,
    Order,
    Part,
    Poll,
    Progress,
    Rank,
    Region,
    Registration,
    Release,
    Role,
    Topology,
)

PAGE = 16
POOL = 64
START = 1_000_000


def region(address: int, items: int = POOL, stride: int = 4096, layer: int | None = None) -> Region:
    return Region(layer, address, items, stride, MemoryKind.DRAM, 0)


def part(name: str, address: int, **said: Any) -> Part:
    """k or v of two layers, four heads."""
    fields: dict[str, Any] = {
        "dtype": "float16",
        "order": Order.TOKEN_HEAD,
        "total_heads": 4,
        "first_head": 0,
        "head_count": 4,
        "item_bytes": 4096,
        "regions": tuple(region(address + (layer << 24), layer=layer) for layer in range(2)),
    }
    return Part(name, **(fields | said))


def paged(name: str = "kv", page_tokens: int = PAGE, allow_missing: bool = False, **said: Any) -> BufferGroup:
    parts = (part("k", 1 << 32, **said), part("v", 2 << 32, **said))
    return BufferGroup(name, GroupKind.PAGED, page_tokens, allow_missing, parts)


def slots(name: str = "aux", allow_missing: bool = False) -> BufferGroup:
    row = Part("row", "uint8", Order.WHOLE, 0, 0, 0, 64, (region(1 << 40, 8, 64),))
    return BufferGroup(name, GroupKind.SLOT, 0, allow_missing, (row,))


def layout(*groups: BufferGroup, model: str = "m") -> Layout:
    """One paged group and one slot group, unless told otherwise."""
    return Layout(model, groups or (paged(), slots()), region(1 << 41, 1, 1 << 20))


def registration(engine_id: str, role: Role, rank: int | Rank = 0, tp: int = 1, **said: Any) -> Registration:
    fields: dict[str, Any] = {
        "topology": Topology(tp, 1, 1),
        "rank": Rank(0, 0, rank) if isinstance(rank, int) else rank,
        "instance_id": str(uuid.uuid4()),
        "layout": layout(),
        "nixl_metadata": b"metadata",
    }
    return Registration(engine_id, role, **(fields | said))


def destination(tokens: int, pages: Sequence[int], slot: int = 0, prefix_tokens: int = 0) -> Destination:
    groups = (GroupIndices("kv", prefix_tokens, tuple(pages)), GroupIndices("aux", 0, (slot,)))
    return Destination(tokens, prefix_tokens, groups)


class Plane(ControlPlane):
    """A prefill engine `p` and a decode engine `d` of equal size, registered at 0."""

    def __init__(self, tp: int = 1, policy: Policy | None = None) -> None:
        super().__init__(policy or Policy(), START, self._woken)
        self.woken: list[str] = []
        self._ids = itertools.count(1)
        self.p = [self.enter("p", Role.PREFILL, rank, tp) for rank in range(tp)]
        self.d = [self.enter("d", Role.DECODE, rank, tp) for rank in range(tp)]

    def _woken(self, worker: Worker, urgent: bool) -> None:
        self.woken.append(worker.ref.worker_id)

    def enter(
        self, engine_id: str, role: Role, rank: int | Rank = 0, tp: int = 1, now: float = 0.0, **said: Any
    ) -> Worker:
        return self.register(registration(engine_id, role, rank, tp, **said), now)

    def again(self, worker: Worker, now: float = 0.0, **said: Any) -> Worker:
        """The same process registers again."""
        fields: dict[str, Any] = {
            "topology": worker.engine.topology,
            "rank": worker.rank,
            "instance_id": worker.peer.instance_id,
            "layout": worker.layout,
            "nixl_metadata": worker.nixl_metadata,
            "birth_epoch": worker.instance.birth_epoch,
        }
        return self.register(Registration(worker.engine.engine_id, worker.engine.role, **(fields | said)), now)

    def prefill(self, room: int, rank: int = 0, now: float = 0.0, **said: Any) -> Join:
        """A prefill rank joins."""
        join = Join(room, next(self._ids), **said)
        self.join(self.p[rank], join, now)
        return join

    def decode(self, room: int, pages: Sequence[int] = (3, 9), tokens: int = 20, rank: int = 0, **said: Any) -> Join:
        """A decode rank joins with its offer."""
        now = said.pop("now", 0.0)
        fields = {"peer_engine_id": "p", "destination": destination(tokens, pages)} | said
        join = Join(room, next(self._ids), **fields)
        self.join(self.d[rank], join, now)
        return join

    def moving(self, room: int, now: float = 0.0) -> tuple[list[Join], list[Join]]:
        """Every rank has joined, every sender says it moves pages."""
        ranks = range(len(self.p))
        senders = [self.prefill(room, rank, now) for rank in ranks]
        receivers = [self.decode(room, rank=rank, now=now) for rank in ranks]
        for rank in ranks:
            self.say(self.p[rank], senders[rank], Poll.TRANSFERRING, now)
        return senders, receivers

    def completion(self, sender: Join, receiver: Join, rank: int = 0, pages: int = 2, **said: Any) -> Completion:
        """All of an offer was written."""
        whole = (("kv", ((0, pages),) if pages else ()), ("aux", ((0, 1),)))
        fields: dict[str, Any] = {"groups": whole, "bytes": pages * 16384 + 64} | said
        ids = (self.p[rank].ref.worker_id, self.d[rank].ref.worker_id, receiver.join_id, sender.join_id)
        return Completion(sender.room, *ids, **fields)

    def say(
        self,
        worker: Worker,
        join: Join,
        poll: Poll,
        now: float = 0.0,
        held: Sequence[Completion] = (),
        failure: Failure | None = None,
        moved: int = 0,
    ) -> Room:
        """A worker reports."""
        return self.report(worker, Progress(join.room, join.join_id, poll, moved, failure, tuple(held)), now)

    def finish(self, room: int, senders: list[Join], receivers: list[Join], now: float = 0.0) -> None:
        """Every rank says SUCCESS."""
        for rank, (sender, receiver) in enumerate(zip(senders, receivers, strict=True)):
            held = [self.completion(sender, receiver, rank)]
            self.say(self.p[rank], sender, Poll.SUCCESS, now, held)
            self.say(self.d[rank], receiver, Poll.SUCCESS, now, held)

    def clean(self, worker: Worker, join: Join, now: float = 0.0, drained: bool = True, **said: Any) -> Release:
        return self.cleanup(worker, CleanupItem(join.room, join.join_id, drained=drained, **said), now)

    def own_poll(self, room: int, worker: Worker) -> Poll:
        return self.rooms[room].participants[worker.ref.worker_id].poll

    def poll(self, room: int) -> Poll:
        return self.rooms[room].poll

    def failed(self, room: int) -> Failure:
        failure = self.rooms[room].failure
        assert failure is not None
        return failure

    def hear(self, worker: Worker) -> News:
        """All that the worker's open session has to be told, as one."""
        assert worker.outbox is not None
        heard = News()
        while worker.outbox.pending:
            news = compose(worker, worker.outbox, self.rooms)
            for name in ("updates", "offers", "completions", "releases", "peers"):
                getattr(heard, name).extend(getattr(news, name))
        return heard
