"""The stream between a worker and the service."""

import asyncio
import contextlib
from collections.abc import Iterator

from kvtransfer import v1 as pb

from kvservice.domain.errors import DomainError, InvalidField
from kvservice.domain.types import WorkerRef
from kvservice.service.service import Service
from kvservice.service.session import Session
from kvservice.transport import answers, convert
from kvservice.transport.rpc import Stream

MAX_ITEMS = 1000


class SessionStream:
    """Reads batches in one task, and writes the newest state in another: several batches may get one answer."""

    def __init__(self, session: Session, stream: Stream) -> None:
        self._session = session
        self._stream = stream
        self._applied = 0
        self._answered = 0
        self._errors: list[pb.ItemError] = []
        self._lease_ttl = answers.duration(session.worker.lease_ttl)

    async def run(self, first: pb.SessionRequest) -> None:
        """Until the worker has no more to say and was answered, or the session has to end.

        Raises what ends it: SessionReplaced, StaleEpoch, WorkerNotFound, Draining, InvalidField.
        """
        self._apply(first)
        reader = asyncio.create_task(self._read())
        try:
            while not reader.done():
                await self._answer()
                await self._session.bell.wait()
                self._session.bell.clear()
            reader.result()
            await self._answer()
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reader

    async def _read(self) -> None:
        try:
            while (request := await self._stream.read()) is not None:
                if request.HasField("worker"):
                    raise InvalidField("worker", "must be set in the first message only")
                self._apply(request)
                self._session.bell.set()
        finally:
            self._session.bell.set()

    def _apply(self, request: pb.SessionRequest) -> None:
        if request.batch != self._applied + 1:
            raise InvalidField("batch", f"must be {self._applied + 1}", request.batch)
        items = len(request.joins) + len(request.progress) + len(request.cleanups)
        convert.at_most(items, MAX_ITEMS, "joins, progress and cleanups")
        self._session.renew(request.draining)
        for join in request.joins:
            with self._item(request, pb.ItemError.KIND_JOIN, join.room):
                self._session.join(convert.join(join))
        for progress in request.progress:
            with self._item(request, pb.ItemError.KIND_PROGRESS, progress.room):
                self._session.report(convert.progress(progress))
        for cleanup in request.cleanups:
            with self._item(request, pb.ItemError.KIND_CLEANUP, cleanup.room):
                self._session.cleanup(convert.cleanup_item(cleanup))
        self._applied = request.batch

    @contextlib.contextmanager
    def _item(self, request: pb.SessionRequest, kind: pb.ItemError.Kind, room: int) -> Iterator[None]:
        """A bad item never fails the others."""
        try:
            yield
        except DomainError as error:
            self._errors.append(answers.item_error(request.batch, kind, room, error))

    async def _answer(self) -> None:
        """Tells all that is new, in as few messages as it takes."""
        self._session.check()
        while self._answered != self._applied or self._session.pending:
            errors, self._errors = self._errors, []
            self._answered = self._applied
            news = self._session.news()
            await self._stream.write(answers.news(news, self._applied, self._lease_ttl, errors))


async def serve(service: Service, stream: Stream) -> None:
    """One call of the method Session."""
    first: pb.SessionRequest | None = await stream.read()
    if first is None:
        return
    ref: WorkerRef = convert.worker_ref(first)
    with service.session(ref) as session:
        await SessionStream(session, stream).run(first)
