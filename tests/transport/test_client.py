"""The client: errors by reason, deadlines, retries."""

import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NoReturn

import grpc
import pytest
from google.protobuf.any_pb2 import Any as Packed
from google.rpc import error_details_pb2, status_pb2
from kvtransfer import calls, errors
from kvtransfer import v1 as pb
from kvtransfer.errors import (
    DeadlineExceeded,
    InvalidField,
    KVTransferError,
    PermissionDenied,
    ServiceUnavailable,
    from_status,
)
from kvtransfer.v1 import service_pb2

from kvservice.domain.errors import DomainError
from kvservice.domain.errors import InvalidField as BadField
from kvservice.transport.statuses import CODES, internal, status_of
from transport.blocking import Connect
from transport.running import RunningServer
from transport.worker import registration

REASONS = [name.removeprefix("ERROR_REASON_") for name in pb.ErrorReason.keys()[1:]]
OF_THE_DOMAIN = {kind.reason: kind for kind in DomainError.__subclasses__()}


def exported() -> dict[str, type[KVTransferError]]:
    """Every error class by name."""
    return {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, KVTransferError)
    }


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_one_class_of_its_name(reason: str) -> None:
    info = error_details_pb2.ErrorInfo(reason=reason, domain="kvtransfer.v1", metadata={"room": "7"})
    packed = Packed()
    packed.Pack(info)
    error = from_status(status_pb2.Status(message=f"{reason}: what happened", details=[packed]))
    assert error.reason == reason
    assert type(error).__name__.lower() == reason.replace("_", "").lower()
    assert error.metadata == {"room": "7"}
    assert "what happened" in str(error)


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason in OF_THE_DOMAIN])
def test_what_the_service_refuses_comes_back_as_the_same(reason: str) -> None:
    refused = BadField("join.room", "must not be so", 0) if reason == "INVALID_FIELD" else OF_THE_DOMAIN[reason]("why")
    status = status_of(refused)
    assert status.message.startswith(f"{reason}: ")
    assert from_status(status).reason == reason
    documented = pb.ErrorReason.DESCRIPTOR.values_by_name[f"ERROR_REASON_{reason}"]
    assert documented.number > 0


def test_every_reason_of_the_domain_has_a_status_and_is_on_the_wire() -> None:
    assert set(CODES) == set(OF_THE_DOMAIN)
    assert set(CODES) <= set(REASONS)


def test_a_bad_field_keeps_its_name_and_value() -> None:
    error = from_status(status_of(BadField("join.room", "must be in [1, 2^63)", 0)))
    assert isinstance(error, InvalidField)
    assert isinstance(error, ValueError)
    assert (error.field, error.metadata["value"]) == ("join.room", "0")
    assert str(error) == "join.room: must be in [1, 2^63), got 0"


def test_a_reason_of_a_newer_service_or_of_somebody_else_is_the_root() -> None:
    for reason, domain in (("FROM_THE_FUTURE", "kvtransfer.v1"), ("STALE_EPOCH", "example.com")):
        packed = Packed()
        packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=domain))
        error = from_status(status_pb2.Status(message="no", details=[packed]))
        assert type(error) is KVTransferError
        assert str(error) == "no"


def test_a_fault_says_nothing_of_itself() -> None:
    assert from_status(internal()).reason == "INTERNAL"


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = [line.split()[1] for line in (errors.__doc__ or "").splitlines() if line.startswith(("├──", "└──"))]
    assert ["KVTransferError", *drawn] == list(exported())


def test_nobody_there_is_unavailable(connect: Connect) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with connect(f"127.0.0.1:{unused.getsockname()[1]}", timeout=5) as client, pytest.raises(ServiceUnavailable):
            client.get_server_info()


def test_registering_waits_for_the_service_within_the_deadline(connect: Connect) -> None:
    with RunningServer(drain_grace=0.0) as former:
        port = former.port
    with connect(f"127.0.0.1:{port}", timeout=20) as client:
        granted: list[Any] = []
        waiting = threading.Thread(
            target=lambda: granted.append(client.register_worker(registration("p", pb.ROLE_PREFILL)))
        )
        waiting.start()
        with RunningServer(port=port, drain_grace=0.0):
            waiting.join(20)
        assert granted[0].worker.worker_id == "p/dp0/pp0/tp0"


def test_a_call_without_an_answer_ends_at_its_deadline(connect: Connect) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with connect(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.3) as client, pytest.raises(DeadlineExceeded):
            client.register_worker(registration("p", pb.ROLE_PREFILL))


def test_calls_are_repeated_exactly_where_the_api_says_so() -> None:
    config = json.loads(dict(calls.channel_options())["grpc.service_config"])
    [method_config] = config["methodConfig"]
    repeated = {name["method"] for name in method_config["name"]}
    service = service_pb2.DESCRIPTOR.services_by_name["KVTransfer"]
    declared = {method.name for method in service.methods if method.GetOptions().HasField("idempotency_level")}
    assert repeated == declared
    assert "Session" not in repeated
    assert {name["service"] for name in method_config["name"]} == {"kvtransfer.v1.KVTransfer"}


@contextmanager
def stub_server(answer: Callable[[grpc.ServicerContext], bytes]) -> Iterator[str]:
    """Something that answers GetServerInfo in the service's place."""
    server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, context: answer(context))
    methods = {"GetServerInfo": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("kvtransfer.v1.KVTransfer", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_call_survives_a_service_that_is_away_for_a_moment(connect: Connect) -> None:
    tries = itertools.count(1)

    def answer(context: grpc.ServicerContext) -> bytes:
        tried = next(tries)
        if tried < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return pb.GetServerInfoResponse(version=f"after {tried}").SerializeToString()

    with stub_server(answer) as target, connect(target) as client:
        assert client.get_server_info().version == "after 3"


def test_closing_the_client_ends_a_call_under_way(connect: Connect) -> None:
    asked, over = threading.Event(), threading.Event()

    def answer(_context: grpc.ServicerContext) -> bytes:
        asked.set()
        over.wait(10)
        return b""

    def close() -> None:
        asked.wait(10)
        client.close()

    with stub_server(answer) as target:
        client = connect(target)
        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises(KVTransferError, match="CANCELLED"):
            client.get_server_info()
        closer.join()
        over.set()


def test_refusals_of_a_gateway_have_classes_too(connect: Connect) -> None:
    def answer(context: grpc.ServicerContext) -> NoReturn:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "the mesh says no")

    refused = pytest.raises(PermissionDenied, match="the mesh says no")
    with stub_server(answer) as target, connect(target) as client, refused:
        client.get_server_info()
