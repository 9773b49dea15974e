"""The stream between a worker and the service."""

import pytest
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import (
    Draining,
    InvalidField,
    SessionReplaced,
    StaleEpoch,
    WorkerNotFound,
    from_status,
)

from transport.blocking import Connect
from transport.running import RunningServer
from transport.worker import Stream, Worker, completion, destination, new_join, pair


@pytest.fixture
def connect() -> Connect:
    """The client is but a tool here."""
    return Client


def test_a_room_over_two_sessions(client: Client, server: RunningServer) -> None:
    [(sender, receiver)] = pair(client)
    with Stream(server.target, sender.ref) as sending, Stream(server.target, receiver.ref) as receiving:
        joined = new_join(7)
        joining = new_join(7, peer_engine_id="p", destination=destination(20, [3, 9]))
        sending.send(joins=[joined])
        receiving.send(joins=[joining])
        [offers] = sending.wait(lambda s: s.all("offers"))
        assert offers.room == 7
        assert offers.offers[0].destination == joining.destination
        update = sending.wait_poll(7, pb.KV_POLL_WAITING_FOR_INPUT)
        assert update.confirmed
        told = receiving.wait_poll(7, pb.KV_POLL_WAITING_FOR_INPUT)
        assert [peer.worker_id for peer in told.senders] == [sender.worker_id]

        done = completion(7, sender.worker_id, offers.offers[0].receivers[0], joined.join_id, 2)
        sending.send(progress=[_progress(joined, pb.KV_POLL_SUCCESS, completions=[done])])
        assert receiving.wait(lambda s: s.all("completions")) == [done]
        last = _progress(joining, pb.KV_POLL_SUCCESS, completions=[done])
        receiving.send(cleanups=[pb.CleanupItem(room=7, join_id=joining.join_id, last=last)])
        [free] = receiving.wait(lambda s: s.all("releases"))
        assert free == pb.Release(room=7, join_id=joining.join_id, state=pb.Release.STATE_FREE)
        assert sending.wait_poll(7, pb.KV_POLL_SUCCESS).own_poll == pb.KV_POLL_SUCCESS
        sending.wait_applied(sending.send(cleanups=[pb.CleanupItem(room=7, join_id=joined.join_id, drained=True)]))
    assert client.poll([7]).transfers[0].poll == pb.KV_POLL_SUCCESS
    assert server.sizes().open_rooms == 0


def test_each_batch_is_acknowledged_with_a_lease_and_several_may_share_an_answer(
    client: Client, server: RunningServer
) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL, lease_ttl={"seconds": 2})
    with Stream(server.target, worker.ref) as stream:
        for _ in range(200):
            last = stream.send()
        answer = stream.wait_applied(last)
        assert (answer.applied_batch, answer.lease_ttl.seconds) == (200, 2)
        applied = [message.applied_batch for message in stream.heard]
        assert applied == sorted(set(applied))


def test_joins_are_applied_before_progress_and_this_before_cleanups(client: Client, server: RunningServer) -> None:
    [(sender, _)] = pair(client)
    with Stream(server.target, sender.ref) as stream:
        join = new_join(7)
        stream.send(
            cleanups=[pb.CleanupItem(room=7, join_id=join.join_id, drained=True)],
            progress=[_progress(join, pb.KV_POLL_FAILED, failure=pb.Failure(reason=10, message="first"))],
            joins=[join],
        )
        [release] = stream.wait(lambda s: s.all("releases"))
        assert release.state == pb.Release.STATE_FREE
        assert stream.all("errors") == []
    assert client.poll([7]).transfers[0].failure.message == "first"


def test_a_refused_item_is_told_by_batch_kind_and_room_and_the_others_go_on(
    client: Client, server: RunningServer
) -> None:
    [(_, receiver)] = pair(client)
    with Stream(server.target, receiver.ref) as stream:
        good, bad = new_join(7, peer_engine_id="p"), new_join(8, peer_engine_id="x")
        stream.send()
        stream.send(
            joins=[bad, good],
            progress=[pb.Progress(room=9, poll=pb.KV_POLL_TRANSFERRING), pb.Progress(room=7, poll=9)],
            cleanups=[pb.CleanupItem(room=-1)],
        )
        stream.wait_poll(7, pb.KV_POLL_BOOTSTRAPPING)
        errors = stream.wait(lambda s: s.all("errors"))
        kinds = pb.ItemError
        assert [(error.batch, error.kind, error.room) for error in errors] == [
            (2, kinds.KIND_JOIN, 8),
            (2, kinds.KIND_PROGRESS, 9),
            (2, kinds.KIND_PROGRESS, 7),
            (2, kinds.KIND_CLEANUP, -1),
        ]
        reasons = [from_status(error.error).reason for error in errors]
        assert reasons == ["ENGINE_NOT_FOUND", "ROOM_NOT_FOUND", "INVALID_FIELD", "INVALID_FIELD"]


