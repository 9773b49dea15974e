"""Bad input: each a typed error that names field and value, and leaves the service as it was."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from kvtransfer import calls
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import (
    EngineMismatch,
    EngineNotFound,
    InvalidField,
    JoinConflict,
    LayoutMismatch,
    LimitReached,
    NotAParticipant,
    RoomNotFound,
    RoomReused,
)
from kvtransfer.v1 import service_pb2_grpc

from transport.blocking import Connect
from transport.running import RunningServer
from transport.worker import Worker, destination, layout, new_join, pair, registration


def status_of(call: Any, request: Any) -> tuple[grpc.StatusCode, status_pb2.Status]:
    """How a call ended, on the wire."""
    with pytest.raises(grpc.RpcError) as failed:
        call(request, timeout=10)
    trailers = dict(failed.value.trailing_metadata())  # type: ignore[attr-defined]
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert failed.value.details() == status.message  # type: ignore[attr-defined]
    return failed.value.code(), status  # type: ignore[attr-defined]


def test_a_refusal_carries_reason_domain_metadata_and_the_field(server: RunningServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        stub = service_pb2_grpc.KVTransferStub(channel)
        code, status = status_of(stub.GetEngine, pb.GetEngineRequest(engine_id="P"))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert status.message == "INVALID_FIELD: engine_id must be 1 to 63 of a-z, 0-9 and '-', got 'P'"
    info, violations = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(violations)
    assert (info.reason, info.domain) == ("INVALID_FIELD", "kvtransfer.v1")
    assert dict(info.metadata) == {"field": "engine_id", "value": "'P'"}
    assert violations.field_violations[0].field == "engine_id"


@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        ({"role": pb.ROLE_UNSPECIFIED}, "role", "0"),
        ({"role": 9}, "role", "9"),
        ({"topology": None}, "topology", None),
        ({"rank": None}, "rank", None),
        ({"layout": None}, "layout", None),
        ({"rank": pb.Rank(tp_rank=1)}, "rank.tp_rank", "1"),
        ({"rank": pb.Rank(dp_rank=-1)}, "rank.dp_rank", "-1"),
        ({"topology": pb.Topology(tp_size=0, pp_size=1, dp_size=1)}, "topology.tp_size", "0"),
        ({"instance_id": "me"}, "instance_id", "'me'"),
        ({"nixl_metadata": b"x" * (128 * 1024 + 1)}, "nixl_metadata", "131073"),
        ({"lease_ttl": {"seconds": -1}}, "lease_ttl", "'-1 s'"),
        ({"lease_ttl": {"seconds": 10**12}}, "lease_ttl", "'1e+12 s'"),
        ({"labels": {"k": "v" * 257}}, "labels", "1"),
        ({"layout": layout(model="")}, "layout.model", "''"),
        ({"layout": layout(page_tokens=0)}, "layout.groups[kv].page_tokens", "0"),
        ({"layout": layout(dtype="")}, "layout.groups[kv].parts[k].dtype", "''"),
        ({"layout": layout(pool=0)}, "layout.groups[kv].parts[k].regions[0].item_count", "0"),
    ],
)
def test_a_bad_registration(client: Client, said: dict[str, Any], field: str, value: str | None) -> None:
    with pytest.raises(InvalidField) as refused:
        client.register_worker(registration("p", **({"role": pb.ROLE_PREFILL} | said)))
    assert refused.value.field == field
    assert refused.value.metadata.get("value") == value
    assert list(client.list_engines()) == []


@pytest.mark.parametrize(
    ("holder", "name", "field"),
    [
        (lambda said: said.groups[0], "kind", "layout.groups[kv].kind"),
        (lambda said: said.groups[0].parts[1], "order", "layout.groups[kv].parts[v].order"),
        (lambda said: said.groups[0].parts[1].regions[1], "memory", "layout.groups[kv].parts[v].regions[1].memory"),
        (lambda said: said.scratch, "memory", "layout.scratch.memory"),
    ],
)
def test_enums_of_a_layout_are_known_ones(
    client: Client, holder: Callable[[pb.Layout], Any], name: str, field: str
) -> None:
    said = registration("p", pb.ROLE_PREFILL)
    for unknown in (0, 77):
        setattr(holder(said.layout), name, unknown)
        with pytest.raises(InvalidField) as refused:
            client.register_worker(said)
        assert (refused.value.field, refused.value.metadata["value"]) == (field, str(unknown))


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"role": pb.ROLE_DECODE}, "role"),
        ({"tp": 3}, "topology"),
        ({"layout": layout(model="n")}, "layout"),
        ({"layout": layout(page_tokens=32)}, "layout"),
        ({"layout": layout(dtype="bfloat16")}, "layout"),
    ],
)
def test_a_rank_unlike_its_engine(client: Client, said: dict[str, Any], field: str) -> None:
    Worker(client, "p", pb.ROLE_PREFILL, 0, 2)
    with pytest.raises(EngineMismatch) as refused:
        client.register_worker(registration("p", **({"role": pb.ROLE_PREFILL, "rank": 1, "tp": 2} | said)))
    assert refused.value.metadata["field"] == field


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (layout(model="n"), "layout.model"),
        (layout(page_tokens=32), "layout.groups[kv].page_tokens"),
        (layout(dtype="bfloat16"), "layout.groups[kv].parts[k].dtype"),
        (layout(heads=8), "layout.groups[kv].parts[k].total_heads"),
    ],
)
def test_engines_that_do_not_fit(client: Client, other: pb.Layout, field: str) -> None:
    Worker(client, "p", pb.ROLE_PREFILL)
    Worker(client, "d", pb.ROLE_DECODE, layout=other)
    with pytest.raises(LayoutMismatch, match=r"prefill has .*, decode has ") as refused:
        client.get_links("p", "d")
    assert refused.value.metadata["field"] == field


def test_engines_of_unequal_size_are_refused_by_name(client: Client) -> None:
    Worker(client, "p", pb.ROLE_PREFILL)
    for rank in range(2):
        Worker(client, "d", pb.ROLE_DECODE, rank, 2)
    with pytest.raises(LayoutMismatch, match=r"topology\.tp_size: prefill has 1, decode has 2"):
        client.get_links("p", "d")


@pytest.mark.parametrize(
    ("said", "field", "value"),
    [
        ({"room": 0}, "join.room", "0"),
        ({"room": -3}, "join.room", "-3"),
        ({"join_id": 0}, "join.join_id", "0"),
        ({"peer_engine_id": ""}, "join.peer_engine_id", None),
        ({"peer_dp_rank": 1}, "join.peer_dp_rank", "1"),
        ({"request_id": "x" * 129}, "join.request_id", repr("x" * 129)[:100]),
        ({"timeouts": {"total": {"seconds": -5}}}, "join.timeouts.total", "'-5 s'"),
        ({"timeouts": {"no_progress": {}}}, "join.timeouts.no_progress", "'0 s'"),
        ({"destination": destination(0, [])}, "join.destination.tokens", "0"),
        ({"destination": destination(20, [3])}, "join.destination.groups[kv].indices", "1"),
        ({"destination": destination(20, [3, 4, 5])}, "join.destination.groups[kv].indices", "3"),
        ({"destination": destination(20, [3, 64])}, "join.destination.groups[kv].indices", "64"),
        ({"destination": destination(20, [3, -1])}, "join.destination.groups[kv].indices", "-1"),
        ({"destination": destination(20, [3, 3])}, "join.destination.groups[kv].indices", "3"),
        ({"destination": destination(20, [3, 9], slot=8)}, "join.destination.groups[aux].indices", "8"),
        ({"destination": destination(40, [3, 9], prefix_tokens=8)}, "join.destination.prefix_tokens", "8"),
    ],
)
def test_a_bad_join(client: Client, said: dict[str, Any], field: str, value: str | None) -> None:
    [(_, receiver)] = pair(client)
    join = pb.Join(**({"room": 7, "join_id": 1, "peer_engine_id": "p"} | said))
    with pytest.raises(InvalidField) as refused:
        receiver.join(join)
    assert (refused.value.field, refused.value.metadata.get("value")) == (field, value)
    assert list(client.list_transfers()) == []


def test_a_prefill_worker_gives_no_destination(client: Client) -> None:
    [(sender, _)] = pair(client)
    with pytest.raises(InvalidField) as refused:
        sender.join(new_join(7, destination=destination(20, [3, 9])))
    assert refused.value.field == "join.destination"


def test_joins_that_come_in_anothers_way(client: Client) -> None:
    [(sender, receiver)] = pair(client)
    other = Worker(client, "e", pb.ROLE_DECODE)
    join = new_join(7, peer_engine_id="p", destination=destination(20, [3, 9]))
    receiver.join(join)
    receiver.join(join)  # a repeat
    with pytest.raises(RoomReused):
        receiver.join(new_join(7, peer_engine_id="p"))
    with pytest.raises(RoomReused):
        other.join(new_join(7, peer_engine_id="p"))
    join.destination.groups[0].indices[0] = 5
    with pytest.raises(JoinConflict):
        receiver.join(join)
    with pytest.raises(EngineNotFound):
        receiver.join(new_join(8, peer_engine_id="x"))
    assert isinstance(sender.report(new_join(7), pb.KV_POLL_TRANSFERRING), NotAParticipant)
    assert isinstance(sender.report(new_join(9), pb.KV_POLL_TRANSFERRING), RoomNotFound)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"poll": pb.KV_POLL_BOOTSTRAPPING}, "progress.poll"),
        ({"poll": 9}, "progress.poll"),
        ({"poll": pb.KV_POLL_TRANSFERRING, "transferred_bytes": -1}, "progress.transferred_bytes"),
        ({"poll": pb.KV_POLL_FAILED, "failure": pb.Failure()}, "progress.failure.reason"),
        ({"poll": pb.KV_POLL_TRANSFERRING, "room": 0}, "room"),
    ],
)
def test_bad_progress(client: Client, said: dict[str, Any], field: str) -> None:
    [(sender, _)] = pair(client)
    join = new_join(7)
    sender.join(join)
    refused = sender.report(join, **said)
    assert isinstance(refused, InvalidField)
    assert refused.field == field


def test_batches_and_lists_are_bounded(client: Client) -> None:
    [(sender, _)] = pair(client)
    bad_calls = {
        "progress": lambda: client.report(sender.ref, [pb.Progress(room=1)] * 1001),
        "items": lambda: client.cleanup(sender.ref, [pb.CleanupItem(room=1)] * 1001),
        "rooms": lambda: client.abort(range(1, 1002)),
        "message": lambda: client.abort([1], "x" * 1025),
        "page_size": lambda: client._call(_listing(page_size=-1)),
        "page_token": lambda: client._call(_listing(page_token="made up")),
        "after_revision": lambda: next(client.watch(after_revision=-1)),
    }
    for field, call in bad_calls.items():
        with pytest.raises(InvalidField) as refused:
            call()
        assert refused.value.field == field
    for call in (
        lambda: client.abort([]),
        lambda: client.register_worker(registration("x", pb.ROLE_DECODE, rooms=[pb.RoomState(room=1)] * 16385)),
    ):
        with pytest.raises(InvalidField) as refused:
            call()
        assert refused.value.field == "rooms"
    for rooms in ([], range(1, 258), [0], [-1]):
        with pytest.raises(InvalidField) as refused:
            client.poll(rooms)
        assert refused.value.field == "rooms"


def _listing(**said: Any) -> Any:
    return calls.Call("ListTransfers", pb.ListTransfersRequest(**said), lambda answer: answer)


def test_a_page_token_is_good_for_the_filters_it_came_with(client: Client) -> None:
    client.abort(range(1, 4))
    first = client._call(_listing(page_size=2))
    assert [transfer.room for transfer in first.transfers] == [3, 2]
    second = client._call(_listing(page_size=2, page_token=first.next_page_token))
    assert [transfer.room for transfer in second.transfers] == [1]
    assert (second.next_page_token, second.revision) == ("", first.revision)
    with pytest.raises(InvalidField) as refused:
        client._call(_listing(page_size=2, page_token=first.next_page_token, engine_id="p"))
    assert refused.value.field == "page_token"


def test_views_are_known_ones(client: Client) -> None:
    for call in (lambda: client.poll([1], view=9), lambda: client.get_engine("p", view=9)):  # type: ignore[arg-type]
        with pytest.raises(InvalidField) as refused:
            call()
        assert (refused.value.field, refused.value.metadata["value"]) == ("view", "9")


def test_full_tables_say_so(connect: Connect) -> None:
    settings: dict[str, Any] = {"max_open_rooms": 2, "max_workers": 2, "max_watches": 1, "drain_grace": 0.0}
    with RunningServer(**settings) as server, connect(server.target) as client:
        [(_, receiver)] = pair(client)
        for room in (1, 2):
            receiver.join(new_join(room, peer_engine_id="p"))
        with pytest.raises(LimitReached) as refused:
            receiver.join(new_join(3, peer_engine_id="p"))
        assert refused.value.metadata["limit"] == "max_open_rooms"
        with pytest.raises(LimitReached) as refused:
            Worker(client, "e", pb.ROLE_DECODE)
        assert refused.value.metadata["limit"] == "max_workers"
        with client.watch() as watch:
            next(watch)
            with client.watch() as second, pytest.raises(LimitReached) as refused:
                next(second)
            assert refused.value.metadata["limit"] == "max_watches"


def test_what_fails_with_much_to_say_is_heard(client: Client) -> None:
    [(sender, _)] = pair(client)
    join = new_join(7)
    sender.join(join)
    said = pb.Failure(reason=pb.FAILURE_REASON_WORKER_REPORTED, message="x" * 100_000, worker_id="y" * 100_000)
    update = sender.report(join, pb.KV_POLL_FAILED, failure=said)
    assert (len(update.failure.message), len(update.failure.worker_id)) == (1024, 256)
