"""A worker as the service sees one: it registers, joins, reports and cleans up, and moves nothing."""

import itertools
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import grpc
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import from_rpc_error
from kvtransfer.v1 import service_pb2_grpc

PAGE = 16
POOL = 64
TIMEOUT = 10.0

_joins = itertools.count(1)


def layout(
    model: str = "m", page_tokens: int = PAGE, dtype: str = "float16", heads: int = 4, pool: int = POOL
) -> pb.Layout:
    """Two layers of k and v in one paged group, and a slot group."""
    item_bytes = page_tokens * heads * 64
    parts = [
        pb.Part(
            name=name,
            dtype=dtype,
            order=pb.Part.ORDER_TOKEN_HEAD,
            total_heads=heads,
            head_count=heads,
            item_bytes=item_bytes,
            regions=[_region((at + 1) << 32 | layer << 24, pool, item_bytes, layer) for layer in range(2)],
        )
        for at, name in enumerate("kv")
    ]
    aux = pb.Part(
        name="row", dtype="uint8", order=pb.Part.ORDER_WHOLE, item_bytes=64, regions=[_region(1 << 40, 8, 64)]
    )
    return pb.Layout(
        model=model,
        groups=[
            pb.BufferGroup(name="kv", kind=pb.BufferGroup.KIND_PAGED, page_tokens=page_tokens, parts=parts),
            pb.BufferGroup(name="aux", kind=pb.BufferGroup.KIND_SLOT, parts=[aux]),
        ],
        scratch=_region(1 << 41, 1, 1 << 20),
    )


def _region(address: int, items: int, stride: int, layer: int | None = None) -> pb.Region:
    return pb.Region(layer=layer, address=address, item_count=items, item_stride=stride, memory=pb.MEMORY_KIND_DRAM)


def registration(
    engine_id: str, role: pb.Role, rank: int | pb.Rank | None = 0, tp: int = 1, **said: Any
) -> pb.RegisterWorkerRequest:
    """What a worker says when it registers, as a new process."""
    fields: dict[str, Any] = {
        "instance_id": str(uuid.uuid4()),
        "topology": pb.Topology(tp_size=tp, pp_size=1, dp_size=1),
        "rank": pb.Rank(tp_rank=rank) if isinstance(rank, int) else rank,
        "layout": layout(),
        "nixl_metadata": f"metadata of {engine_id} {rank}".encode(),
    }
    return pb.RegisterWorkerRequest(engine_id=engine_id, role=role, **(fields | said))


def destination(tokens: int, pages: Sequence[int], slot: int = 0, prefix_tokens: int = 0) -> pb.Destination:
    """Pages of group kv from the first that the prefix does not cover, and one slot."""
    return pb.Destination(
        tokens=tokens,
        prefix_tokens=prefix_tokens,
        groups=[
            pb.GroupIndices(group="kv", first_token=prefix_tokens, indices=pages),
            pb.GroupIndices(group="aux", indices=[slot]),
        ],
    )


def new_join(room: int, **said: Any) -> pb.Join:
    """A first entry into a room."""
    return pb.Join(room=room, join_id=next(_joins), **said)


def completion(room: int, sender: str, offer: pb.Offerer, sender_join_id: int, pages: int) -> pb.Completion:
    """All of an offer of `pages` pages and a slot was written."""
    whole = {"kv": pages, "aux": 1}
    return pb.Completion(
        room=room,
        sender=sender,
        receiver=offer.receiver.worker_id,
        offer_id=offer.offer_id,
        sender_join_id=sender_join_id,
        groups=[
            pb.GroupRanges(group=group, ranges=[pb.Range(first=0, count=count)] if count else [])
            for group, count in whole.items()
        ],
        bytes=pages * 4 * PAGE * 4 * 64 + 64,
    )


