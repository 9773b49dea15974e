"""A Go worker and a Python peer, whichever side is whose: a whole life, aborts, a lapsed lease, a new process."""

import itertools
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kvtransfer import Client, KVPoll
from kvtransfer import v1 as pb

from tests.e2e.workers import Setup, Worker, met, same
from tests.go.worker import GoSetup, GoWorker
from tests.transport.command import Command
from tests.waiting import wait_for
from tests.worker.pools import Bytes, build, copy_by_token

MODULE = Path(__file__).parents[2] / "clients" / "go"
LEASE = 3.0
"""Seconds that the Go worker's lease lasts."""
SEEDS = {"prefill": 1, "decode": 50}
TOKENS = 40
ROOMS = itertools.count(1)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("there is no Go toolchain")
    built = tmp_path_factory.mktemp("go") / "driven"
    subprocess.run([go, "build", "-o", built, "./internal/driven"], cwd=MODULE, check=True, timeout=300)
    return str(built)


@contextmanager
def pair_of(role: str, program: str) -> Iterator[tuple[Worker, Worker]]:
    """A sender and a receiver that have met; `role` is that of the one in Go. Their service waits for nobody long."""
    with Command("--port", "0", "--reconnect-grace", "0.5", "--vote", "1", "--retention", "1") as service:
        workers = [start(side, service.target, program if side == role else "") for side in ("prefill", "decode")]
        with met(workers) as (sender, receiver):
            yield sender, receiver


@pytest.fixture(scope="module", params=["prefill", "decode"])
def pair(request: pytest.FixtureRequest, program: str) -> Iterator[tuple[Worker, Worker]]:
    with pair_of(request.param, program) as workers:
        yield workers


@pytest.fixture(params=["prefill", "decode"])
def mortals(request: pytest.FixtureRequest, program: str) -> Iterator[tuple[Worker, Worker]]:
    """A pair of whom one may be killed."""
    with pair_of(request.param, program) as workers:
        yield workers


def start(role: str, target: str, program: str = "", exited: tuple[str, ...] = ()) -> Worker:
    """A worker, in Go if there is a program."""
    if program:
        said = GoSetup(target, f"{role}-go", role, seed=SEEDS[role], lease_ttl=LEASE, program=program)
        return GoWorker(said)
    return Worker(Setup(target, f"{role}-py", role, seed=SEEDS[role], exited_instances=exited))


def in_go(worker: Worker) -> bool:
    return isinstance(worker, GoWorker)


def sources(room: int) -> dict[str, list[int]]:
    """A room's pages at the sender; each has its own, so that no bytes are there already."""
    return {"kv": [3 * room % 60 + at for at in (0, 1, 2)]}


def targets(room: int) -> dict[str, list[int]]:
    return {"kv": [3 * room % 60 + at for at in (2, 0, 1)]}


def slots(worker: Worker, room: int) -> dict[str, int]:
    return {"aux": (room + SEEDS[worker.setup.role]) % 16}


def join(sender: Worker, receiver: Worker, room: int) -> None:
    """Both join, and the receiver offers."""
    receiver.call("receiver", room, sender.setup.engine_id)
    receiver.call("offer", room, TOKENS, targets(room), slots=slots(receiver, room))
    sender.call("sender", room, TOKENS)
    wait_polls(sender, receiver, room, KVPoll.WAITING_FOR_INPUT)


def wait_polls(sender: Worker, receiver: Worker, room: int, wanted: KVPoll) -> None:
    for worker in (sender, receiver):
        worker.wait_poll(room, wanted)


def send(sender: Worker, room: int) -> None:
    sender.call("send", room, sources(room), slots=slots(sender, room), last=True)


def check_serves(sender: Worker, receiver: Worker) -> int:
    """A room goes well: SUCCESS on both sides, the right bytes and no others, pages back on both sides."""
    room, before = next(ROOMS), receiver.call("snapshot")
    join(sender, receiver, room)
    send(sender, room)
    wait_polls(sender, receiver, room, KVPoll.SUCCESS)
    for worker in (sender, receiver):
        wait_for(lambda worker=worker: worker.call("room_poll", room), lambda poll: poll is KVPoll.SUCCESS)  # type: ignore[misc]
    check_bytes(sender, receiver, room, before)
    check_back(sender, receiver, room)
    return room


