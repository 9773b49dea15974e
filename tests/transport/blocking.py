"""The asyncio client behind the sync one's interface, so that one test is good for both."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from kvtransfer import v1 as pb
from kvtransfer.aio import AsyncClient, AsyncWatch
from kvtransfer.client import Client

from transport.running import LoopThread


class BlockingClient:
    """An AsyncClient in a loop of its own; its calls, lists and watches are those of a Client."""

    def __init__(self, target: str, **options: Any) -> None:
        async def make() -> AsyncClient:
            return AsyncClient(target, **options)

        self._loop = LoopThread("client")
        self._client: AsyncClient = self._loop.run(make())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            made = method(*args, **kwargs)
            if isinstance(made, AsyncWatch):
                return BlockingWatch(self._loop, made)
            return self._entries(made) if inspect.isasyncgen(made) else self._loop.run(made)

        return call

    def _entries(self, made: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    entry = self._loop.run(anext(made))
                except StopAsyncIteration:
                    return
                yield entry
        finally:
            self._loop.run(made.aclose())

    def close(self) -> None:
        async def close() -> None:
            await self._client.close()
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)  # what was under way tells its caller

        self._loop.run(close())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BlockingWatch:
    """An AsyncWatch as a Watch."""

    def __init__(self, loop: LoopThread, watch: AsyncWatch) -> None:
        self._loop = loop
        self._watch = watch

    @property
    def revision(self) -> int:
        return self._watch.revision

    def close(self) -> None:
        async def close() -> None:
            self._watch.close()

        self._loop.run(close())

    def __enter__(self) -> Self:
        self._loop.run(self._watch.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._watch.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[pb.WatchResponse]:
        return self

    def __next__(self) -> pb.WatchResponse:
        return self._step(self._watch.__anext__())

    def _open(self) -> pb.WatchResponse:
        return self._step(self._watch._open())

    def _next(self) -> pb.WatchResponse:
        return self._step(self._watch._next())

    def _step(self, step: Any) -> pb.WatchResponse:
        try:
            answer: pb.WatchResponse = self._loop.run(step)
        except StopAsyncIteration:
            raise StopIteration from None
        return answer


Connect = Callable[..., Client]
"""Makes a client as `Client(target, ...)` does."""
EITHER: dict[str, Connect] = {"sync": Client, "async": BlockingClient}  # type: ignore[dict-item] # alike, not derived
