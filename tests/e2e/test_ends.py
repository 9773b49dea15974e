"""Rooms that do not go well: each ends by a deadline, with a reason and a name, and pages stay held while writes may
land."""

from collections.abc import Iterator

import pytest
from kvtransfer import Client, KVPoll, Timeouts
from kvtransfer import v1 as pb

from tests.e2e.server import Running, serving
from tests.e2e.workers import Setup, Worker, engines
from tests.waiting import wait_for

SENDER, RECEIVER = "p/dp0/pp0/tp0", "d/dp0/pp0/tp0"


@pytest.fixture
def impatient() -> Iterator[Running]:
    """A service that waits for nobody long."""
    with serving(reconnect_grace=0.5, vote=1.0) as running:
        yield running


@pytest.fixture
def pair(impatient: Running) -> Iterator[list[Worker]]:
    with engines(
        Setup(impatient.target, "p", "prefill", lease_ttl=6.0), Setup(impatient.target, "d", "decode", seed=9)
    ) as workers:
        yield workers


def offer(receiver: Worker, room: int, timeouts: Timeouts | None = None) -> None:
    receiver.call("receiver", room, "p", timeouts)
    receiver.call("offer", room, 40, {"kv": [3, 4, 5]}, slots={"aux": 2})


def send(sender: Worker, room: int) -> None:
    sender.call("send", room, {"kv": [0, 1, 2]}, slots={"aux": 1}, last=True)


def failed(worker: Worker, room: int) -> tuple[str, str]:
    """Waits for FAILED; the reason, and the worker to blame."""
    worker.wait_poll(room, KVPoll.FAILED)
    failure = worker.call("failure", room)
    assert failure.message
    return failure.reason, failure.worker_id


def test_killed_sender(impatient: Running, pair: list[Worker]) -> None:
    """Its room ends; the receiver's pages come back only once its exit is attested."""
    sender, receiver = pair
    offer(receiver, 1)
    sender.call("sender", 1, 40)
    wait_for(lambda: receiver.call("poll", 1), lambda poll: poll is KVPoll.WAITING_FOR_INPUT)
    _, instance = sender.call("ids")
    sender.kill()
    assert failed(receiver, 1) == ("SESSION_LOST", SENDER)
    receiver.call("close_room", 1)
    wait_for(impatient.sizes, lambda sizes: (sizes.workers, sizes.pending_pages) == (1, 1))
    assert receiver.call("released") == []

    successor = Setup(impatient.target, "p", "prefill", exited_instances=(instance,))
    with engines(successor) as (sender,):
        (released,) = receiver.wait_released()
        assert (released.room, released.pages, released.presumed) == (1, {"kv": [3, 4, 5]}, False)
        offer(receiver, 2)
        sender.call("sender", 2, 40)
        send(sender, 2)
        receiver.wait_poll(2, KVPoll.SUCCESS)


def test_sender_killed_after_its_last_write(impatient: Running, pair: list[Worker]) -> None:
    """Killed as soon as the service has its Completion, which is proof enough."""
    sender, receiver = pair
    offer(receiver, 1)
    sender.call("sender", 1, 40)
    send(sender, 1)
    sender.wait_poll(1, KVPoll.SUCCESS)
    with Client(impatient.target) as client:
        wait_for(lambda: _own_poll(client, SENDER), lambda poll: poll == pb.KV_POLL_SUCCESS)
    sender.kill()
    receiver.wait_poll(1, KVPoll.SUCCESS)
    wait_for(lambda: receiver.call("room_poll", 1), lambda poll: poll is KVPoll.SUCCESS)
    receiver.call("close_room", 1)
    (released,) = receiver.wait_released()
    assert not released.presumed


def _own_poll(client: Client, worker_id: str) -> int:
    (transfer,) = client.poll([1]).transfers
    return next(each.poll for each in transfer.participants if each.worker.worker_id == worker_id)


def test_killed_receiver(pair: list[Worker]) -> None:
    """The sender learns who is gone, and has its pages back."""
    sender, receiver = pair
    offer(receiver, 1)
    sender.call("sender", 1, 40)
    wait_for(lambda: sender.call("poll", 1), lambda poll: poll is KVPoll.WAITING_FOR_INPUT)
    receiver.kill()
    assert failed(sender, 1) == ("SESSION_LOST", RECEIVER)
    sender.call("close_room", 1)
    (released,) = sender.wait_released()
    assert released.room == 1


def test_stopped_sender_comes_back(pair: list[Worker]) -> None:
    """Stopped for longer than its lease: its room ends with its name, and then it serves again."""
    sender, receiver = pair
    offer(receiver, 1)
    sender.call("sender", 1, 40)
    wait_for(lambda: receiver.call("poll", 1), lambda poll: poll is KVPoll.WAITING_FOR_INPUT)
    sender.stop()
    assert failed(receiver, 1) == ("LEASE_EXPIRED", SENDER)
    receiver.call("close_room", 1)
    assert receiver.call("released") == []
    sender.go_on()
    send(sender, 1)  # the engine does not know yet
    assert failed(sender, 1)[0] == "LEASE_EXPIRED"
    assert receiver.call("released") == []
    sender.call("close_room", 1)
    assert sender.wait_released()[0].room == 1
    assert receiver.wait_released()[0].room == 1  # its release is the proof
    wait_for(lambda: sender.call("ready") and receiver.call("ready"), bool)
    offer(receiver, 2)
    sender.call("sender", 2, 40)
    send(sender, 2)
    receiver.wait_poll(2, KVPoll.SUCCESS)


