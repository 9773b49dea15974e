"""The stream between a worker and the service."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from kvtransfer import v1 as pb

from kvservice.domain.errors import DomainError, InvalidField
from kvservice.domain.types import WorkerRef
from kvservice.service.service import Service
from kvservice.service.session import Session
from kvservice.transport import answers, convert
from kvservice.transport.rpc import Stream

MAX_ITEMS = 1000

Item = TypeVar("Item", pb.Join, pb.Progress, pb.CleanupItem)


class SessionStream:
    """Reads batches in one task, and writes the newest state in another: several batches may get one answer."""

    def __init__(self, session: Session, stream: Stream) -> None:
        self._session = session
        self._stream = stream
        self._applied = 0
        self._answered = 0
        self._errors: list[pb.ItemError] = []
        self._errors_told = asyncio.Event()
        self._errors_told.set()
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
            reader.result()
            await self._answer()
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await reader
            del reader  # what it raised knows this frame, which would know it

    # --- batches ---

    async def _read(self) -> None:
        try:
            while (request := await self._stream.read()) is not None:
                if request.HasField("worker"):
                    raise InvalidField("worker", "must be set in the first message only")
                self._apply(request)
                if self._errors:
                    self._session.bell.ring()
                    await self._errors_told.wait()  # else who never reads, but sends, would fill the memory with them
                else:
                    self._session.bell.ring_soon()
        finally:
            self._session.bell.ring()

    def _apply(self, request: pb.SessionRequest) -> None:
        if request.batch != self._applied + 1:
            raise InvalidField("batch", f"must be {self._applied + 1}", request.batch)
        items = len(request.joins) + len(request.progress) + len(request.cleanups)
        convert.at_most(items, MAX_ITEMS, "joins, progress and cleanups")
        self._session.batch(convert.draining(request), partial(self._apply_items, request))
        self._applied = request.batch

    def _apply_items(self, request: pb.SessionRequest) -> None:
        session, kind = self._session, pb.ItemError
        self._each(request.joins, lambda item: session.join(convert.join(item)), kind.KIND_JOIN)
        self._each(request.progress, lambda item: session.report(convert.progress(item)), kind.KIND_PROGRESS)
        self._each(request.cleanups, lambda item: session.cleanup(convert.cleanup_item(item)), kind.KIND_CLEANUP)

    def _each(self, items: Iterable[Item], apply: Callable[[Item], None], kind: pb.ItemError.Kind) -> None:
        """A bad item never fails the others."""
        for item in items:
            try:
                apply(item)
            except DomainError as error:
                self._errors_told.clear()
                self._errors.append(answers.item_error(self._applied + 1, kind, item.room, error))

    # --- answers ---

    async def _answer(self) -> None:
        """Tells all that is new by now, in as few messages as it takes. What comes meanwhile rings by itself."""
        self._session.check()
        more = self._answered != self._applied or self._session.pending
        while more:
            news = self._session.news()
            more = self._session.pending
            errors, self._errors = self._errors, []
            self._answered = self._applied
            await self._stream.write(answers.news(news, self._applied, self._lease_ttl, errors))
            if not self._errors:
                self._errors_told.set()


async def serve(service: Service, stream: Stream) -> None:
    """One call of the method Session."""
    first: pb.SessionRequest | None = await stream.read()
    if first is None:
        return
    ref: WorkerRef = convert.worker_ref(first)
    with service.session(ref) as session:
        await SessionStream(session, stream).run(first)