class Worker:
    """Registered by unary calls."""

    def __init__(self, client: Client, engine_id: str, role: pb.Role, rank: int = 0, tp: int = 1, **said: Any) -> None:
        self.client = client
        self.said = registration(engine_id, role, rank, tp, **said)
        self.register()

    def register(self) -> None:
        """Also again, as the same process."""
        granted = self.client.register_worker(self.said)
        self.ref = granted.worker
        self.lease_ttl = granted.lease_ttl.seconds + granted.lease_ttl.nanos / 1e9
        self.said.birth_epoch = granted.birth_epoch

    @property
    def worker_id(self) -> str:
        return self.ref.worker_id

    def join(self, join: pb.Join) -> pb.HandshakeResponse:
        return self.client.handshake(self.ref, join)

    def report(self, join: pb.Join, poll: pb.KVPoll, **said: Any) -> Any:
        """The result: an update, or the refusal."""
        said = {"room": join.room, "join_id": join.join_id, "poll": poll} | said
        return self.client.report(self.ref, [pb.Progress(**said)])[0]

    def cleanup(self, join: pb.Join, drained: bool = True, **said: Any) -> Any:
        """The result: a release, or the refusal."""
        item = pb.CleanupItem(room=join.room, join_id=join.join_id, drained=drained, **said)
        return self.client.cleanup(self.ref, [item])[0]


class Stream:
    """A raw session: what the test writes, and all that has come, in the order it came."""

    def __init__(self, target: str, ref: pb.WorkerRef) -> None:
        self._channel = grpc.insecure_channel(target)
        self._out: queue.SimpleQueue[pb.SessionRequest | None] = queue.SimpleQueue()
        self._ref: pb.WorkerRef | None = ref
        self._batch = 0
        self.heard: list[pb.SessionResponse] = []
        self.ended: Exception | None = None
        self._news = threading.Condition()
        self._over = False
        self._call = service_pb2_grpc.KVTransferStub(self._channel).Session(iter(self._out.get, None))
        self._reader = threading.Thread(target=self._read, name="session")
        self._reader.start()

    def send(self, **said: Any) -> int:
        """One batch; returns its number."""
        self._batch += 1
        self.send_raw(pb.SessionRequest(worker=self._ref, batch=self._batch, **said))
        self._ref = None
        return self._batch

    def send_raw(self, request: pb.SessionRequest) -> None:
        self._out.put(request)

    def finish(self) -> None:
        """No more batches."""
        self._out.put(None)

    def wait(self, done: Callable[["Stream"], Any]) -> Any:
        """What `done` gives once it is true."""
        with self._news:
            assert self._news.wait_for(lambda: done(self) or self._over, TIMEOUT), f"heard only {self.heard}"
            found = done(self)
            assert found, f"the session ended ({self.ended}) after {self.heard}"
            return found

    def wait_applied(self, batch: int) -> pb.SessionResponse:
        return self.wait(lambda s: next((m for m in s.heard if m.applied_batch >= batch), None))  # type: ignore[no-any-return]

    def wait_poll(self, room: int, poll: pb.KVPoll) -> pb.RoomUpdate:
        """The first update of a room that says `poll`."""
        return self.wait(lambda s: next((u for u in s.all("rooms") if (u.room, u.poll) == (room, poll)), None))  # type: ignore[no-any-return]

    def wait_end(self) -> Exception | None:
        """Why the service ended the session; None if it had been asked to."""
        with self._news:
            assert self._news.wait_for(lambda: self._over, TIMEOUT)
            return self.ended

    def all(self, field: str) -> list[Any]:
        """Everything of one field that was heard."""
        return [item for message in self.heard for item in getattr(message, field)]

    def close(self) -> None:
        """Breaks the stream."""
        self._call.cancel()
        self._reader.join(TIMEOUT)
        self._out.put(None)
        self._channel.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        try:
            for message in self._call:
                with self._news:
                    self.heard.append(message)
                    self._news.notify_all()
        except grpc.RpcError as error:
            self.ended = from_rpc_error(error)
        with self._news:
            self._over = True
            self._news.notify_all()


def pair(client: Client, tp: int = 1) -> list[tuple[Worker, Worker]]:
    """Workers of a prefill and a decode engine, rank by rank."""
    prefill = [Worker(client, "p", pb.ROLE_PREFILL, rank, tp) for rank in range(tp)]
    decode = [Worker(client, "d", pb.ROLE_DECODE, rank, tp) for rank in range(tp)]
    return list(zip(prefill, decode, strict=True))
