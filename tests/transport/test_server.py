"""The server as a process sees it: health, reflection, garbage, faults, draining, tables that empty."""

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import Draining, Internal, LimitReached, ServiceUnavailable
from kvtransfer.v1 import service_pb2_grpc

from kvservice.transport.server import AddressTaken
from transport.blocking import Connect
from transport.running import RunningServer
from transport.worker import Stream, Worker, completion, destination, new_join, pair, registration

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE = "kvtransfer.v1.KVTransfer"


@pytest.fixture
def connect() -> Connect:
    """The client is but a tool here."""
    return Client


def raw(channel: grpc.Channel, method: str, payload: bytes) -> bytes:
    """A call of bytes."""
    answer: bytes = channel.unary_unary(f"/{SERVICE}/{method}")(payload, timeout=10)
    return answer


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"GET / HTTP/1.1"])
def test_an_undecodable_message_is_an_internal_error_without_details(
    server: RunningServer, client: Client, payload: bytes
) -> None:
    with grpc.insecure_channel(server.target) as channel:
        for method in ("RegisterWorker", "Poll", "Handshake"):
            with pytest.raises(grpc.RpcError) as failed:
                raw(channel, method, payload)
            assert failed.value.code() == grpc.StatusCode.INTERNAL  # type: ignore[attr-defined]
            assert "parse" not in failed.value.details().lower()  # type: ignore[attr-defined]
        streams = (
            channel.unary_stream(f"/{SERVICE}/Watch")(payload, timeout=10),
            channel.stream_stream(f"/{SERVICE}/Session")(iter([payload]), timeout=10),
        )
        for stream in streams:
            with pytest.raises(grpc.RpcError) as failed:
                next(stream)
            assert failed.value.code() == grpc.StatusCode.INTERNAL  # type: ignore[attr-defined]
    client.get_server_info()


def test_a_worker_that_goes_while_it_does_not_read_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    taken = 0

    def batches(ref: pb.WorkerRef) -> Iterator[pb.SessionRequest]:
        """Each is answered with as many errors."""
        nonlocal taken
        yield pb.SessionRequest(worker=ref, batch=1)
        for batch in itertools.count(2):
            taken = batch
            yield pb.SessionRequest(batch=batch, progress=[pb.Progress(room=1, join_id=1, poll=4)] * 1000)

    with RunningServer(drain_grace=0.0, reconnect_grace=0.1) as server, Client(server.target) as client:
        ref = client.register_worker(registration("p", pb.ROLE_PREFILL)).worker
        with grpc.insecure_channel(server.target) as channel:
            call = service_pb2_grpc.KVTransferStub(channel).Session(batches(ref))
            before = -1
            while before != taken:  # until the service waits to be read
                before = taken
                time.sleep(0.2)
            call.cancel()
        while server.server.service._bells:
            time.sleep(0.01)
    assert [record.message for record in caplog.records] == []


def test_an_undecodable_batch_ends_only_its_session(server: RunningServer, client: Client) -> None:
    [(sender, receiver)] = pair(client)
    first = pb.SessionRequest(worker=receiver.ref, batch=1).SerializeToString()
    with Stream(server.target, sender.ref) as stream, grpc.insecure_channel(server.target) as channel:
        stream.wait_applied(stream.send())
        broken = channel.stream_stream(f"/{SERVICE}/Session")(iter([first, b"\xff"]), timeout=10)
        with pytest.raises(grpc.RpcError) as failed:
            list(broken)
        assert failed.value.code() == grpc.StatusCode.INTERNAL  # type: ignore[attr-defined]
        stream.wait_applied(stream.send())


def test_garbage_on_the_port_ends_only_its_connection(server: RunningServer, client: Client) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    with Stream(server.target, worker.ref) as stream:
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(range(256)) * 100,
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 999,
        ):
            with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
                connection.sendall(garbage)
                try:
                    while connection.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
            stream.wait_applied(stream.send())
    client.heartbeat(worker.ref)


def test_a_fault_is_logged_and_tells_the_caller_nothing(
    server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> NoReturn:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(server.server.service.control, "abort", fail)
    with pytest.raises(Internal) as failed:
        client.abort([1])
    assert "secret" not in str(failed.value)
    assert "the secret of the house" in caplog.text
    assert "Traceback" in caplog.text
    client.get_server_info()


def test_a_method_that_does_not_exist_is_unimplemented(server: RunningServer) -> None:
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError) as failed:
        raw(channel, "Explode", b"")
    assert failed.value.code() == grpc.StatusCode.UNIMPLEMENTED  # type: ignore[attr-defined]


