"""A Go worker and a Python peer, whichever side is whose: a whole life, aborts, a lapsed lease, a new process."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kvtransfer import Client, KVPoll
from kvtransfer import v1 as pb

from tests.e2e.workers import Setup, Worker, met, same, wait_for
from tests.go.worker import GoSetup, GoWorker
from tests.transport.command import Command
from tests.worker.pools import Bytes, build, copy_by_token

MODULE = Path(__file__).parents[2] / "clients" / "go"
LEASE = 3.0
"""Seconds that the Go worker's lease lasts."""
TOKENS, SLOTS = 40, {"aux": 2}
SOURCES, TARGETS, SOURCE_SLOTS = {"kv": [0, 1, 2]}, {"kv": [3, 5, 4]}, {"aux": 1}
SEEDS = {"prefill": 1, "decode": 50}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("there is no Go toolchain")
    built = tmp_path_factory.mktemp("go") / "driven"
    subprocess.run([go, "build", "-o", built, "./internal/driven"], cwd=MODULE, check=True, timeout=300)
    return str(built)


@pytest.fixture
def service() -> Iterator[str]:
    """One that waits for nobody long; where it listens."""
    with Command("--port", "0", "--reconnect-grace", "0.5", "--vote", "1", "--retention", "1") as running:
        yield running.target


@pytest.fixture(params=["prefill", "decode"])
def pair(request: pytest.FixtureRequest, service: str, program: str) -> Iterator[tuple[Worker, Worker]]:
    """A sender and a receiver that have met; the parameter is the role of the one in Go."""
    workers = [start(role, service, program if role == request.param else "") for role in ("prefill", "decode")]
    with met(workers) as (sender, receiver):
        yield sender, receiver


def start(role: str, target: str, program: str = "", exited: tuple[str, ...] = ()) -> Worker:
    """A worker, in Go if there is a program."""
    if program:
        said = GoSetup(target, f"{role}-go", role, seed=SEEDS[role], lease_ttl=LEASE, program=program)
        return GoWorker(said)
    return Worker(Setup(target, f"{role}-py", role, seed=SEEDS[role], exited_instances=exited))


def in_go(worker: Worker) -> bool:
    return isinstance(worker, GoWorker)


def join(sender: Worker, receiver: Worker, room: int) -> None:
    """Both join, and the receiver offers."""
    receiver.call("receiver", room, sender.setup.engine_id)
    receiver.call("offer", room, TOKENS, TARGETS, slots=SLOTS)
    sender.call("sender", room, TOKENS)
    for worker in (sender, receiver):
        wait_for(lambda worker=worker: worker.call("poll", room), lambda poll: poll is KVPoll.WAITING_FOR_INPUT)  # type: ignore[misc]


def check_serves(sender: Worker, receiver: Worker, room: int) -> None:
    """A room goes well: SUCCESS on both sides, the right bytes and no others, pages back on both sides."""
    join(sender, receiver, room)
    sender.call("send", room, SOURCES, slots=SOURCE_SLOTS, last=True)
    for worker in (sender, receiver):
        worker.wait_poll(room, KVPoll.SUCCESS)
        wait_for(lambda worker=worker: worker.call("room_poll", room), lambda poll: poll is KVPoll.SUCCESS)  # type: ignore[misc]
    assert same(receiver.call("snapshot"), written(sender, receiver))
    assert same(sender.call("snapshot"), sender.original())
    check_back(sender, receiver, room)


def written(sender: Worker, receiver: Worker, skipped: int = 0) -> list[list[Bytes]]:
    """The receiver's memory as a copy by token and head leaves it, less the first pages."""
    pairs = {"kv": list(zip(SOURCES["kv"], TARGETS["kv"], strict=True))[skipped:], "aux": [(1, 2)]}
    after = []
    for at, spec in enumerate(receiver.setup.specs):
        pool = build(spec, receiver.setup.seed + at)
        copy_by_token(build(spec, sender.setup.seed + at).views, pool, pairs[spec.name])
        after.append(pool.backing)
    return after


def check_back(sender: Worker, receiver: Worker, room: int) -> None:
    """Both close the room, and have its pages back by proof."""
    for worker in (sender, receiver):
        worker.call("close_room", room)
        (released,) = worker.wait_released()
        assert (released.room, released.presumed) == (room, False)
    assert (released.pages, released.slots) == (TARGETS, SLOTS)
    with Client(receiver.setup.target) as client:
        engines = wait_for(
            lambda: list(client.list_engines()),
            lambda engines: not any(worker.open_rooms for engine in engines for worker in engine.workers),
        )
        assert len(engines) == 2


def failed(worker: Worker, room: int) -> tuple[str, str]:
    """Waits for FAILED; the reason, and the worker to blame."""
    worker.wait_poll(room, KVPoll.FAILED)
    failure = worker.call("failure", room)
    assert failure.message
    return failure.reason, failure.worker_id


