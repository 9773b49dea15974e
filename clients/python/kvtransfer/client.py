"""The control plane from Python: what a router, a tool or a simple engine calls.

An engine's worker that moves pages holds a `KVManager`, which keeps a session of its own.
"""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from kvtransfer import calls
from kvtransfer import v1 as pb
from kvtransfer.errors import Draining, KVTransferError, ServiceUnavailable, from_rpc_error
from kvtransfer.v1 import service_pb2_grpc

TIMEOUT = 10.0
"""Seconds allowed to a call, its retries included, if the client was not told otherwise."""

T = TypeVar("T")


class Client:
    """Calls to one service, from any thread. To be made after a fork, never before.

    Calls whose repeat is harmless, and these are all but streams, are repeated a few times while the service cannot be
    reached. Each raises the error of its reason (see `kvtransfer.errors`), ServiceUnavailable if nobody answers, and
    DeadlineExceeded after `timeout`.
    """

    def __init__(
        self, target: str, *, timeout: float = TIMEOUT, credentials: grpc.ChannelCredentials | None = None
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

    # --- workers ---

    def register_worker(self, request: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        """Registers a worker; waits for the service to be there. Grants a new epoch, and a lease that counts from now.

        Raises InvalidField, EngineMismatch, StaleEpoch (a process born later has the rank), LimitReached, Draining.
        """
        return self._call(calls.register_worker(request))

    def heartbeat(self, worker: pb.WorkerRef, *, draining: bool | None = None) -> float:
        """Renews a lease; returns its seconds, counted from when the call was made.

        `draining` tells routers to send the worker no new rooms, or that they may again; None leaves it as it was.
        Raises WorkerNotFound, StaleEpoch.
        """
        return self._call(calls.heartbeat(worker, draining))

    def deregister_worker(self, worker: pb.WorkerRef, *, drained: bool) -> None:
        """Removes a worker; an absent one is fine. `drained` vouches that no write of its is in flight."""
        self._call(calls.deregister_worker(worker, drained))

    def get_engine(self, engine_id: str, *, view: pb.WorkerView = pb.WORKER_VIEW_BASIC) -> pb.Engine:
        """One engine with its live workers; layouts too in the full view. Raises EngineNotFound, InvalidField."""
        return self._call(calls.get_engine(engine_id, view))

    def list_engines(self, *, role: pb.Role = pb.ROLE_UNSPECIFIED, model: str = "") -> Iterator[pb.Engine]:
        """Engines of a role and a model, all if unspecified, ordered by id; fetched page by page."""
        request = pb.ListEnginesRequest(role=role, model=model)
        while True:
            answer = self._call(calls.list_engines(request))
            yield from answer.engines
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    def get_links(
        self, engine_id: str, peer_engine_id: str, *, dp_rank: int = 0, peer_dp_rank: int = 0, worker_id: str = ""
    ) -> pb.GetLinksResponse:
        """What the workers of two engines' replicas exchange.

        With `worker_id`, only that worker's links, and its peers with the NIXL metadata needed to reach them.
        Raises EngineNotFound, LayoutMismatch (naming the field), InvalidField.
        """
        return self._call(calls.get_links(engine_id, peer_engine_id, dp_rank, peer_dp_rank, worker_id))

    # --- rooms ---

    def handshake(self, worker: pb.WorkerRef, join: pb.Join) -> pb.HandshakeResponse:
        """Joins a worker to a room, opening it if it is the first; repeated, returns what has become known since.

        A failed room is an answer, not an error. Raises WorkerNotFound, StaleEpoch, InvalidField, EngineNotFound,
        RoomReused, JoinConflict, LimitReached, Draining.
        """
        return self._call(calls.handshake(worker, join))

    def report(self, worker: pb.WorkerRef, progress: Iterable[pb.Progress]) -> list[pb.RoomUpdate | KVTransferError]:
        """Records progress, of at most 1000 rooms. One result each, in order: the room, or why the item was refused.

        Raises WorkerNotFound, StaleEpoch, InvalidField for the call as a whole.
        """
        return self._call(calls.report(worker, progress))

    def cleanup(self, worker: pb.WorkerRef, items: Iterable[pb.CleanupItem]) -> list[pb.Release | KVTransferError]:
        """Releases at most 1000 rooms. One result each, in order: whether the pages are free, or the refusal.

        Raises WorkerNotFound, StaleEpoch, InvalidField for the call as a whole.
        """
        return self._call(calls.cleanup(worker, items))

    def poll(self, rooms: Iterable[int], *, view: pb.TransferView = pb.TRANSFER_VIEW_FULL) -> pb.PollResponse:
        """The state of 1 to 256 rooms. Never removes anything. Raises InvalidField."""
        return self._call(calls.poll(rooms, view))

    def abort(self, rooms: Iterable[int], message: str = "") -> list[pb.RoomUpdate | KVTransferError]:
        """Asks 1 to 1000 rooms to end. One result each, in order: the room, or why it was refused.

        A room that is not open yet can no longer be. `message`: the cause, up to 1024 characters. Raises InvalidField.
        """
        return self._call(calls.abort(rooms, message))

    def list_transfers(
        self,
        *,
        engine_id: str = "",
        polls: Iterable[pb.KVPoll] = (),
        request_id: str = "",
        view: pb.TransferView = pb.TRANSFER_VIEW_BASIC,
    ) -> Iterator[pb.Transfer]:
        """Rooms of an engine, with one of the polls, of a request (all if empty); newest first, page by page."""
        request = pb.ListTransfersRequest(engine_id=engine_id, polls=polls, request_id=request_id, view=view)
        while True:
            answer = self._call(calls.list_transfers(request))
            yield from answer.transfers
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    def watch(
        self,
        rooms: Iterable[int] = (),
        *,
        engine_id: str = "",
        after_revision: int = 0,
        view: pb.TransferView = pb.TRANSFER_VIEW_BASIC,
    ) -> "Watch":
        """Follows at most 1000 rooms (all if none is named) in which an engine (any if empty) takes part.

        To be used as a context manager; see Watch.
        """
        request = pb.WatchRequest(rooms=rooms, engine_id=engine_id, after_revision=after_revision, view=view)
        return Watch(self._stub, request, self._timeout)

    def get_server_info(self) -> pb.GetServerInfoResponse:
        """Version, limits and defaults of the service."""
        return self._call(calls.get_server_info())

    def _call(self, call: calls.Call[T]) -> T:
        method = getattr(self._stub, call.method)
        try:
            answer = method(call.request, timeout=self._timeout, wait_for_ready=call.wait_for_ready)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        return call.read(answer)


class Watch:
    """The newest states of rooms as they change, for ever.

    Iterating gives WatchResponse: first one or more with all there is, then what changed; a slow reader skips states in
    between. A stream that breaks is taken up where it was, for as long as the client's timeout; then iterating raises
    ServiceUnavailable or Draining. Leaving the `with` block cancels the stream.
    """

    def __init__(self, stub: Any, request: pb.WatchRequest, timeout: float) -> None:
        self._stub = stub
        self._request = request
        self._timeout = timeout
        self._stream: Any = None
        self._closed = False

    @property
    def revision(self) -> int:
        """Up to here everything was given: pass it as `after_revision` to go on later."""
        return self._request.after_revision

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the stream, from any thread: iterating ends."""
        self._closed = True
        if self._stream is not None:
            self._stream.cancel()

    def __iter__(self) -> Iterator[pb.WatchResponse]:
        return self

    def __next__(self) -> pb.WatchResponse:
        try:
            answer = self._open() if self._stream is None else self._next()
        except (ServiceUnavailable, Draining):
            answer = self._reopen()
        if answer.revision:
            self._request.after_revision = answer.revision
        return answer

    def _reopen(self) -> pb.WatchResponse:
        tries = Retrying(
            retry=retry_if_exception_type((ServiceUnavailable, Draining)),
            wait=wait_random_exponential(0.1, 2),
            stop=stop_after_delay(self._timeout),
            reraise=True,
        )
        return tries(self._open)

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
