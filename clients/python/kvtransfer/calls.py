"""The calls of the API, as both clients make them: arguments, what is sent, and what is made of the answer."""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.duration_pb2 import Duration
from tenacity import retry_if_exception_type, stop_after_delay, wait_random_exponential

from kvtransfer import v1 as pb
from kvtransfer._version import __version__
from kvtransfer.errors import Draining, FeatureMissing, KVTransferError, ServiceUnavailable, from_status
from kvtransfer.v1 import service_pb2

SERVICE = service_pb2.DESCRIPTOR.services_by_name["KVTransfer"]
TIMEOUT = 10.0
"""Seconds allowed to a call, its retries included, if the client was not told otherwise."""
RETRIES = {
    "maxAttempts": 5,  # gRPC allows no more
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
PINGS = (("grpc.keepalive_time_ms", 20_000), ("grpc.keepalive_timeout_ms", 10_000))

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call that is to be made."""

    method: str
    request: Any
    read: Callable[[Any], T]
    """Makes the result of the answer."""
    wait_for_ready: bool = False
    """Whether to wait for the service to be there, within the deadline."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list that comes page by page."""

    method: str
    request: Any
    entries: str
    """The field of the answer that holds them."""

    def pages(self) -> Iterator[Call[Iterable[T]]]:
        """The calls to make, one after the other: the answer to each is read before the next is asked for."""
        while True:
            yield Call(self.method, self.request, self._read)
            if not self.request.page_token:
                return

    def _read(self, answer: Any) -> Iterable[T]:
        self.request.page_token = answer.next_page_token
        entries: Iterable[T] = getattr(answer, self.entries)
        return entries


class Following:
    """What a watch knows, whichever client it is of."""

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

    def close(self) -> None:
        """Cancels the stream: iterating ends, in whichever thread or task."""
        self._closed = True
        self._cancel()

    def _cancel(self) -> None:
        if self._stream is not None:
            self._stream.cancel()


def as_method(method: F, make: Callable[..., object]) -> F:
    """`method` of a client, with the name, the arguments and the description of the function that makes its call."""
    update_wrapper(method, make)
    own = inspect.signature(make)
    arguments = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *own.parameters.values()]
    method.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined] # what help() and editors show
    return method


def channel_options() -> list[tuple[str, Any]]:
    """Retries where the API says that a repeat is harmless; pings, so that a dead connection is noticed."""
    repeatable = (MethodOptions.NO_SIDE_EFFECTS, MethodOptions.IDEMPOTENT)
    names = [
        {"service": SERVICE.full_name, "method": method.name}
        for method in SERVICE.methods
        if method.GetOptions().idempotency_level in repeatable
    ]
    return [
        ("grpc.enable_retries", 1),
        ("grpc.service_config", json.dumps({"methodConfig": [{"name": names, "retryPolicy": RETRIES}]})),
        *PINGS,
    ]


def reopening(timeout: float) -> dict[str, Any]:
    """How a stream that broke is tried again, for tenacity: within `timeout` seconds, then the error is raised."""
    return {
        "retry": retry_if_exception_type((ServiceUnavailable, Draining)),
        "wait": wait_random_exponential(0.1, 2),
        "stop": stop_after_delay(timeout),
        "reraise": True,
    }


# --- workers ---


def register_worker(request: pb.RegisterWorkerRequest) -> Call[pb.RegisterWorkerResponse]:
    """Registers a worker; waits for the service to be there. Grants a new epoch, and a lease that counts from now.

    Raises InvalidField, EngineMismatch, StaleEpoch (a process born later has the rank), LimitReached, Draining.
    """
    return Call("RegisterWorker", request, _itself, wait_for_ready=True)


def heartbeat(worker: pb.WorkerRef, *, draining: bool | None = None) -> Call[float]:
    """Renews a lease; returns its seconds, counted from when the call was made.

    `draining` tells routers to send the worker no new rooms, or that they may again; None leaves it as it was.
    Raises WorkerNotFound, StaleEpoch.
    """
    request = pb.HeartbeatRequest(worker=worker)
    if draining is not None:
        request.draining = draining
    return Call("Heartbeat", request, lambda answer: seconds(answer.lease_ttl))


def deregister_worker(worker: pb.WorkerRef, *, drained: bool) -> Call[None]:
    """Removes a worker; an absent one is fine. `drained` vouches that no write of its is in flight."""
    request = pb.DeregisterWorkerRequest(worker=worker, drained=drained)
    return Call("DeregisterWorker", request, lambda _answer: None)


def get_engine(engine_id: str, *, view: pb.WorkerView = pb.WORKER_VIEW_BASIC) -> Call[pb.Engine]:
    """One engine with its live workers; layouts too in the full view. Raises EngineNotFound, InvalidField."""
    return Call("GetEngine", pb.GetEngineRequest(engine_id=engine_id, view=view), lambda answer: answer.engine)


def list_engines(*, role: pb.Role = pb.ROLE_UNSPECIFIED, model: str = "") -> Listing[pb.Engine]:
    """Engines of a role and a model, all if unspecified, ordered by id; fetched page by page."""
    return Listing("ListEngines", pb.ListEnginesRequest(role=role, model=model), "engines")


