"""What a room costs kvservice at the limit of one core: bare sessions that say what workers say, and move nothing."""

import argparse
import asyncio
import contextlib
import itertools
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import grpc
from kvtransfer import v1 as pb
from kvtransfer.client import Client

from benchmarks import machine
from benchmarks.processes import Service, kvservice
from benchmarks.report import Column, Report, Spread

RANKS = (1, 3, 8)
LANES = 8
BATCH = 16
"""Rooms of a message; as many lanes of them are under way."""
SESSION = "/kvtransfer.v1.KVTransfer/Session"
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
"""Ranks are processes, and share none."""
HEADS = 24
ITEM_BYTES = 16 * 64 * 2
ANSWER_TIMEOUT_S = 30.0

COLUMNS = (
    Column("ranks", "ranks a side"),
    Column("rooms", "rooms"),
    Column("cpu_ms", "service CPU ms/room", 3),
    Column("rooms_per_s", "rooms/s", 0),
    Column("service_percent", "service % of a core", 0),
)
NOTES = (
    f"{LANES * BATCH} rooms of one page under way, told in messages of {BATCH}, over a connection a rank: joins of",
    "the senders, joins with offers of the receivers, Completions by both, cleanups; each step once all ranks' last",
    "one was acknowledged. CPU: of kvservice, gRPC included. Medians over the rounds, with quartiles.",
)


@dataclass(slots=True)
class Session:
    """A rank's stream."""

    worker: pb.WorkerRef
    call: "grpc.aio.StreamStreamCall[bytes, bytes]"
    sent: int = 0
    applied: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A call takes one write at a time."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def say(self, items: pb.SessionRequest) -> None:
        """One batch; returns once the service has applied it. Raises TimeoutError."""
        async with self.turn:
            self.sent += 1
            items.batch = number = self.sent
            if number == 1:
                items.worker.CopyFrom(self.worker)
            await self.call.write(items.SerializeToString())
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while self.applied < number:
                await self.moved.wait()

    async def listen(self) -> None:
        """Reads acknowledgements until the stream ends. Raises RuntimeError for a refused item."""
        while (raw := await self.call.read()) is not grpc.aio.EOF:
            answer = pb.SessionResponse.FromString(raw)  # type: ignore[arg-type] # EOF is no bytes
            if answer.errors:
                raise RuntimeError(f"refused: {answer.errors[0].error.message}")
            self.applied = answer.applied_batch
            self.moved.set()
            self.moved = asyncio.Event()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds for each number of ranks [5]")


def run(arguments: argparse.Namespace) -> Report:
    """All numbers of ranks."""
    return measure(RANKS, arguments.rounds)


def measure(ranks: Iterable[int], rounds: int) -> Report:
    """A row for each number. Raises RuntimeError if the service refuses anything or a room does not end in SUCCESS."""
    report = Report("saturated", machine.describe(), COLUMNS, NOTES)
    for count in ranks:
        print(f"{count} ranks a side: {rounds} rounds", file=sys.stderr)
        with kvservice() as service:
            report.rows.append(asyncio.run(_measure(service, count, rounds)))
    return report


