"""A worker that says too much, or what is not so: nobody else's session ends by it, and nothing piles up."""

from collections.abc import Iterator

import pytest
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import InvalidField, RoomReused, WorkerNotFound
from transport.running import RunningServer
from transport.worker import Stream, Worker, completion, destination, new_join, pair

PAGES = 3
SERVED = {"peer_engine_id": "p", "destination": destination(PAGES * 16, range(PAGES))}


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with RunningServer(drain_grace=0.0) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.target) as connected:
        yield connected


def served(sender: Worker, receiver: Worker, room: int) -> tuple[pb.Join, pb.Completion]:
    """A room that both have joined: the sender's join and what it would say in the end."""
    receiver.join(new_join(room, **SERVED))
    joined = new_join(room)
    offer = sender.join(joined).offers[0].receivers[0]
    return joined, completion(room, sender.worker_id, offer, joined.join_id, PAGES)


def test_a_completion_of_many_pieces_is_told_as_one(client: Client, server: RunningServer) -> None:
    [(sender, receiver)] = pair(client)
    joined, told = served(sender, receiver, 7)
    del told.groups[0].ranges[:]
    told.groups[0].ranges.extend(pb.Range(first=page, count=1) for page in range(PAGES))
    sender.report(joined, pb.KV_POLL_SUCCESS, completions=[told])
    with Stream(server.target, receiver.ref) as stream:
        stream.send()
        [heard] = stream.wait(lambda s: s.all("completions"))
        assert list(heard.groups[0].ranges) == [pb.Range(first=0, count=PAGES)]


@pytest.mark.parametrize("second", [pb.Range(first=0, count=PAGES), pb.Range(first=1, count=PAGES - 1)])
def test_a_group_named_twice_is_a_mismatch(client: Client, second: pb.Range) -> None:
    [(sender, receiver)] = pair(client)
    joined, told = served(sender, receiver, 7)
    told.groups.add(group="kv", ranges=[second])
    update = sender.report(joined, pb.KV_POLL_SUCCESS, completions=[told])
    assert update.failure.reason == pb.FAILURE_REASON_COMPLETION_MISMATCH


@pytest.mark.parametrize("ranges", [[(0, -1), (-1, PAGES + 1)], [(0, 0), (0, PAGES)], [(0, 2), (1, PAGES - 1)]])
def test_ranges_that_only_seem_to_continue_are_a_mismatch(client: Client, ranges: list[tuple[int, int]]) -> None:
    [(sender, receiver)] = pair(client)
    joined, told = served(sender, receiver, 7)
    del told.groups[0].ranges[:]
    told.groups[0].ranges.extend(pb.Range(first=first, count=count) for first, count in ranges)
    update = sender.report(joined, pb.KV_POLL_SUCCESS, completions=[told])
    assert update.failure.reason == pb.FAILURE_REASON_COMPLETION_MISMATCH


def test_negative_bytes_are_refused(client: Client) -> None:
    [(sender, receiver)] = pair(client)
    joined, told = served(sender, receiver, 7)
    told.bytes = -1
    refusal = sender.report(joined, pb.KV_POLL_SUCCESS, completions=[told])
    assert isinstance(refusal, InvalidField)
    assert refusal.field == "completions.bytes"


def test_long_failures_of_many_rooms_fit_the_sessions_of_both_sides(client: Client, server: RunningServer) -> None:
    [(sender, receiver)] = pair(client)
    rooms = range(1, 1001)
    wide = "\N{PILE OF POO}" * 1024
    with Stream(server.target, sender.ref) as sending, Stream(server.target, receiver.ref) as receiving:
        joins = [new_join(room) for room in rooms]
        sending.send(joins=joins)
        receiving.wait_applied(receiving.send(joins=[new_join(room, **SERVED) for room in rooms]))
        for first in range(0, len(joins), 200):
            progress = [
                pb.Progress(
                    room=join.room,
                    join_id=join.join_id,
                    poll=pb.KV_POLL_FAILED,
                    failure=pb.Failure(reason=pb.FAILURE_REASON_WORKER_REPORTED, message=wide, worker_id=wide),
                )
                for join in joins[first : first + 200]
            ]
            sending.wait_applied(sending.send(progress=progress))
    for worker in (sender, receiver):
        with Stream(server.target, worker.ref) as stream:
            stream.send()
            told = stream.wait(lambda s: {u.room: u for u in s.all("rooms")} if len(s.all("rooms")) >= 1000 else None)
            assert told.keys() == set(rooms)
            assert all(update.failure.message == wide[:256] for update in told.values())


@pytest.mark.parametrize("role", [pb.ROLE_PREFILL, pb.ROLE_DECODE])
def test_a_refused_join_given_up_ends_nobody_elses_room(client: Client, role: pb.Role) -> None:
    [(sender, receiver)] = pair(client)
    joined, told = served(sender, receiver, 7)
    stranger = Worker(client, "stranger", role)
    wrong = new_join(7, peer_engine_id="p" if role == pb.ROLE_DECODE else "d")
    with pytest.raises(RoomReused):
        stranger.join(wrong)
    assert stranger.cleanup(wrong).state == pb.Release.STATE_FREE
    update = sender.report(joined, pb.KV_POLL_SUCCESS, completions=[told])
    assert update.own_poll == pb.KV_POLL_SUCCESS
    assert not update.HasField("failure")


def test_a_refusal_of_much_is_told_shortly(client: Client) -> None:
    with pytest.raises(WorkerNotFound, match="'xxxx"):
        client.heartbeat(pb.WorkerRef(worker_id="x" * 1_000_000, epoch=1))
    layout = pb.Layout(model="m", groups=[pb.BufferGroup(name="x" * 1_000_000)])
    with pytest.raises(InvalidField) as refused:
        Worker(client, "d", pb.ROLE_DECODE, layout=layout)
    assert refused.value.field.startswith("layout.groups[xxx")


def test_a_long_reason_for_aborting_many_rooms_fits_their_workers_sessions(
    client: Client, server: RunningServer
) -> None:
    [(sender, receiver)] = pair(client)
    rooms = range(1, 1001)
    wide = "\N{PILE OF POO}" * 1024
    with Stream(server.target, sender.ref) as sending, Stream(server.target, receiver.ref) as receiving:
        sending.wait_applied(sending.send(joins=[new_join(room) for room in rooms]))
        receiving.wait_applied(receiving.send(joins=[new_join(room, **SERVED) for room in rooms]))
        client.abort(rooms, wide)
        for stream in (sending, receiving):
            stream.wait(lambda s: {u.room for u in s.all("rooms") if u.HasField("failure")} == set(rooms))
