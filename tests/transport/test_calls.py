"""Each unary call over the wire, as a simple client sees the protocol."""

import time

import pytest
from kvtransfer import v1 as pb
from kvtransfer._version import __version__
from kvtransfer.client import Client
from kvtransfer.errors import (
    EngineNotFound,
    InvalidField,
    KVTransferError,
    RoomNotFound,
    StaleEpoch,
    WorkerNotFound,
)

from transport.blocking import Connect
from transport.running import RunningServer
from transport.worker import Worker, completion, destination, layout, new_join, pair


def states(client: Client, room: int) -> dict[str, pb.KVPoll]:
    [transfer] = client.poll([room]).transfers
    return {participant.worker.worker_id: participant.poll for participant in transfer.participants}


# --- workers ---


def test_registering_grants_a_lease_and_a_greater_epoch_each_time(client: Client) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    assert worker.worker_id == "p/dp0/pp0/tp0"
    assert worker.lease_ttl == 15
    first, birth = worker.ref.epoch, worker.said.birth_epoch
    worker.register()
    assert worker.ref.epoch > first
    assert worker.said.birth_epoch == birth


def test_an_asked_lease_is_granted_up_to_the_limit(client: Client) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL, lease_ttl={"seconds": 2, "nanos": 500_000_000})
    assert worker.lease_ttl == 2.5
    assert client.heartbeat(worker.ref) == 2.5
    assert Worker(client, "p", pb.ROLE_PREFILL, lease_ttl={"seconds": 1000}).lease_ttl == 60


def test_an_engine_shows_its_workers_and_never_their_metadata(client: Client) -> None:
    Worker(client, "p", pb.ROLE_PREFILL, 0, 2, labels={"zone": "a"}, endpoint="http://10.0.0.3:30000")
    assert client.get_engine("p").state == pb.ENGINE_STATE_INCOMPLETE
    draining = Worker(client, "p", pb.ROLE_PREFILL, 1, 2)
    engine = client.get_engine("p")
    assert (engine.state, engine.model, engine.role) == (pb.ENGINE_STATE_READY, "m", pb.ROLE_PREFILL)
    assert engine.topology == pb.Topology(tp_size=2, pp_size=1, dp_size=1)
    first = engine.workers[0]
    assert (dict(first.labels), first.endpoint) == ({"zone": "a"}, "http://10.0.0.3:30000")
    assert 14 <= first.lease_left.seconds < 15
    assert not first.HasField("layout")
    client.heartbeat(draining.ref, draining=True)
    full = client.get_engine("p", view=pb.WORKER_VIEW_FULL)
    assert full.state == pb.ENGINE_STATE_DRAINING
    assert [worker.draining for worker in full.workers] == [False, True]
    assert full.workers[0].layout == layout()
    assert full.workers[0].nixl_metadata == b""


def test_engines_are_listed_by_id_and_filtered(client: Client) -> None:
    for name, role in (("c", pb.ROLE_PREFILL), ("a", pb.ROLE_DECODE), ("b", pb.ROLE_PREFILL)):
        Worker(client, name, role)
    Worker(client, "d", pb.ROLE_PREFILL, layout=layout(model="n"))
    assert [engine.engine_id for engine in client.list_engines()] == ["a", "b", "c", "d"]
    assert [engine.engine_id for engine in client.list_engines(role=pb.ROLE_PREFILL, model="m")] == ["b", "c"]


def test_a_worker_that_deregisters_is_gone(client: Client) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    client.deregister_worker(worker.ref, drained=True)
    client.deregister_worker(worker.ref, drained=True)
    with pytest.raises(EngineNotFound):
        client.get_engine("p")
    with pytest.raises(WorkerNotFound):
        client.heartbeat(worker.ref)


def test_links_bring_the_peers_metadata_to_who_asks_as_a_worker(client: Client) -> None:
    pair(client, tp=2)
    everything = client.get_links("p", "d")
    assert [(link.sender.worker_id, link.receiver.worker_id) for link in everything.links] == [
        ("p/dp0/pp0/tp0", "d/dp0/pp0/tp0"),
        ("p/dp0/pp0/tp1", "d/dp0/pp0/tp1"),
    ]
    assert not everything.peers
    own = client.get_links("d", "p", worker_id="d/dp0/pp0/tp1")
    assert [link.sender.worker_id for link in own.links] == ["p/dp0/pp0/tp1"]
    assert [span.group for span in own.links[0].spans] == ["aux", "kv", "kv"]
    [peer] = own.peers
    assert (peer.nixl_metadata, peer.layout) == (b"metadata of p 1", layout())


