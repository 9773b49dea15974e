"""What nobody waits for is held back for company."""

import asyncio

from kvtransfer import v1 as pb

from kvservice.domain.policy import Policy
from kvservice.service.bell import HOLD
from kvservice.service.service import Service
from kvservice.transport import convert, session
from transport.worker import registration


class Slow:
    """A stream whose worker sends a batch while the answer to the one before is on its way, up to the last."""

    def __init__(self, worker: pb.WorkerRef, batches: int) -> None:
        self.answered: list[float] = []
        self.last = 0
        self._batches = batches
        self._coming: asyncio.Queue[pb.SessionRequest | None] = asyncio.Queue()
        self._coming.put_nowait(pb.SessionRequest(worker=worker, batch=1))

    async def read(self) -> pb.SessionRequest | None:
        return await self._coming.get()

    async def write(self, answer: pb.SessionResponse) -> None:
        self.answered.append(asyncio.get_running_loop().time())
        self.last = answer.applied_batch
        following = pb.SessionRequest(batch=self.last + 1) if self.last < self._batches else None
        self._coming.put_nowait(following)
        await asyncio.sleep(0.001)


def test_what_comes_while_an_answer_is_written_is_held_back_as_well() -> None:
    async def serve() -> Slow:
        service = Service(Policy(), 1)
        ref = service.register(convert.registration(registration("p", pb.ROLE_PREFILL))).ref
        stream = Slow(pb.WorkerRef(worker_id=ref.worker_id, epoch=ref.epoch), batches=5)
        await session.serve(service, stream)  # type: ignore[arg-type] # it reads and writes
        return stream

    stream = asyncio.run(serve())
    gaps = [later - earlier for earlier, later in zip(stream.answered, stream.answered[1:], strict=False)]
    assert stream.last == 5
    assert len(gaps) == 4
    assert min(gaps[:-1]) > HOLD / 2