def get_links(
    engine_id: str, peer_engine_id: str, *, dp_rank: int = 0, peer_dp_rank: int = 0, worker_id: str = ""
) -> Call[pb.GetLinksResponse]:
    """What the workers of two engines' replicas exchange.

    With `worker_id`, only that worker's links, and its peers with the NIXL metadata needed to reach them.
    Raises EngineNotFound, LayoutMismatch (naming the field), InvalidField.
    """
    request = pb.GetLinksRequest(
        engine_id=engine_id,
        dp_rank=dp_rank,
        peer_engine_id=peer_engine_id,
        peer_dp_rank=peer_dp_rank,
        worker_id=worker_id,
    )
    return Call("GetLinks", request, _itself)


# --- rooms ---


def handshake(worker: pb.WorkerRef, join: pb.Join) -> Call[pb.HandshakeResponse]:
    """Joins a worker to a room, opening it if it is the first; repeated, returns what has become known since.

    A failed room is an answer, not an error. Raises WorkerNotFound, StaleEpoch, InvalidField, EngineNotFound,
    RoomReused, JoinConflict, LimitReached, Draining.
    """
    return Call("Handshake", pb.HandshakeRequest(worker=worker, join=join), _itself)


def report(worker: pb.WorkerRef, progress: Iterable[pb.Progress]) -> Call[list[pb.RoomUpdate | KVTransferError]]:
    """Records progress, of at most 1000 rooms. One result each, in order: the room, or why the item was refused.

    Raises WorkerNotFound, StaleEpoch, InvalidField for the call as a whole.
    """
    return Call("Report", pb.ReportRequest(worker=worker, progress=progress), _updates)


def cleanup(worker: pb.WorkerRef, items: Iterable[pb.CleanupItem]) -> Call[list[pb.Release | KVTransferError]]:
    """Releases at most 1000 rooms. One result each, in order: whether the pages are free, or the refusal.

    Raises WorkerNotFound, StaleEpoch, InvalidField for the call as a whole.
    """

    def releases(answer: pb.CleanupResponse) -> list[pb.Release | KVTransferError]:
        return [from_status(result.error) if result.HasField("error") else result.release for result in answer.results]

    return Call("Cleanup", pb.CleanupRequest(worker=worker, items=items), releases)


def poll(rooms: Iterable[int], *, view: pb.TransferView = pb.TRANSFER_VIEW_FULL) -> Call[pb.PollResponse]:
    """The state of 1 to 256 rooms. Never removes anything. Raises InvalidField."""
    return Call("Poll", pb.PollRequest(rooms=rooms, view=view), _itself)


def abort(rooms: Iterable[int], message: str = "") -> Call[list[pb.RoomUpdate | KVTransferError]]:
    """Asks 1 to 1000 rooms to end. One result each, in order: the room, or why it was refused.

    A room that is not open yet can no longer be. `message`: the cause, up to 1024 characters. Raises InvalidField.
    """
    return Call("Abort", pb.AbortRequest(rooms=rooms, message=message), _updates)


def list_transfers(
    *,
    engine_id: str = "",
    polls: Iterable[pb.KVPoll] = (),
    request_id: str = "",
    view: pb.TransferView = pb.TRANSFER_VIEW_BASIC,
) -> Listing[pb.Transfer]:
    """Rooms of an engine, with one of the polls, of a request (all if empty); newest first, page by page."""
    request = pb.ListTransfersRequest(engine_id=engine_id, polls=polls, request_id=request_id, view=view)
    return Listing("ListTransfers", request, "transfers")


def watch(
    rooms: Iterable[int] = (),
    *,
    engine_id: str = "",
    after_revision: int = 0,
    view: pb.TransferView = pb.TRANSFER_VIEW_BASIC,
) -> pb.WatchRequest:
    """Follows at most 1000 rooms (all if none is named) in which an engine (any if empty) takes part.

    To be used as a context manager: it holds a stream open until then.
    """
    return pb.WatchRequest(rooms=rooms, engine_id=engine_id, after_revision=after_revision, view=view)


# --- the service ---


def get_server_info() -> Call[pb.GetServerInfoResponse]:
    """Version, limits, defaults and features of the service."""
    return Call("GetServerInfo", pb.GetServerInfoRequest(), _itself)


def require(*features: str) -> Call[None]:
    """Makes sure that the service has features which came after the first release, by their names in `features`.

    Raises FeatureMissing, which names those that it has not, its version and this client's.
    """

    def check(info: pb.GetServerInfoResponse) -> None:
        missing = [name for name in features if name not in info.features]
        if missing:
            raise FeatureMissing(missing, info.version, __version__)

    return Call("GetServerInfo", pb.GetServerInfoRequest(), check)


def seconds(duration: Duration) -> float:
    """A span of time on the wire."""
    return duration.seconds + duration.nanos / 1e9


def _itself(answer: Any) -> Any:
    return answer


def _updates(answer: pb.ReportResponse | pb.AbortResponse) -> list[pb.RoomUpdate | KVTransferError]:
    return [from_status(result.error) if result.HasField("error") else result.update for result in answer.results]