def test_a_lease_that_ends_takes_the_worker_and_its_rooms(client: Client) -> None:
    sender = Worker(client, "p", pb.ROLE_PREFILL, lease_ttl={"seconds": 1})
    receiver = Worker(client, "d", pb.ROLE_DECODE)
    sender.join(new_join(7))
    receiver.join(new_join(7, peer_engine_id="p", destination=destination(20, [3, 9])))
    with client.watch([7]) as watch:
        failed = next(
            answer.transfers[0] for answer in watch if answer.transfers and answer.transfers[0].failure.reason
        )
    assert failed.failure.reason == pb.FAILURE_REASON_LEASE_EXPIRED
    assert failed.failure.worker_id == sender.worker_id
    with pytest.raises(WorkerNotFound):
        client.heartbeat(sender.ref)


# --- rooms ---


def test_a_room_from_handshake_to_cleanup(client: Client, server: RunningServer) -> None:
    [(sender, receiver)] = pair(client)
    joined, joining = (
        new_join(7, request_id="r-1"),
        new_join(7, peer_engine_id="p", destination=destination(20, [3, 9])),
    )
    assert sender.join(joined).transfer.poll == pb.KV_POLL_BOOTSTRAPPING
    answer = receiver.join(joining)
    assert (answer.transfer.poll, answer.transfer.tokens) == (pb.KV_POLL_WAITING_FOR_INPUT, 20)
    assert not answer.offers
    [offer] = sender.join(joined).offers
    assert offer.destination == joining.destination
    [offerer] = offer.receivers
    assert (offerer.receiver.worker_id, offerer.offer_id) == (receiver.worker_id, joining.join_id)

    assert sender.report(joined, pb.KV_POLL_TRANSFERRING, transferred_bytes=64).poll == pb.KV_POLL_TRANSFERRING
    done = completion(7, sender.worker_id, offerer, joined.join_id, 2)
    update = sender.report(joined, pb.KV_POLL_SUCCESS, completions=[done])
    assert (update.poll, update.own_poll) == (pb.KV_POLL_TRANSFERRING, pb.KV_POLL_SUCCESS)
    assert list(receiver.join(joining).completions) == [done]
    assert receiver.report(joining, pb.KV_POLL_SUCCESS, completions=[done]).poll == pb.KV_POLL_SUCCESS

    for _ in range(3):  # polling removes nothing
        [transfer] = client.poll([7]).transfers
        assert (transfer.poll, transfer.request_id) == (pb.KV_POLL_SUCCESS, "r-1")
    assert abs(transfer.create_time.seconds - time.time()) < 60
    assert sender.cleanup(joined).state == pb.Release.STATE_FREE
    assert receiver.cleanup(joining).state == pb.Release.STATE_FREE
    assert receiver.cleanup(joining).state == pb.Release.STATE_FREE
    assert client.poll([7]).transfers[0].poll == pb.KV_POLL_SUCCESS
    assert server.sizes().open_rooms == 0


def test_the_late_rank_sees_success_after_rank_0_cleaned_up(client: Client) -> None:
    workers = pair(client, tp=3)
    joins = []
    for sender, receiver in workers:
        offer = new_join(7, peer_engine_id="p", destination=destination(20, [3, 9]))
        joins.append((new_join(7), offer))
        sender.join(joins[-1][0])
        receiver.join(offer)
    for (sender, receiver), (joined, joining) in zip(workers, joins, strict=True):
        [offer] = sender.join(joined).offers
        done = completion(7, sender.worker_id, offer.receivers[0], joined.join_id, 2)
        sender.report(joined, pb.KV_POLL_SUCCESS, completions=[done])
        receiver.report(joining, pb.KV_POLL_SUCCESS, completions=[done])
    assert states(client, 7)["d/dp0/pp0/tp0"] == pb.KV_POLL_SUCCESS
    assert workers[0][1].cleanup(joins[0][1]).state == pb.Release.STATE_FREE
    for rank in (1, 2):
        assert states(client, 7)[f"d/dp0/pp0/tp{rank}"] == pb.KV_POLL_SUCCESS
        assert workers[rank][1].cleanup(joins[rank][1]).state == pb.Release.STATE_FREE
    assert client.poll([7]).transfers[0].poll == pb.KV_POLL_SUCCESS


def test_polling_names_unknown_rooms_in_the_order_asked(client: Client) -> None:
    [(_, receiver)] = pair(client)
    receiver.join(new_join(7, peer_engine_id="p"))
    receiver.join(new_join(9, peer_engine_id="p"))
    answer = client.poll([9, 8, 7, 6])
    assert [transfer.room for transfer in answer.transfers] == [9, 7]
    assert list(answer.unknown_rooms) == [8, 6]
    assert not client.poll([7], view=pb.TRANSFER_VIEW_BASIC).transfers[0].participants


