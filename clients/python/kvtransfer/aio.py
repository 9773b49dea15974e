"""The control plane for asyncio: `kvtransfer.client`'s sibling, with the same calls, errors, retries and deadlines."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakSet

import grpc
from tenacity import AsyncRetrying

from kvtransfer import calls
from kvtransfer import v1 as pb
from kvtransfer.errors import Draining, KVTransferError, ServiceUnavailable, from_rpc_error
from kvtransfer.v1 import service_pb2_grpc

P = ParamSpec("P")
T = TypeVar("T")


def _unary(make: Callable[P, calls.Call[T]]) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._call(make(*args, **kwargs))

    return calls.as_method(method, make)


def _pages(make: Callable[P, calls.Listing[T]]) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[T]]:
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        for page in make(*args, **kwargs).pages():
            for entry in await self._call(page):
                yield entry

    return calls.as_method(method, make)


def _stream(make: Callable[P, pb.WatchRequest]) -> Callable[Concatenate["AsyncClient", P], "AsyncWatch"]:
    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> "AsyncWatch":
        watch = AsyncWatch(self._stub, make(*args, **kwargs), self._timeout)
        self._watches.add(watch)
        return watch

    return calls.as_method(method, make)


class AsyncClient:
    """Calls to one service, each to be awaited, in the event loop that was running when the client was made.

    Which there are, and what each takes, gives and raises, is as for `Client`: a list is an `async for`, a watch an
    `async with` and an `async for` in it. Cancelling a task cancels its call.
    """

    def __init__(
        self, target: str, *, timeout: float = calls.TIMEOUT, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        """Arguments are those of `Client`. Raises RuntimeError where no event loop is running."""
        asyncio.get_running_loop()  # else the channel would silently belong to another loop
        options = calls.channel_options()
        self._timeout = timeout
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options)
        self._stub = service_pb2_grpc.KVTransferStub(self._channel)
        self._watches: WeakSet[AsyncWatch] = WeakSet()

    async def close(self) -> None:
        """Ends what is under way and the connection."""
        for watch in self._watches:
            watch._cancel()  # grpcio 1.76 leaves whoever reads a stream waiting
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    register_worker = _unary(calls.register_worker)
    heartbeat = _unary(calls.heartbeat)
    deregister_worker = _unary(calls.deregister_worker)
    get_engine = _unary(calls.get_engine)
    list_engines = _pages(calls.list_engines)
    get_links = _unary(calls.get_links)

    handshake = _unary(calls.handshake)
    report = _unary(calls.report)
    cleanup = _unary(calls.cleanup)
    poll = _unary(calls.poll)
    abort = _unary(calls.abort)
    list_transfers = _pages(calls.list_transfers)
    watch = _stream(calls.watch)

    get_server_info = _unary(calls.get_server_info)
    require = _unary(calls.require)

    async def _call(self, call: calls.Call[T]) -> T:
        method = getattr(self._stub, call.method)
        return call.read(await _answer(method(call.request, timeout=self._timeout, wait_for_ready=call.wait_for_ready)))


class AsyncWatch(calls.Following):
    """The newest states of rooms as they change, for ever: as `Watch`, with `async with` and `async for`.

    Leaving an `async for` early leaves the stream open; leaving the `async with` block cancels it, and so does dropping
    the watch.
    """

    def __del__(self) -> None:
        self._cancel()  # gRPC keeps a stream alive that nobody reads any more

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[pb.WatchResponse]:
        return self

    async def __anext__(self) -> pb.WatchResponse:
        try:
            answer = await (self._open() if self._stream is None else self._next())
        except (ServiceUnavailable, Draining):
            answer = await AsyncRetrying(**calls.reopening(self._timeout))(self._open)
        if answer.revision:
            self._request.after_revision = answer.revision
        return answer

    async def _open(self) -> pb.WatchResponse:
        if self._closed:
            raise StopAsyncIteration
        self._stream = self._stub.Watch(self._request)
        return await self._next()

    async def _next(self) -> pb.WatchResponse:
        try:
            answer = await _answer(self._stream.read())
        except asyncio.CancelledError:
            self._stream = None  # gRPC ended it with the reading; the next reading takes it up where it was
            raise
        except KVTransferError:
            if self._closed:
                raise StopAsyncIteration from None
            raise
        if answer is grpc.aio.EOF:
            raise StopAsyncIteration
        return answer  # type: ignore[no-any-return] # a stub of aio has no types of its own


async def _answer(call: Awaitable[T]) -> T:
    """What a call answers. gRPC raises CancelledError also where it was the call that was cancelled, not the task."""
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise KVTransferError("CANCELLED: the client, or its watch, was closed") from None
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