def check_bytes(sender: Worker, receiver: Worker, room: int, before: list[list[Bytes]], skipped: int = 0) -> None:
    """The receiver's memory is as a copy by token and head makes it, less the first pages; the sender's as it was."""
    pairs = {
        "kv": list(zip(sources(room)["kv"], targets(room)["kv"], strict=True))[skipped:],
        "aux": [(slots(sender, room)["aux"], slots(receiver, room)["aux"])],
    }
    expected = []
    for at, (spec, arrays) in enumerate(zip(receiver.setup.specs, before, strict=True)):
        pool = build(spec, receiver.setup.seed + at)
        for array, was in zip(pool.backing, arrays, strict=True):
            array[:] = was
        copy_by_token(build(spec, sender.setup.seed + at).views, pool, pairs[spec.name])
        expected.append(pool.backing)
    assert not same(expected, before)
    assert same(receiver.call("snapshot"), expected)
    assert same(sender.call("snapshot"), sender.original())


def check_back(sender: Worker, receiver: Worker, room: int) -> None:
    """Both close the room, and have its pages back by proof."""
    for worker in (sender, receiver):
        worker.call("close_room", room)
        (released,) = worker.wait_released()
        assert (released.room, released.presumed) == (room, False)
    assert (released.pages, released.slots) == (targets(room), slots(receiver, room))
    with Client(receiver.setup.target) as client:
        engines = wait_for(
            lambda: list(client.list_engines()),
            lambda engines: not any(worker.open_rooms for engine in engines for worker in engine.workers),
        )
        assert len(engines) == 2


def check_met(sender: Worker, receiver: Worker) -> None:
    for worker in (sender, receiver):
        wait_for(lambda worker=worker: worker.call("ready"), bool, 20)  # type: ignore[misc]


def failed(worker: Worker, room: int) -> tuple[str, str]:
    """Waits for FAILED; the reason, and the worker to blame."""
    worker.wait_poll(room, KVPoll.FAILED)
    failure = worker.call("failure", room)
    assert failure.message
    return failure.reason, failure.worker_id


