"""A client as vectors see it: requests and answers in JSON."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from kvtransfer import v1 as pb
from kvtransfer.client import Client, Watch
from kvtransfer.errors import InvalidField, KVTransferError

Json = dict[str, Any]


def as_json(message: Message) -> Json:
    """ProtoJSON with default values."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


def error_as_json(error: KVTransferError) -> Json:
    found: Json = {"reason": error.reason, "message": str(error), "metadata": dict(error.metadata)}
    if isinstance(error, InvalidField):
        found["field"] = error.field
    return found


def call(client: Client, method: str, said: Json) -> Json:
    """Makes a unary call. Raises KVTransferError."""
    return _CALLS[method](client, said)


def watch(client: Client, said: Json) -> Watch:
    request = _request(pb.WatchRequest, said)
    return client.watch(
        request.rooms, engine_id=request.engine_id, after_revision=request.after_revision, view=request.view
    )


def _request(kind: type[Any], said: Json, *cannot: str) -> Any:
    """The message; `cannot` names fields that the client's method has no argument for."""
    assert not set(cannot) & set(said), f"the client cannot say all of {said}"
    return json_format.ParseDict(said, kind())


def _register_worker(client: Client, said: Json) -> Json:
    return as_json(client.register_worker(_request(pb.RegisterWorkerRequest, said)))


def _heartbeat(client: Client, said: Json) -> Json:
    request = _request(pb.HeartbeatRequest, said)
    draining = request.draining if request.HasField("draining") else None
    lease_ttl = Duration()
    lease_ttl.FromNanoseconds(round(client.heartbeat(request.worker, draining=draining) * 1e9))
    return as_json(pb.HeartbeatResponse(lease_ttl=lease_ttl))


def _deregister_worker(client: Client, said: Json) -> Json:
    request = _request(pb.DeregisterWorkerRequest, said)
    client.deregister_worker(request.worker, drained=request.drained)
    return {}


def _get_engine(client: Client, said: Json) -> Json:
    request = _request(pb.GetEngineRequest, said)
    return {"engine": as_json(client.get_engine(request.engine_id, view=request.view))}


def _list_engines(client: Client, said: Json) -> Json:
    request = _request(pb.ListEnginesRequest, said, "page_size", "page_token")
    return {"engines": _all(client.list_engines(role=request.role, model=request.model))}


def _get_links(client: Client, said: Json) -> Json:
    request = _request(pb.GetLinksRequest, said)
    answer = client.get_links(
        request.engine_id,
        request.peer_engine_id,
        dp_rank=request.dp_rank,
        peer_dp_rank=request.peer_dp_rank,
        worker_id=request.worker_id,
    )
    return as_json(answer)


def _handshake(client: Client, said: Json) -> Json:
    request = _request(pb.HandshakeRequest, said)
    return as_json(client.handshake(request.worker, request.join))


def _report(client: Client, said: Json) -> Json:
    request = _request(pb.ReportRequest, said)
    return _results("update", client.report(request.worker, request.progress))


def _cleanup(client: Client, said: Json) -> Json:
    request = _request(pb.CleanupRequest, said)
    return _results("release", client.cleanup(request.worker, request.items))


def _poll(client: Client, said: Json) -> Json:
    request = _request(pb.PollRequest, said)
    return as_json(client.poll(request.rooms, view=request.view))


def _abort(client: Client, said: Json) -> Json:
    request = _request(pb.AbortRequest, said)
    return _results("update", client.abort(request.rooms, request.message))


def _list_transfers(client: Client, said: Json) -> Json:
    request = _request(pb.ListTransfersRequest, said, "page_size", "page_token")
    found = client.list_transfers(
        engine_id=request.engine_id, polls=request.polls, request_id=request.request_id, view=request.view
    )
    return {"transfers": _all(found)}


def _get_server_info(client: Client, said: Json) -> Json:
    _request(pb.GetServerInfoRequest, said)
    return as_json(client.get_server_info())


def _all(messages: Iterator[Message]) -> list[Json]:
    return [as_json(message) for message in messages]


def _results(name: str, results: list[Any]) -> Json:
    entries = [
        {"error": error_as_json(one)} if isinstance(one, KVTransferError) else {name: as_json(one)} for one in results
    ]
    return {"results": entries}


_CALLS: Mapping[str, Callable[[Client, Json], Json]] = {
    "RegisterWorker": _register_worker,
    "Heartbeat": _heartbeat,
    "DeregisterWorker": _deregister_worker,
    "GetEngine": _get_engine,
    "ListEngines": _list_engines,
    "GetLinks": _get_links,
    "Handshake": _handshake,
    "Report": _report,
    "Cleanup": _cleanup,
    "Poll": _poll,
    "Abort": _abort,
    "ListTransfers": _list_transfers,
    "GetServerInfo": _get_server_info,
}