async def _measure(service: Service, ranks: int, rounds: int) -> dict[str, object]:
    cpu, rate, busy = [], [], []
    per_lane = max(1, 12 // ranks)
    numbers = itertools.count(1)
    async with contextlib.AsyncExitStack() as channels:
        with Client(service.target) as client:
            sides: list[list[Session]] = [[], []]
            for side, engine, role in zip(sides, "pd", (pb.ROLE_PREFILL, pb.ROLE_DECODE), strict=True):
                for rank in range(ranks):
                    channel = grpc.aio.insecure_channel(service.target, OWN_CONNECTION)
                    await channels.enter_async_context(channel)
                    side.append(_session(client, channel, engine, role, rank, ranks))
            listening = asyncio.gather(*(session.listen() for side in sides for session in side))
            await _lane(sides, numbers, 1)  # the first of everything is not counted
            for _ in range(rounds):
                used, began = machine.cpu_seconds(service.pid), time.monotonic()
                await asyncio.gather(*(_lane(sides, numbers, per_lane) for _ in range(LANES)))
                took, rooms = time.monotonic() - began, LANES * per_lane * BATCH
                spent = machine.cpu_seconds(service.pid) - used
                cpu.append(spent * 1e3 / rooms)
                rate.append(rooms / took)
                busy.append(spent * 100 / took)
            last = next(numbers) - 1
            if any(
                one.poll != pb.KV_POLL_SUCCESS for one in client.poll(range(max(1, last - 100), last + 1)).transfers
            ):
                raise RuntimeError("a room did not end in SUCCESS")
            if listening.done():
                listening.result()
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
    return {
        "ranks": ranks,
        "rooms": LANES * per_lane * BATCH * rounds,
        "cpu_ms": Spread.of(cpu),
        "rooms_per_s": Spread.of(rate),
        "service_percent": Spread.of(busy),
    }


async def _lane(sides: list[list[Session]], numbers: Iterator[int], waves: int) -> None:
    for _ in range(waves):
        for step in _steps(sides, [next(numbers) for _ in range(BATCH)]):
            await asyncio.gather(*(session.say(items) for session, items in step))


def _steps(sides: list[list[Session]], rooms: Sequence[int]) -> Iterator[list[tuple[Session, pb.SessionRequest]]]:
    """What each rank says of some rooms, step by step."""
    senders, receivers = sides
    offer = pb.Destination(tokens=16, groups=[pb.GroupIndices(group="kv", indices=[3])])
    joins = [pb.Join(room=room, join_id=room) for room in rooms]
    offers = [pb.Join(room=room, join_id=room, peer_engine_id="p", destination=offer) for room in rooms]
    yield [(session, pb.SessionRequest(joins=joins)) for session in senders]
    yield [(session, pb.SessionRequest(joins=offers)) for session in receivers]
    written = [
        [_success(room, sender.worker.worker_id, receiver.worker.worker_id) for room in rooms]
        for sender, receiver in zip(senders, receivers, strict=True)
    ]
    for side in (senders, receivers):
        yield [(session, pb.SessionRequest(progress=said)) for session, said in zip(side, written, strict=True)]
    cleanups = [pb.CleanupItem(room=room, join_id=room, drained=True) for room in rooms]
    yield [(session, pb.SessionRequest(cleanups=cleanups)) for session in (*senders, *receivers)]


def _success(room: int, sender: str, receiver: str) -> pb.Progress:
    written = [pb.GroupRanges(group="kv", ranges=[pb.Range(first=0, count=1)])]
    completion = pb.Completion(
        room=room, sender=sender, receiver=receiver, offer_id=room, sender_join_id=room, groups=written, bytes=1
    )
    return pb.Progress(room=room, join_id=room, poll=pb.KV_POLL_SUCCESS, completions=[completion])


def _session(client: Client, channel: grpc.aio.Channel, engine: str, role: pb.Role, rank: int, ranks: int) -> Session:
    registered = client.register_worker(
        pb.RegisterWorkerRequest(
            engine_id=engine,
            role=role,
            topology=pb.Topology(tp_size=ranks, pp_size=1, dp_size=1),
            rank=pb.Rank(tp_rank=rank),
            instance_id=str(uuid.uuid4()),
            layout=_layout(rank, HEADS // ranks),
            nixl_metadata=b"none: nothing moves",
        )
    )
    return Session(registered.worker, channel.stream_stream(SESSION)())


def _layout(rank: int, heads: int) -> pb.Layout:
    region = pb.Region(address=1 << 40, item_count=64, item_stride=heads * ITEM_BYTES, memory=pb.MEMORY_KIND_DRAM)
    part = pb.Part(
        name="kv",
        dtype="float16",
        order=pb.Part.ORDER_TOKEN_HEAD,
        total_heads=HEADS,
        first_head=rank * heads,
        head_count=heads,
        item_bytes=heads * ITEM_BYTES,
        regions=[region],
    )
    group = pb.BufferGroup(name="kv", kind=pb.BufferGroup.KIND_PAGED, page_tokens=16, parts=[part])
    scratch = pb.Region(address=2 << 40, item_count=1, item_stride=1 << 20, memory=pb.MEMORY_KIND_DRAM)
    return pb.Layout(model="saturated", groups=[group], scratch=scratch)