def test_a_whole_life(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    room = check_serves(sender, receiver)
    with Client(receiver.setup.target) as client:  # all of it is forgotten
        wait_for(lambda: list(client.poll([room]).unknown_rooms), lambda unknown: unknown == [room])


def test_pages_that_are_there_already_are_skipped(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    room, before = next(ROOMS), receiver.call("snapshot")
    receiver.call("receiver", room, sender.setup.engine_id)
    rest = {"kv": targets(room)["kv"][1:]}
    receiver.call("offer", room, TOKENS, rest, slots=slots(receiver, room), prefix_tokens=16)
    sender.call("sender", room, TOKENS)
    send(sender, room)
    wait_polls(sender, receiver, room, KVPoll.SUCCESS)
    check_bytes(sender, receiver, room, before, skipped=1)
    for worker in (sender, receiver):
        worker.call("close_room", room)
        worker.wait_released()


@pytest.mark.parametrize("by", ["prefill", "decode"])
def test_an_abort_by_either_ends_both(pair: tuple[Worker, Worker], by: str) -> None:
    sender, receiver = pair
    room, before = next(ROOMS), receiver.call("snapshot")
    join(sender, receiver, room)
    aborting, other = (sender, receiver) if by == "prefill" else (receiver, sender)
    aborting.call("abort", room, "no pages left")
    assert failed(other, room) == ("ABORTED", aborting.call("ids")[0])
    assert other.call("failure", room).message == "no pages left"
    send(sender, room)  # too late
    check_back(sender, receiver, room)
    assert same(receiver.call("snapshot"), before)
    check_serves(sender, receiver)


def test_a_lease_that_lapsed_ends_its_rooms_and_the_go_worker_comes_back(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    away, other = (sender, receiver) if in_go(sender) else (receiver, sender)
    (name, _), epoch = away.call("ids"), away.call("epoch")
    room = next(ROOMS)
    join(sender, receiver, room)
    away.stop()
    assert failed(other, room) == ("LEASE_EXPIRED", name)
    other.call("close_room", room)
    if other is sender:
        other.wait_released()  # nothing of its own was in flight
    away.go_on()
    assert failed(away, room) == ("LEASE_EXPIRED", name)
    wait_for(lambda: away.call("epoch"), lambda renewed: renewed > epoch)
    check_met(sender, receiver)

    # It told of its room when it registered again: a room that it had left out would have been released by that.
    check_serves_beside(sender, receiver)
    away.call("close_room", room)
    for worker in (sender, receiver) if other is receiver else (receiver,):
        (released,) = worker.wait_released()
        assert (released.room, released.presumed) == (room, False)


def check_serves_beside(sender: Worker, receiver: Worker) -> None:
    """A room goes well, and nothing of another is released."""
    room = next(ROOMS)
    join(sender, receiver, room)
    send(sender, room)
    wait_polls(sender, receiver, room, KVPoll.SUCCESS)
    for worker in (sender, receiver):
        worker.call("close_room", room)
        (released,) = worker.wait_released()
        assert released.room == room


@pytest.mark.parametrize("pair", ["prefill"], indirect=True)
def test_a_go_sender_whose_lease_lapsed_writes_nothing_more(pair: tuple[Worker, Worker]) -> None:
    """Though its write had begun, as far as anybody was told."""
    sender, receiver = pair
    room, before, (name, _) = next(ROOMS), receiver.call("snapshot"), sender.call("ids")
    join(sender, receiver, room)
    sender.call("send_fenced", room, sources(room), LEASE, slots=slots(sender, room))
    wait_for(lambda: receiver.call("poll", room), lambda poll: poll is KVPoll.TRANSFERRING)
    sender.stop()
    assert failed(receiver, room) == ("LEASE_EXPIRED", name)
    sender.go_on()
    failed(sender, room)
    check_back(sender, receiver, room)
    assert same(receiver.call("snapshot"), before)
    check_met(sender, receiver)
    check_serves(sender, receiver)


def test_a_python_peer_is_killed_and_the_go_worker_meets_its_successor(mortals: tuple[Worker, Worker]) -> None:
    sender, receiver = mortals
    stays, dies = (sender, receiver) if in_go(sender) else (receiver, sender)
    room = next(ROOMS)
    join(sender, receiver, room)
    name, instance = dies.call("ids")
    dies.kill()
    assert failed(stays, room) == ("SESSION_LOST", name)
    stays.call("close_room", room)
    if stays is receiver:
        wait_for(lambda: stays.call("release", room), lambda state: state == "STATE_WAITING")  # for proof
        assert stays.call("released") == []

    with met([start(dies.setup.role, dies.setup.target, exited=(instance,))]) as (successor,):
        (released,) = stays.wait_released()
        assert (released.room, released.presumed) == (room, False)
        _, instance = successor.call("ids")
        wait_for(lambda: stays.call("peers"), lambda peers: peers == [instance])
        if stays is sender:
            check_serves(stays, successor)
        else:
            check_serves(successor, stays)


def test_a_go_worker_that_drains_is_seen_so_and_serves_on(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    worker = sender if in_go(sender) else receiver
    for draining, state in ((True, pb.ENGINE_STATE_DRAINING), (False, pb.ENGINE_STATE_READY)):
        worker.call("drain", draining)
        with Client(receiver.setup.target) as client:
            states = wait_for(
                lambda: {engine.engine_id: engine.state for engine in client.list_engines()},
                lambda states, state=state: states.get(worker.setup.engine_id) == state,  # type: ignore[misc]
            )
        assert states.pop(worker.setup.engine_id) == state
        assert list(states.values()) == [pb.ENGINE_STATE_READY]
        check_serves(sender, receiver)  # joins are still accepted