def test_a_new_stream_is_told_all_that_the_worker_has_not_cleaned_up(client: Client, server: RunningServer) -> None:
    [(sender, receiver)] = pair(client)
    joined = new_join(7)
    sender.join(joined)
    receiver.join(new_join(7, peer_engine_id="p", destination=destination(20, [3, 9])))
    for _ in range(2):
        with Stream(server.target, sender.ref) as stream:
            stream.wait_applied(stream.send())
            stream.wait_poll(7, pb.KV_POLL_WAITING_FOR_INPUT)
            assert [offers.room for offers in stream.wait(lambda s: s.all("offers"))] == [7]
            [peer] = stream.wait(lambda s: s.all("peers"))
            assert (peer.kind, peer.engine_id) == (pb.PeerChange.KIND_READY, "d")
            assert peer.peer.instance_id == receiver.said.instance_id


def test_whoever_joins_an_aborted_room_is_told_and_freed(client: Client, server: RunningServer) -> None:
    [(_, receiver)] = pair(client)
    client.abort([7], "hung up")
    with Stream(server.target, receiver.ref) as stream:
        join = new_join(7, peer_engine_id="p")
        stream.send(joins=[join])
        assert stream.wait_poll(7, pb.KV_POLL_FAILED).failure.message == "hung up"
        stream.send(cleanups=[pb.CleanupItem(room=7, join_id=join.join_id)])
        assert stream.wait(lambda s: s.all("releases"))[0].state == pb.Release.STATE_FREE


def test_a_cleanup_of_a_join_that_never_came_buries_it(client: Client, server: RunningServer) -> None:
    [(_, receiver)] = pair(client)
    with Stream(server.target, receiver.ref) as stream:
        stream.send(cleanups=[pb.CleanupItem(room=7, join_id=5)])
        assert stream.wait(lambda s: s.all("releases"))[0].state == pb.Release.STATE_FREE
        stream.send(joins=[pb.Join(room=7, join_id=5, peer_engine_id="p")])
        assert stream.wait_poll(7, pb.KV_POLL_FAILED).failure.message == "given up before it joined"


def test_draining_is_told_to_peers(client: Client, server: RunningServer) -> None:
    [(sender, receiver)] = pair(client)
    with Stream(server.target, receiver.ref) as watching, Stream(server.target, sender.ref) as stream:
        watching.wait_applied(watching.send())
        stream.send(draining=True)
        watching.wait(lambda s: any(peer.kind == pb.PeerChange.KIND_DRAINING for peer in s.all("peers")))
        assert client.get_engine("p").state == pb.ENGINE_STATE_DRAINING


def test_a_newer_session_ends_the_older(client: Client, server: RunningServer) -> None:
    [(sender, _)] = pair(client)
    sender.join(new_join(7))
    with Stream(server.target, sender.ref) as older:
        older.wait_applied(older.send())
        with Stream(server.target, sender.ref) as newer:
            newer.wait_applied(newer.send())
            assert isinstance(older.wait_end(), SessionReplaced)
            newer.wait_applied(newer.send())
    assert client.poll([7]).transfers[0].failure.reason == 0


def test_registering_again_ends_the_older_epochs_session(client: Client, server: RunningServer) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    with Stream(server.target, worker.ref) as stream:
        stream.wait_applied(stream.send())
        worker.register()
        assert isinstance(stream.wait_end(), StaleEpoch)


def test_deregistering_ends_the_session(client: Client, server: RunningServer) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    with Stream(server.target, worker.ref) as stream:
        stream.wait_applied(stream.send())
        client.deregister_worker(worker.ref, drained=True)
        assert isinstance(stream.wait_end(), WorkerNotFound)


def test_an_open_stream_alone_keeps_no_lease(client: Client, server: RunningServer) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL, lease_ttl={"seconds": 1})
    with Stream(server.target, worker.ref) as stream:
        stream.wait_applied(stream.send())
        assert isinstance(stream.wait_end(), WorkerNotFound)


