"""The control plane from Python: what a router, a tool or a simple engine calls.

An engine's worker that moves pages holds a `KVManager`, which keeps a session of its own. `kvtransfer.aio` is the same
for asyncio.
"""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import grpc
from tenacity import Retrying

from kvtransfer import calls
from kvtransfer import v1 as pb
from kvtransfer.errors import Draining, ServiceUnavailable, from_rpc_error
from kvtransfer.v1 import service_pb2_grpc

P = ParamSpec("P")
T = TypeVar("T")


def _unary(make: Callable[P, calls.Call[T]]) -> Callable[Concatenate["Client", P], T]:
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(make(*args, **kwargs))

    return calls.as_method(method, make)


def _pages(make: Callable[P, calls.Listing[T]]) -> Callable[Concatenate["Client", P], Iterator[T]]:
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        for page in make(*args, **kwargs).pages():
            yield from self._call(page)

    return calls.as_method(method, make)


def _stream(make: Callable[P, pb.WatchRequest]) -> Callable[Concatenate["Client", P], "Watch"]:
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> "Watch":
        return Watch(self._stub, make(*args, **kwargs), self._timeout)

    return calls.as_method(method, make)


class Client:
    """Calls to one service, from any thread. To be made after a fork, never before.

    Calls whose repeat is harmless, and these are all but streams, are repeated a few times while the service cannot be
    reached. Each raises the error of its reason (see `kvtransfer.errors`), ServiceUnavailable if nobody answers, and
    DeadlineExceeded after `timeout`. What each takes, gives and raises is written beside it in `kvtransfer.calls`.
    """

    def __init__(
        self, target: str, *, timeout: float = calls.TIMEOUT, credentials: grpc.ChannelCredentials | None = None
    ) -> None:
        """
        Args:
            target: where the service listens, such as `127.0.0.1:50051`, or any gRPC target.
            timeout: seconds allowed to each call, its retries included.
            credentials: of a channel with TLS; without any the channel is not encrypted.
        """
        options = calls.channel_options()
        self._timeout = timeout
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options)
        else:
            self._channel = grpc.secure_channel(target, credentials, options)
        self._stub = service_pb2_grpc.KVTransferStub(self._channel)

    def close(self) -> None:
        """Ends what is under way and the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

    def _call(self, call: calls.Call[T]) -> T:
        method = getattr(self._stub, call.method)
        try:
            answer = method(call.request, timeout=self._timeout, wait_for_ready=call.wait_for_ready)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return call.read(answer)


class Watch(calls.Following):
    """The newest states of rooms as they change, for ever.

    Iterating gives WatchResponse: first one or more with all there is, then what changed; a slow reader skips states in
    between. A stream that breaks is taken up where it was, for as long as the client's timeout; then iterating raises
    ServiceUnavailable or Draining. Leaving the `with` block cancels the stream.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[pb.WatchResponse]:
        return self

    def __next__(self) -> pb.WatchResponse:
        try:
            answer = self._open() if self._stream is None else self._next()
        except (ServiceUnavailable, Draining):
            answer = Retrying(**calls.reopening(self._timeout))(self._open)
        if answer.revision:
            self._request.after_revision = answer.revision
        return answer

    def _open(self) -> pb.WatchResponse:
        """A new stream; its first answer comes at once."""
        if self._closed:
            raise StopIteration
        self._stream = self._stub.Watch(self._request)
        return self._next()

    def _next(self) -> pb.WatchResponse:
        try:
            answer: pb.WatchResponse = next(self._stream)
        except grpc.RpcError as error:
            if self._closed:
                raise StopIteration from None
            raise from_rpc_error(error) from None
        return answer