@pytest.mark.parametrize("who", [0, 1], ids=["sender", "receiver"])
@pytest.mark.parametrize("how", ["abort", "close_room"])
def test_abort(pair: list[Worker], who: int, how: str) -> None:
    other = pair[1 - who]
    offer(pair[1], 1)
    pair[0].call("sender", 1, 40)
    wait_for(lambda: other.call("poll", 1), lambda poll: poll is KVPoll.WAITING_FOR_INPUT)
    if how == "abort":
        pair[who].call("abort", 1, "the caller hung up")
        assert pair[who].call("poll", 1) is KVPoll.FAILED
    else:
        pair[who].call("close_room", 1)
    assert failed(other, 1) == ("ABORTED", (SENDER, RECEIVER)[who])
    if how == "abort":
        assert other.call("failure", 1).message == "the caller hung up"
        pair[who].call("close_room", 1)
    other.call("close_room", 1)
    for worker in pair:
        assert worker.wait_released()[0].room == 1


def test_a_room_given_up_at_once_is_given_up_for_both(pair: list[Worker]) -> None:
    """Closed before its join was sent: the other side hears of it all the same."""
    sender, receiver = pair
    sender.call("sender", 1, 40)
    receiver.call("receiver_given_up", 1, "p")
    assert failed(sender, 1) == ("ABORTED", RECEIVER)
    assert receiver.wait_released()[0].room == 1


def test_nobody_else_comes(pair: list[Worker]) -> None:
    sender, receiver = pair
    offer(receiver, 1, Timeouts(bootstrapping=0.3))
    assert failed(receiver, 1) == ("HANDSHAKE_TIMEOUT", SENDER)
    sender.call("sender", 2, 40, Timeouts(bootstrapping=0.3))
    assert failed(sender, 2)[0] == "HANDSHAKE_TIMEOUT"
    receiver.call("close_room", 1)
    assert receiver.wait_released()[0].room == 1  # nobody was ever told of its pages


def test_nothing_is_sent(pair: list[Worker]) -> None:
    sender, receiver = pair
    offer(receiver, 1, Timeouts(waiting_for_input=0.3))
    sender.call("sender", 1, 40)
    assert failed(receiver, 1) == ("INPUT_TIMEOUT", SENDER)
    assert failed(sender, 1) == ("INPUT_TIMEOUT", SENDER)


def test_stalled_sender(pair: list[Worker]) -> None:
    """A fence that is never reached: the room ends, and nothing is posted afterwards."""
    sender, receiver = pair
    before = receiver.call("snapshot")
    offer(receiver, 1, Timeouts(no_progress=0.4))
    sender.call("sender", 1, 40)
    sender.call("send_fenced", 1, {"kv": [0, 1, 2]}, 1.5, slots={"aux": 1}, last=True)
    assert failed(receiver, 1) == ("NO_PROGRESS", SENDER)
    assert failed(sender, 1) == ("NO_PROGRESS", SENDER)
    for worker in pair:
        worker.call("close_room", 1)
        assert worker.wait_released()[0].room == 1
    after = receiver.call("snapshot")
    assert all((a == b).all() for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True))


def test_slow_chunks_are_progress(pair: list[Worker]) -> None:
    """Chunks that take their time to compute, each less than what is allowed without progress."""
    sender, receiver = pair
    offer(receiver, 1, Timeouts(no_progress=1.5))
    sender.call("sender", 1, 40)
    for page in (0, 1):
        sender.call("send_fenced", 1, {"kv": [page]}, 1.0)
        wait_for(lambda: sender.call("written", 1), lambda pages, page=page: pages == page + 1)  # type: ignore[misc]
    sender.call("send_fenced", 1, {"kv": [2]}, 1.0, slots={"aux": 1}, last=True)
    receiver.wait_poll(1, KVPoll.SUCCESS)


def test_misfits() -> None:
    """Two engines that do not fit: the room fails for both, with the same words."""
    with serving() as server:
        workers = [
            Worker(Setup(server.target, "p", "prefill", model="one")),
            Worker(Setup(server.target, "d", "decode", model="two")),
        ]
        try:
            for worker in workers:
                wait_for(lambda worker=worker: worker.call("ids")[0], bool)  # type: ignore[misc]
            mismatch = "layout.model: prefill has one, decode has two; this pair is not supported"
            for worker in workers:  # told when they register, before any room
                (link,) = wait_for(lambda worker=worker: worker.call("links"), bool)  # type: ignore[misc]
                assert (link.ready, link.error) == (False, mismatch)
                assert worker.call("ready") is False
            workers[0].call("sender", 1, 40)
            offer(workers[1], 1)
            words = set()
            for worker in workers:
                worker.wait_poll(1, KVPoll.FAILED)
                failure = worker.call("failure", 1)
                assert failure.reason == "LAYOUT_MISMATCH"
                words.add(failure.message)
            assert words == {mismatch}
        finally:
            for worker in workers:
                worker.exit()


def test_service_comes_late() -> None:
    """A worker registers once the service is there, and says so by ready()."""
    with serving() as first:
        port = first.port
    workers = [Worker(Setup(f"127.0.0.1:{port}", "p", "prefill")), Worker(Setup(f"127.0.0.1:{port}", "d", "decode"))]
    try:
        assert [worker.call("ready") for worker in workers] == [False, False]
        workers[0].call("sender", 1, 40)  # rooms may be joined before
        send(workers[0], 1)
        with serving(port=port):
            wait_for(lambda: workers[0].call("ids")[0], bool)
            offer(workers[1], 1)
            workers[1].wait_poll(1, KVPoll.SUCCESS)
    finally:
        for worker in workers:
            worker.exit()
