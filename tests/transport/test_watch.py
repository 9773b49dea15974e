"""Following rooms."""

import threading
import time

import pytest
from kvtransfer import v1 as pb
from kvtransfer.client import Client, Watch
from kvtransfer.errors import Draining, KVTransferError, LimitReached

from transport.blocking import Connect
from transport.running import RunningServer
from transport.worker import Worker, new_join, pair


def heard(watch: Watch, room: int) -> pb.Transfer:
    """The next state of a room."""
    return next(one for answer in watch for one in answer.transfers if one.room == room)


def test_the_state_comes_first_and_then_what_changes(client: Client) -> None:
    [(sender, receiver)] = pair(client)
    receiver.join(new_join(7, peer_engine_id="p"))
    with client.watch() as watch:
        first = next(watch)
        assert [(one.room, one.poll) for one in first.transfers] == [(7, pb.KV_POLL_BOOTSTRAPPING)]
        assert not first.transfers[0].participants
        assert first.revision == first.transfers[0].revision
        sender.join(new_join(7))
        assert heard(watch, 7).revision > first.revision
        client.abort([7], "enough")
        assert heard(watch, 7).failure.message == "enough"
    assert watch.revision > first.revision


def test_only_named_rooms_or_those_of_an_engine(client: Client) -> None:
    [(_, receiver)] = pair(client)
    other = Worker(client, "e", pb.ROLE_DECODE)
    with client.watch([8]) as named, client.watch(engine_id="e", view=pb.TRANSFER_VIEW_FULL) as engine:
        assert list(next(named).transfers) == []
        assert list(next(engine).transfers) == []
        receiver.join(new_join(7, peer_engine_id="p"))
        other.join(new_join(8, peer_engine_id="p"))
        assert [one.room for one in next(named).transfers] == [8]
        [transfer] = next(engine).transfers
        assert transfer.room == 8
        assert [one.worker.worker_id for one in transfer.participants] == [other.worker_id, "p/dp0/pp0/tp0"]


def test_a_slow_reader_skips_and_ends_with_the_newest_state(client: Client) -> None:
    [(sender, _)] = pair(client)
    join = new_join(7, request_id="x" * 100)
    sender.join(join)
    with client.watch([7]) as watch:
        next(watch)
        changes = 0
        for number in range(40):
            client.report(
                sender.ref,
                [
                    pb.Progress(room=7, join_id=join.join_id, poll=pb.KV_POLL_TRANSFERRING, transferred_bytes=sent)
                    for sent in range(number * 100 + 1, number * 100 + 101)
                ],
            )
            changes += 100
        client.abort([7], "the last")
        states = []
        while not states or states[-1].failure.message != "the last":
            states.append(heard(watch, 7))
    assert len(states) <= 41 < changes  # one a call at most, though a hundred changes were in it


def test_resuming_by_revision_skips_nothing_and_repeats_nothing(client: Client) -> None:
    client.abort([1, 2])
    with client.watch() as watch:
        next(watch)
        revision = watch.revision
    client.abort([3])
    with client.watch(after_revision=revision) as watch:
        assert [one.room for one in next(watch).transfers] == [3]


def test_many_rooms_come_in_several_messages_of_which_the_last_has_the_revision(client: Client) -> None:
    for start in range(1, 2502, 1000):
        client.abort(range(start, min(start + 1000, 2502)))
    rooms = []
    with client.watch() as watch:
        for answer in watch:
            rooms += [one.room for one in answer.transfers]
            if answer.revision:
                break
            assert watch.revision == 0
    assert rooms == list(range(1, 2502))


def test_forgotten_rooms_are_told(connect: Connect) -> None:
    with (
        RunningServer(retention=0.1, drain_grace=0.0) as server,
        connect(server.target) as client,
        client.watch([7]) as watch,
    ):
        next(watch)
        client.abort([7, 8])
        forgotten: list[int] = []
        while not forgotten:
            forgotten += next(watch).forgotten_rooms
        assert forgotten == [7]
        assert list(client.poll([7]).unknown_rooms) == [7]


def test_a_room_that_was_opened_again_is_not_told_as_forgotten(connect: Connect) -> None:
    with RunningServer(retention=1.5, drain_grace=0.0) as server, connect(server.target) as client:
        client.abort([7])
        with client.watch([7]) as watch:
            seen = next(watch).revision
        while client.poll([7]).transfers:
            time.sleep(0.01)
        client.abort([7])  # opens its mark anew
        with client.watch([7], after_revision=seen) as watch:
            answer = next(watch)
        assert [one.room for one in answer.transfers] == [7]
        assert list(answer.forgotten_rooms) == []


def test_leaving_the_block_ends_the_stream_on_the_server(connect: Connect) -> None:
    with RunningServer(max_watches=1, drain_grace=0.0) as server, connect(server.target) as client:
        for _ in range(5):
            with client.watch() as watch:
                _first_when_there_is_room(watch)


def _first_when_there_is_room(watch: Watch) -> pb.WatchResponse:
    """The former watch ends on the server a moment after its client left it."""
    give_up = time.monotonic() + 5
    while True:
        try:
            return watch._open()
        except LimitReached:
            if time.monotonic() > give_up:
                raise


def test_closing_from_another_thread_ends_the_iteration(client: Client) -> None:
    watch = client.watch()
    next(watch)
    closer = threading.Timer(0.1, watch.close)
    closer.start()
    assert list(watch) == []
    closer.join()


def test_closing_the_client_ends_the_iteration_with_an_error(server: RunningServer, connect: Connect) -> None:
    client = connect(server.target)
    watch = client.watch()
    next(watch)
    closer = threading.Timer(0.1, client.close)
    closer.start()
    with pytest.raises(KVTransferError, match="CANCELLED"):
        next(watch)
    closer.join()


def test_a_stream_that_breaks_is_taken_up_where_it_was(connect: Connect) -> None:
    with RunningServer(drain_grace=0.0) as server:
        port = server.port
        client = connect(server.target)
        client.abort([1])
        watch = client.watch()
        assert [one.room for one in next(watch).transfers] == [1]
    with client, watch, RunningServer(port=port, drain_grace=0.0) as server, connect(server.target) as other:
        other.abort([2])
        assert heard(watch, 2).room == 2


def test_who_watched_a_room_over_a_restart_is_told_that_it_is_forgotten(connect: Connect) -> None:
    with RunningServer(drain_grace=0.0) as server:
        port = server.port
        client = connect(server.target)
        client.abort([1, 2])
        watch = client.watch([1, 2])
        next(watch)
    with client, watch, RunningServer(port=port, drain_grace=0.0) as server, connect(server.target) as other:
        other.abort([2])
        forgotten: list[int] = []
        while not forgotten:
            forgotten += next(watch).forgotten_rooms
        assert 1 in forgotten


def test_watching_a_draining_service_raises_in_the_end(connect: Connect) -> None:
    with RunningServer(drain_grace=10.0) as server, connect(server.target, timeout=0.5) as client:
        [(_, receiver)] = pair(client)
        join = new_join(7, peer_engine_id="p")
        receiver.join(join)  # keeps the service draining
        with client.watch() as watch:
            next(watch)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            with pytest.raises(Draining):
                next(watch)
        receiver.cleanup(join)
        stopping.join()
