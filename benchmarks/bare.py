"""The control plane's part of rooms alone: sessions of all ranks of two engines, which do at once what is due.

Nothing is moved and nothing is computed, so that one process keeps a service busy: what a room costs it is seen at its
limit. The messages are those of workers in such rooms, none left out.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import grpc
from kvtransfer import v1 as pb
from kvtransfer.layout import LocalMemory
from kvtransfer.v1 import service_pb2_grpc

from benchmarks.pool import Pool
from benchmarks.shapes import PAGE_TOKENS, Shape
from benchmarks.worker import kv_group

if TYPE_CHECKING:
    from kvtransfer.v1.service_pb2_grpc import KVTransferAsyncStub

SILENCE_S = 30.0
"""The longest that a wave may take."""


class BareSessions:
    """All ranks of both engines, in one process."""

    def __init__(self, target: str, shape: Shape) -> None:
        """Registers the ranks that `shape` says, and opens their sessions."""
        self._shape = shape
        self._runner = asyncio.Runner()
        self._prefills, self._decodes = self._runner.run(self._open(target))

    async def _open(self, target: str) -> tuple[list["_Rank"], list["_Rank"]]:
        ranks = range(self._shape.ranks)
        return (
            [await _open_rank(target, pb.ROLE_PREFILL, rank, self._shape) for rank in ranks],
            [await _open_rank(target, pb.ROLE_DECODE, rank, self._shape) for rank in ranks],
        )

    def transfer(self, rooms: Sequence[int], wave: int, waves: int) -> None:
        """Rooms of one page, `wave` of them in each message, so many waves at a time. Raises RuntimeError."""
        self._runner.run(self._transfer(rooms, wave, waves))

    async def _transfer(self, rooms: Sequence[int], wave: int, waves: int) -> None:
        pending = iter([rooms[at : at + wave] for at in range(0, len(rooms), wave)])

        async def lane() -> None:
            for some in pending:
                async with asyncio.timeout(SILENCE_S):
                    await self._wave(some)

        async with asyncio.TaskGroup() as group:
            for _ in range(waves):
                group.create_task(lane())

    async def _wave(self, rooms: Sequence[int]) -> None:
        """Senders join, receivers join and offer, both report success, all clean up."""
        both = [*self._prefills, *self._decodes]
        await _all(rank.send(joins=[_join(room) for room in rooms]) for rank in self._prefills)
        offers = [_offer(room, room % self._shape.pool_pages) for room in rooms]
        await _all(rank.send(joins=offers) for rank in self._decodes)
        pairs = zip(self._prefills, self._decodes, strict=True)
        reports = [[self._success(room, *pair) for room in rooms] for pair in pairs]
        # A receiver has heard of its completion from the sender itself, and tells it as proof.
        await _all(rank.send(progress=report) for rank, report in zip(both, reports * 2, strict=True))
        await _all(rank.succeeded(rooms) for rank in both)
        cleanups = [pb.CleanupItem(room=room, join_id=room, drained=True) for room in rooms]
        await _all(rank.send(cleanups=cleanups) for rank in both)

    def _success(self, room: int, sender: "_Rank", receiver: "_Rank") -> pb.Progress:
        nbytes = self._shape.item_bytes * self._shape.tracks
        completion = pb.Completion(
            room=room,
            sender=sender.worker.worker_id,
            receiver=receiver.worker.worker_id,
            offer_id=room,
            sender_join_id=room,
            groups=[pb.GroupRanges(group="kv", ranges=[pb.Range(first=0, count=1)])],
            bytes=nbytes,
        )
        return pb.Progress(
            room=room, join_id=room, poll=pb.KV_POLL_SUCCESS, transferred_bytes=nbytes, completions=[completion]
        )

    def close(self) -> None:
        """Ends all sessions."""
        self._runner.run(_all(rank.close() for rank in (*self._prefills, *self._decodes)))
        self._runner.close()


class _Rank:
    """A registered worker and its session. A room's number is its join_id, too."""

    def __init__(self, channel: grpc.aio.Channel, stub: "KVTransferAsyncStub", worker: pb.WorkerRef) -> None:
        self.worker = worker
        self._channel = channel
        self._stream = stub.Session()
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._sent = self._applied = 0
        self._succeeded: set[int] = set()
        self._failed = ""
        self._reading = asyncio.create_task(self._read())

    async def send(
        self,
        joins: Iterable[pb.Join] = (),
        progress: Iterable[pb.Progress] = (),
        cleanups: Iterable[pb.CleanupItem] = (),
    ) -> None:
        """A batch; returns when it was applied. Raises RuntimeError if an item was refused."""
        batch = pb.SessionRequest(joins=joins, progress=progress, cleanups=cleanups)
        async with self._writing:
            self._sent += 1
            number = batch.batch = self._sent
            if number == 1:
                batch.worker.CopyFrom(self.worker)
            await self._stream.write(batch)
        await self._until(lambda: self._applied >= number)

    async def succeeded(self, rooms: Sequence[int]) -> None:
        """Returns when the service has told that all of the rooms are SUCCESS."""
        await self._until(lambda: self._succeeded.issuperset(rooms))
        self._succeeded.difference_update(rooms)

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._failed or reached())
        if self._failed:
            raise RuntimeError(f"{self.worker.worker_id}: {self._failed}")

    async def _read(self) -> None:
        async for news in self._stream:
            async with self._changed:
                self._applied = news.applied_batch
                self._succeeded.update(update.room for update in news.rooms if update.poll == pb.KV_POLL_SUCCESS)
                if news.errors:
                    self._failed = str(news.errors[0])
                self._changed.notify_all()

    async def close(self) -> None:
        """Ends the session."""
        self._reading.cancel()
        await self._channel.close()


async def _open_rank(target: str, role: pb.Role, rank: int, shape: Shape) -> _Rank:
    channel = grpc.aio.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
    stub: KVTransferAsyncStub = service_pb2_grpc.KVTransferStub(channel)
    layout = LocalMemory(shape.name, [kv_group(Pool(shape, filled=False), rank)]).layout
    answer = await stub.RegisterWorker(
        pb.RegisterWorkerRequest(
            engine_id="bare-prefill" if role == pb.ROLE_PREFILL else "bare-decode",
            role=role,
            topology=pb.Topology(tp_size=shape.ranks, pp_size=1, dp_size=1),
            rank=pb.Rank(tp_rank=rank),
            instance_id=str(uuid.uuid4()),
            layout=layout,
            nixl_metadata=b"none",
        ),
        wait_for_ready=True,
    )
    opened = _Rank(channel, stub, answer.worker)
    await opened.send()
    return opened


def _join(room: int) -> pb.Join:
    return pb.Join(room=room, join_id=room)


def _offer(room: int, page: int) -> pb.Join:
    groups = [pb.GroupIndices(group="kv", indices=[page])]
    destination = pb.Destination(tokens=PAGE_TOKENS, groups=groups)
    return pb.Join(room=room, join_id=room, peer_engine_id="bare-prefill", destination=destination)


async def _all(tasks: Iterable[Awaitable[None]]) -> None:
    await asyncio.gather(*tasks)