def test_one_bad_item_never_fails_the_others(client: Client) -> None:
    [(sender, _)] = pair(client)
    joined = new_join(7)
    sender.join(joined)
    good = pb.Progress(room=7, join_id=joined.join_id, poll=pb.KV_POLL_TRANSFERRING)
    unspecified = pb.Progress(room=7, join_id=joined.join_id)
    results = client.report(sender.ref, [pb.Progress(room=8, poll=pb.KV_POLL_TRANSFERRING), unspecified, good])
    assert isinstance(results[0], RoomNotFound)
    assert isinstance(results[1], InvalidField)
    assert (results[1].field, results[1].metadata["value"]) == ("progress.poll", "0")
    assert isinstance(results[2], pb.RoomUpdate)
    aborted = client.abort([7, 0, 8], "the caller hung up")
    assert [isinstance(result, KVTransferError) for result in aborted] == [False, True, False]
    released = client.cleanup(sender.ref, [pb.CleanupItem(room=-1), pb.CleanupItem(room=7, join_id=joined.join_id)])
    assert isinstance(released[0], InvalidField)
    assert released[1].state == pb.Release.STATE_FREE


def test_an_aborted_room_tells_why(client: Client) -> None:
    [(_, receiver)] = pair(client)
    receiver.join(new_join(7, peer_engine_id="p"))
    client.abort([7, 8], "the caller hung up")
    for room in (7, 8):
        [transfer] = client.poll([room]).transfers
        assert transfer.failure == pb.Failure(reason=pb.FAILURE_REASON_ABORTED, message="the caller hung up")
    answer = receiver.join(new_join(8, peer_engine_id="p"))
    assert answer.transfer.poll == pb.KV_POLL_FAILED
    assert answer.transfer.failure.reason == pb.FAILURE_REASON_ABORTED


def test_misfits_are_told_both_sides_in_the_same_words(client: Client) -> None:
    sender = Worker(client, "p", pb.ROLE_PREFILL, layout=layout(dtype="bfloat16"))
    receiver = Worker(client, "d", pb.ROLE_DECODE)
    sender.join(new_join(7))
    failure = receiver.join(new_join(7, peer_engine_id="p")).transfer.failure
    assert failure.reason == pb.FAILURE_REASON_LAYOUT_MISMATCH
    assert "layout.groups[kv].parts[k].dtype: prefill has bfloat16, decode has float16" in failure.message
    assert sender.join(new_join(8)).transfer.poll == pb.KV_POLL_BOOTSTRAPPING


def test_transfers_are_listed_newest_first_and_filtered(client: Client) -> None:
    [(_, receiver)] = pair(client)
    other = Worker(client, "e", pb.ROLE_DECODE)
    for room in range(1, 251):
        receiver.join(new_join(room, peer_engine_id="p", request_id=f"r-{room}"))
    other.join(new_join(1000, peer_engine_id="p"))
    client.abort([5])
    assert [transfer.room for transfer in client.list_transfers()] == [1000, *range(250, 0, -1)]
    assert [transfer.room for transfer in client.list_transfers(engine_id="e")] == [1000]
    assert [transfer.room for transfer in client.list_transfers(request_id="r-9")] == [9]
    failing = [transfer.room for transfer in client.list_transfers(polls=[pb.KV_POLL_FAILED])]
    assert failing == []  # asked to end, and its receiver has yet to answer
    assert len(list(client.list_transfers(polls=[pb.KV_POLL_BOOTSTRAPPING], engine_id="p"))) == 251
    assert not next(client.list_transfers()).participants
    assert next(client.list_transfers(view=pb.TRANSFER_VIEW_FULL)).participants


def test_server_info_tells_the_limits_in_force(connect: Connect) -> None:
    with RunningServer(max_open_rooms=5, vote=2.5, drain_grace=0.0) as server, connect(server.target) as client:
        info = client.get_server_info()
        assert info.version == __version__
        assert info.limits.open_rooms == 5
        assert (info.limits.vote.seconds, info.limits.vote.nanos) == (2, 500_000_000)
        assert info.limits.timeouts.total.seconds == 900
        assert info.limits.message_bytes == 4 << 20
        assert not info.limits.HasField("quarantine")  # only proof will do
        assert info.revision > 0
        assert info.server_id != ""


def test_a_superseded_epoch_is_refused_by_every_call_of_a_worker(client: Client) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    old = worker.ref
    worker.register()
    calls = (
        lambda: client.heartbeat(old),
        lambda: client.handshake(old, new_join(7)),
        lambda: client.report(old, []),
        lambda: client.cleanup(old, []),
    )
    for call in calls:
        with pytest.raises(StaleEpoch, match=f"epoch {worker.ref.epoch}, got {old.epoch}"):
            call()
    client.deregister_worker(old, drained=True)
    client.heartbeat(worker.ref)


def test_a_process_born_later_takes_the_rank_for_good(client: Client) -> None:
    older = Worker(client, "p", pb.ROLE_PREFILL)
    Worker(client, "p", pb.ROLE_PREFILL)
    with pytest.raises(StaleEpoch, match="born later"):
        client.register_worker(older.said)