def test_a_whole_life(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    check_serves(sender, receiver, 1)
    with Client(receiver.setup.target) as client:  # all of it is forgotten
        wait_for(lambda: list(client.poll([1]).unknown_rooms), lambda unknown: unknown == [1])


@pytest.mark.parametrize("by", ["prefill", "decode"])
def test_an_abort_by_either_ends_both(pair: tuple[Worker, Worker], by: str) -> None:
    sender, receiver = pair
    join(sender, receiver, 1)
    aborting, other = (sender, receiver) if by == "prefill" else (receiver, sender)
    aborting.call("abort", 1, "no pages left")
    assert failed(other, 1) == ("ABORTED", aborting.call("ids")[0])
    assert other.call("failure", 1).message == "no pages left"
    sender.call("send", 1, SOURCES, slots=SOURCE_SLOTS, last=True)  # too late
    check_back(sender, receiver, 1)
    assert same(receiver.call("snapshot"), receiver.original())
    check_serves(sender, receiver, 2)


def test_a_lease_that_lapsed_ends_its_rooms_and_the_go_worker_comes_back(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    away, other = (sender, receiver) if in_go(sender) else (receiver, sender)
    (name, _), epoch = away.call("ids"), away.call("epoch")
    join(sender, receiver, 1)
    away.stop()
    assert failed(other, 1) == ("LEASE_EXPIRED", name)
    other.call("close_room", 1)
    if other is sender:
        other.wait_released()  # nothing of its own was in flight
    away.go_on()
    assert failed(away, 1) == ("LEASE_EXPIRED", name)
    wait_for(lambda: away.call("epoch"), lambda renewed: renewed > epoch)
    check_met(sender, receiver)

    # It told of its room when it registered again: a room that it had left out would have been released by that.
    join(sender, receiver, 2)
    if other is receiver:
        assert other.call("released") == []
    away.call("close_room", 1)
    if other is receiver:
        (released,) = other.wait_released()
        assert (released.room, released.pages, released.presumed) == (1, TARGETS, False)
    (released,) = away.wait_released()
    assert (released.room, released.presumed) == (1, False)
    sender.call("send", 2, SOURCES, slots=SOURCE_SLOTS, last=True)
    receiver.wait_poll(2, KVPoll.SUCCESS)
    assert same(receiver.call("snapshot"), written(sender, receiver))
    check_back(sender, receiver, 2)


def test_a_go_sender_whose_lease_lapsed_writes_nothing_more(service: str, program: str) -> None:
    """Though its write had begun, as far as anybody was told."""
    with met([start("prefill", service, program), start("decode", service)]) as (sender, receiver):
        join(sender, receiver, 1)
        sender.call("send_fenced", 1, SOURCES, LEASE, slots=SOURCE_SLOTS)
        wait_for(lambda: receiver.call("poll", 1), lambda poll: poll is KVPoll.TRANSFERRING)
        name, _ = sender.call("ids")
        sender.stop()
        assert failed(receiver, 1) == ("LEASE_EXPIRED", name)
        sender.go_on()
        failed(sender, 1)
        check_back(sender, receiver, 1)
        assert same(receiver.call("snapshot"), receiver.original())
        check_met(sender, receiver)
        check_serves(sender, receiver, 2)


def test_pages_that_are_there_already_are_skipped(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    receiver.call("receiver", 1, sender.setup.engine_id)
    receiver.call("offer", 1, TOKENS, {"kv": [5, 4]}, slots=SLOTS, prefix_tokens=16)
    sender.call("sender", 1, TOKENS)
    sender.call("send", 1, SOURCES, slots=SOURCE_SLOTS, last=True)
    receiver.wait_poll(1, KVPoll.SUCCESS)
    assert same(receiver.call("snapshot"), written(sender, receiver, skipped=1))


def check_met(sender: Worker, receiver: Worker) -> None:
    for worker in (sender, receiver):
        wait_for(lambda worker=worker: worker.call("ready"), bool, 20)  # type: ignore[misc]


def test_a_python_peer_is_killed_and_the_go_worker_meets_its_successor(
    pair: tuple[Worker, Worker], service: str
) -> None:
    sender, receiver = pair
    stays, dies = (sender, receiver) if in_go(sender) else (receiver, sender)
    join(sender, receiver, 1)
    name, instance = dies.call("ids")
    dies.kill()
    assert failed(stays, 1) == ("SESSION_LOST", name)
    stays.call("close_room", 1)
    if stays is receiver:
        wait_for(lambda: stays.call("release", 1), lambda state: state == "STATE_WAITING")  # for proof
        assert stays.call("released") == []

    with met([start(dies.setup.role, service, exited=(instance,))]) as (successor,):
        (released,) = stays.wait_released()
        assert (released.room, released.presumed) == (1, False)
        _, instance = successor.call("ids")
        wait_for(lambda: stays.call("peers"), lambda peers: peers == [instance])
        if stays is sender:
            check_serves(stays, successor, 2)
        else:
            check_serves(successor, stays, 2)


def test_draining_of_a_go_worker_is_told_to_its_peer_and_to_routers(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    worker = sender if in_go(sender) else receiver
    worker.call("drain")
    with Client(receiver.setup.target) as client:
        states = wait_for(
            lambda: {engine.engine_id: engine.state for engine in client.list_engines()},
            lambda states: states[worker.setup.engine_id] == pb.ENGINE_STATE_DRAINING,
        )
    assert sorted(states.values()) == [pb.ENGINE_STATE_READY, pb.ENGINE_STATE_DRAINING]
    check_serves(sender, receiver, 1)  # joins are still accepted