def test_a_message_that_is_too_large_is_refused_either_way(server: RunningServer, client: Client) -> None:
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError) as failed:
        raw(channel, "Poll", b"x" * (5 << 20))
    assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]

    labels = {f"{number:063}": "x" * 256 for number in range(16)}
    for rank in range(850):
        Worker(client, "p", pb.ROLE_PREFILL, rank, 850, labels=labels)
    with pytest.raises(LimitReached, match="4194304 are allowed"):
        client.get_engine("p")


def test_health_and_its_end(server: RunningServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE):
            assert health.Check(health_pb2.HealthCheckRequest(service=name), timeout=10).status == SERVING
        watching = health.Watch(health_pb2.HealthCheckRequest(), timeout=30)
        assert next(watching).status == SERVING
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert next(watching).status == NOT_SERVING
        stopping.join()


def test_reflection_explains_the_service_and_the_details_of_its_errors(server: RunningServer) -> None:
    with grpc.insecure_channel(server.target) as channel:
        described = ProtoReflectionDescriptorDatabase(channel)
        assert {SERVICE, "grpc.health.v1.Health"} <= set(described.get_services())
        pool = DescriptorPool(described)
        assert len(pool.FindServiceByName(SERVICE).methods) == 15
        for name in ("ErrorInfo", "BadRequest"):
            assert pool.FindMessageTypeByName(f"google.rpc.{name}").fields


def test_a_taken_port_is_refused(server: RunningServer) -> None:
    second = RunningServer(port=server.port)
    with pytest.raises(AddressTaken, match=f"cannot listen on 127.0.0.1:{server.port}"):
        second.__enter__()
    second.close()


def test_draining_ends_watches_takes_nothing_new_and_lets_open_rooms_end() -> None:
    with RunningServer(drain_grace=20.0) as server, Client(server.target, timeout=2) as client:
        [(sender, receiver)] = pair(client)
        joined, joining = new_join(7), new_join(7, peer_engine_id="p", destination=destination(20, [3, 9]))
        with Stream(server.target, sender.ref) as stream, client.watch() as watch:
            receiver.join(joining)
            stream.send(joins=[joined])
            [offers] = stream.wait(lambda s: s.all("offers"))
            next(watch)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            with pytest.raises(Draining):
                watch._next()
            with pytest.raises(Draining):
                receiver.join(new_join(8, peer_engine_id="p"))
            with pytest.raises(Draining):
                Worker(client, "x", pb.ROLE_PREFILL)
            done = completion(7, sender.worker_id, offers.offers[0].receivers[0], joined.join_id, 2)
            said = {"room": 7, "join_id": joined.join_id}
            stream.send(progress=[pb.Progress(**said, poll=pb.KV_POLL_SUCCESS, completions=[done])])
            last = pb.Progress(room=7, join_id=joining.join_id, poll=pb.KV_POLL_SUCCESS, completions=[done])
            assert receiver.cleanup(joining, last=last).state == pb.Release.STATE_FREE
            stream.send(cleanups=[pb.CleanupItem(**said, drained=True)])
            begun = time.monotonic()
            stopping.join()
            assert time.monotonic() - begun < 10  # once no room is open nobody waits
            assert isinstance(stream.wait_end(), Draining)
        with pytest.raises((ServiceUnavailable, Draining)):
            client.get_server_info()


def test_every_table_is_empty_after_retention() -> None:
    with RunningServer(retention=0.2, drain_grace=0.0) as server, Client(server.target) as client:
        workers = pair(client, tp=2)
        for room in range(1, 11):
            joins = []
            for sender, receiver in workers:
                joins.append((new_join(room), new_join(room, peer_engine_id="p", destination=destination(20, [3, 9]))))
                sender.join(joins[-1][0])
                receiver.join(joins[-1][1])
            for (sender, receiver), (joined, joining) in zip(workers, joins, strict=True):
                [offer] = sender.join(joined).offers
                done = completion(room, sender.worker_id, offer.receivers[0], joined.join_id, 2)
                sender.report(joined, pb.KV_POLL_SUCCESS, completions=[done])
                receiver.report(joining, pb.KV_POLL_SUCCESS, completions=[done])
            for (sender, receiver), (joined, joining) in zip(workers, joins, strict=True):
                receiver.cleanup(joining)
                sender.cleanup(joined)
        client.abort([99])
        for sender, receiver in workers:
            client.deregister_worker(sender.ref, drained=True)
            client.deregister_worker(receiver.ref, drained=True)
        give_up = time.monotonic() + 10
        while any(server.entries()) and time.monotonic() < give_up:
            client.get_server_info()
        assert not any(server.entries()), server.sizes()