def test_a_session_under_a_stale_epoch_or_of_nobody_does_not_open(client: Client, server: RunningServer) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    stale = pb.WorkerRef()
    stale.CopyFrom(worker.ref)
    worker.register()
    for ref, error in ((stale, StaleEpoch), (pb.WorkerRef(worker_id="x", epoch=1), WorkerNotFound)):
        with Stream(server.target, ref) as stream:
            stream.send()
            assert isinstance(stream.wait_end(), error)


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        (pb.SessionRequest(batch=1), None, "worker"),
        (pb.SessionRequest(worker=pb.WorkerRef(), batch=2), None, "batch"),
        (pb.SessionRequest(worker=pb.WorkerRef(), batch=1), pb.SessionRequest(batch=1), "batch"),
        (pb.SessionRequest(worker=pb.WorkerRef(), batch=1), pb.SessionRequest(batch=3), "batch"),
        (
            pb.SessionRequest(worker=pb.WorkerRef(), batch=1),
            pb.SessionRequest(worker=pb.WorkerRef(), batch=2),
            "worker",
        ),
        (
            pb.SessionRequest(worker=pb.WorkerRef(), batch=1, joins=[pb.Join()] * 1001),
            None,
            "joins, progress and cleanups",
        ),
    ],
)
def test_a_bad_batch_ends_the_session(
    client: Client, server: RunningServer, first: pb.SessionRequest, second: pb.SessionRequest | None, field: str
) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    with Stream(server.target, worker.ref) as stream:
        for request in (first, second):
            if request is not None:
                if request.HasField("worker"):
                    request.worker.CopyFrom(worker.ref)
                stream.send_raw(request)
        ended = stream.wait_end()
        assert isinstance(ended, InvalidField)
        assert ended.field == field


def test_a_broken_session_fails_its_rooms_after_the_grace() -> None:
    with RunningServer(reconnect_grace=0.2, drain_grace=0.0) as server, Client(server.target) as client:
        [(sender, receiver)] = pair(client)
        receiver.join(new_join(7, peer_engine_id="p"))
        with Stream(server.target, sender.ref) as stream:
            stream.wait_applied(stream.send(joins=[new_join(7)]))
        with client.watch([7]) as watch:
            failed = next(one for answer in watch for one in answer.transfers if one.failure.reason)
        assert failed.failure.reason == pb.FAILURE_REASON_SESSION_LOST
        assert failed.failure.worker_id == sender.worker_id
        client.heartbeat(sender.ref)  # its lease runs on


def test_a_session_that_comes_back_within_the_grace_loses_nothing() -> None:
    with RunningServer(reconnect_grace=0.4, drain_grace=0.0) as server, Client(server.target) as client:
        [(sender, receiver)] = pair(client)
        receiver.join(new_join(7, peer_engine_id="p"))
        receiver.join(new_join(8, peer_engine_id="p"))
        with Stream(server.target, sender.ref) as stream:
            stream.wait_applied(stream.send(joins=[new_join(7)]))
        with Stream(server.target, sender.ref) as stream, Stream(server.target, receiver.ref) as broken:
            stream.wait_applied(stream.send())
            broken.wait_applied(broken.send())
            broken.close()  # its grace is over later than that of the stream above would have been
            with client.watch([8]) as watch:
                next(one for answer in watch for one in answer.transfers if one.failure.reason)
            failure = client.poll([7]).transfers[0].failure
            assert failure.worker_id == receiver.worker_id


def test_a_worker_that_has_no_more_to_say_is_answered_first(client: Client, server: RunningServer) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    with Stream(server.target, worker.ref) as stream:
        last = stream.send(joins=[new_join(7)])
        stream.finish()
        assert stream.wait_end() is None
        assert stream.wait_applied(last).applied_batch == last


def test_sessions_end_when_the_service_stops(client: Client, server: RunningServer) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    with Stream(server.target, worker.ref) as stream:
        stream.wait_applied(stream.send())
        server.stop()
        assert isinstance(stream.wait_end(), Draining)


def _progress(join: pb.Join, poll: pb.KVPoll, **said: object) -> pb.Progress:
    return pb.Progress(room=join.room, join_id=join.join_id, poll=poll, **said)  # type: ignore[arg-type]
