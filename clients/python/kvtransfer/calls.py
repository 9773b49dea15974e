"""The calls of the API, as both clients make them: what is sent, and what is made of the answer."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.duration_pb2 import Duration

from kvtransfer import v1 as pb
from kvtransfer.errors import KVTransferError, from_status
from kvtransfer.v1 import service_pb2

SERVICE = service_pb2.DESCRIPTOR.services_by_name["KVTransfer"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call that is to be made."""

    method: str
    request: Any
    read: Callable[[Any], T]
    """Makes the result of the answer."""
    wait_for_ready: bool = False
    """Whether to wait for the service to be there, within the deadline."""


def channel_options() -> list[tuple[str, Any]]:
    """Retries where the API says that a repeat is harmless; pings, so that a dead connection is noticed."""
    repeatable = (MethodOptions.NO_SIDE_EFFECTS, MethodOptions.IDEMPOTENT)
    names = [
        {"service": SERVICE.full_name, "method": method.name}
        for method in SERVICE.methods
        if method.GetOptions().idempotency_level in repeatable
    ]
    policy = {
        "maxAttempts": 5,  # gRPC allows no more
        "initialBackoff": "0.1s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    return [
        ("grpc.enable_retries", 1),
        ("grpc.service_config", json.dumps({"methodConfig": [{"name": names, "retryPolicy": policy}]})),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
    ]


# --- workers ---


def register_worker(request: pb.RegisterWorkerRequest) -> Call[pb.RegisterWorkerResponse]:
    return Call("RegisterWorker", request, _itself, wait_for_ready=True)


def heartbeat(worker: pb.WorkerRef, draining: bool | None) -> Call[float]:
    request = pb.HeartbeatRequest(worker=worker, draining=draining)
    return Call("Heartbeat", request, lambda answer: seconds(answer.lease_ttl))


def deregister_worker(worker: pb.WorkerRef, drained: bool) -> Call[None]:
    request = pb.DeregisterWorkerRequest(worker=worker, drained=drained)
    return Call("DeregisterWorker", request, lambda _answer: None)


def get_engine(engine_id: str, view: pb.WorkerView) -> Call[pb.Engine]:
    return Call("GetEngine", pb.GetEngineRequest(engine_id=engine_id, view=view), lambda answer: answer.engine)


def get_links(
    engine_id: str, peer_engine_id: str, dp_rank: int, peer_dp_rank: int, worker_id: str
) -> Call[pb.GetLinksResponse]:
    request = pb.GetLinksRequest(
        engine_id=engine_id,
        dp_rank=dp_rank,
        peer_engine_id=peer_engine_id,
        peer_dp_rank=peer_dp_rank,
        worker_id=worker_id,
    )
    return Call("GetLinks", request, _itself)


def list_engines(request: pb.ListEnginesRequest) -> Call[pb.ListEnginesResponse]:
    return Call("ListEngines", request, _itself)


# --- rooms ---


def handshake(worker: pb.WorkerRef, join: pb.Join) -> Call[pb.HandshakeResponse]:
    return Call("Handshake", pb.HandshakeRequest(worker=worker, join=join), _itself)


def report(worker: pb.WorkerRef, progress: Iterable[pb.Progress]) -> Call[list[pb.RoomUpdate | KVTransferError]]:
    return Call("Report", pb.ReportRequest(worker=worker, progress=progress), _updates)


def cleanup(worker: pb.WorkerRef, items: Iterable[pb.CleanupItem]) -> Call[list[pb.Release | KVTransferError]]:
    def releases(answer: pb.CleanupResponse) -> list[pb.Release | KVTransferError]:
        return [from_status(result.error) if result.HasField("error") else result.release for result in answer.results]

    return Call("Cleanup", pb.CleanupRequest(worker=worker, items=items), releases)


def poll(rooms: Iterable[int], view: pb.TransferView) -> Call[pb.PollResponse]:
    return Call("Poll", pb.PollRequest(rooms=rooms, view=view), _itself)


def abort(rooms: Iterable[int], message: str) -> Call[list[pb.RoomUpdate | KVTransferError]]:
    return Call("Abort", pb.AbortRequest(rooms=rooms, message=message), _updates)


def list_transfers(request: pb.ListTransfersRequest) -> Call[pb.ListTransfersResponse]:
    return Call("ListTransfers", request, _itself)


def get_server_info() -> Call[pb.GetServerInfoResponse]:
    return Call("GetServerInfo", pb.GetServerInfoRequest(), _itself)


def seconds(duration: Duration) -> float:
    """A span of time on the wire."""
    return duration.seconds + duration.nanos / 1e9


def _itself(answer: Any) -> Any:
    return answer


def _updates(answer: pb.ReportResponse | pb.AbortResponse) -> list[pb.RoomUpdate | KVTransferError]:
    return [from_status(result.error) if result.HasField("error") else result.update for result in answer.results]
