"""How posts, peers and movers end: between pieces, by the death or silence of a peer, by close."""

from collections.abc import Iterator

import numpy as np
import pytest
from kvtransfer import v1 as pb
from kvtransfer.actions import NOTIFICATION_PREFIX, AddPeer, DropPeer, Items, Notify, Outcome, Pace, Post
from kvtransfer.pacing import CLOSELY
from kvtransfer.plan import PIECE_BYTES, PIECE_DESCRIPTORS

from .pools import GroupSpec, PartSpec, copy_by_token, link
from .processes import Worker, add_peer, connect, running

PAGES = 5 * PIECE_DESCRIPTORS
KV = (GroupSpec("kv", 1, (PartSpec("kv", "whole", 0, 1024),), (0,), PAGES),)
"""Five pieces of `PIECE_DESCRIPTORS` pages."""
PIECE = PIECE_DESCRIPTORS * 1024
TOTAL = 5 * PIECE


def post(sender: Worker, receiver: Worker, pages: int) -> int:
    post_id = sender.next_post()
    items = Items("kv", np.arange(pages), np.arange(pages))
    sender.call("submit", Post(post_id, receiver.name, (items,), None))
    return post_id


def expect_pages(sender: Worker, receiver: Worker, moved: range) -> None:
    (want,) = receiver.original()
    copy_by_token(sender.original()[0].views, want, ((page, page) for page in moved))
    np.testing.assert_array_equal(receiver.call("snapshot")[0][0], want.backing[0])


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Worker, Worker]]:
    """A sender and a receiver over tcp, where no write ends before its target makes progress."""
    sender, receiver = (Worker(KV, seed=seed, timeout_s=1.0, tls="tcp") for seed in (1, 2))
    with running(sender, receiver):
        stats = connect(sender, receiver)
        assert stats.transport == "tcp"
        assert stats.bandwidth_bytes_s > 0
        assert stats.descriptors == {"kv": 1}
        receiver.call("submit", Pace(CLOSELY))
        yield sender, receiver


def test_a_refused_lease_check_leaves_whole_pieces(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    sender.call("refuse_at_piece", 3)
    post_id = post(sender, receiver, PAGES)
    ended = sender.wait("post_ended", post_id)
    assert ended.args == (post_id, Outcome.CANCELLED, 2 * PIECE, "the next piece was not allowed", False)
    expect_pages(sender, receiver, range(2 * PIECE_DESCRIPTORS))


def test_a_cancel_stops_after_the_piece_under_way(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    sender.call("cancel_at_piece", 3)
    post_id = post(sender, receiver, PAGES)
    assert sender.wait("post_ended", post_id).args == (post_id, Outcome.CANCELLED, 3 * PIECE, "", False)
    expect_pages(sender, receiver, range(3 * PIECE_DESCRIPTORS))


def test_progress_grows_up_to_the_end(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    sender.call("refuse_at_piece", None)
    post_id = post(sender, receiver, PAGES)
    assert sender.wait("post_ended", post_id).args == (post_id, Outcome.DONE, TOTAL, "", False)
    progress = [event.args[1] for event in sender.events if event.name == "post_progress" and event.args[0] == post_id]
    assert progress
    assert progress == sorted(set(progress))
    assert progress[-1] < TOTAL
    expect_pages(sender, receiver, range(PAGES))


def test_a_killed_peer_fails_its_posts_in_time_and_no_others(pair: tuple[Worker, Worker]) -> None:
    sender, other = pair
    killed = Worker(KV, seed=3, tls="tcp")
    with running(killed):
        connect(sender, killed)
        sender.call("refuse_at_piece", None)
        killed.pause()
        lost = post(sender, killed, PAGES)
        sender.call("wait_for_piece", 5)
        fine = post(sender, other, PAGES)
        assert sender.wait("post_ended", fine).args[1] is Outcome.DONE
        expect_pages(sender, other, range(PAGES))
        assert not [event for event in sender.events if event.name == "post_ended"]

        killed.kill()
        ended = sender.wait("post_ended", lost, within=8.0)
        assert ended.args[1] is Outcome.FAILED
        assert ended.args[4], "disconnected"
        assert "nixlRemoteDisconnectError" in ended.args[3]
        # The mover tries to reach it again, a bounded number of times; posts wait that long, and are refused then.
        late = post(sender, killed, 1)
        failed = sender.wait("peer_failed", killed.name)
        assert sender.wait("post_ended", late).args == (late, Outcome.REFUSED, 0, failed.args[1], False)
        again = post(sender, other, 1)
        assert sender.wait("post_ended", again).args[1] is Outcome.DONE


def test_a_dropped_peer_keeps_what_is_in_flight_to_its_end_and_can_be_met_again() -> None:
    pages = 5 * PIECE_BYTES // (2 << 20)  # One piece more than is put in flight at once.
    big = (GroupSpec("kv", 1, (PartSpec("kv", "whole", 0, 2 << 20),), (0,), pages),)
    sender, receiver = (Worker(big, seed=seed, tls="tcp") for seed in (1, 2))
    with running(sender, receiver):
        connect(sender, receiver)
        receiver.call("submit", Pace(CLOSELY))
        receiver.pause()
        begun = post(sender, receiver, pages)
        sender.call("wait_for_piece", 4)
        sender.call("submit", DropPeer(receiver.name))
        refused = post(sender, receiver, 1)
        assert sender.wait("post_ended", refused).args[1] is Outcome.REFUSED
        add_peer(sender, receiver, [link(sender.name, receiver.name, sender.layout)])
        assert not [event for event in sender.events if event.name in ("post_ended", "peer_ready")]

        receiver.resume()
        ended = sender.wait("post_ended", begun)
        assert ended.args[1:3] == (Outcome.REFUSED, 4 * PIECE_BYTES)
        expect_pages(sender, receiver, range(4 * pages // 5))
        sender.wait("peer_ready", receiver.name)
        whole = post(sender, receiver, pages)
        assert sender.wait("post_ended", whole).args[1] is Outcome.DONE


def test_a_peer_that_never_answers_is_given_up_and_holds_nobody_else_up(pair: tuple[Worker, Worker]) -> None:
    sender, other = pair
    silent = Worker(KV, seed=4, tls="tcp")
    with running(silent):
        links = [link(sender.name, silent.name, sender.layout)]
        add_peer(sender, silent, links)
        waiting = post(sender, silent, 4)
        fine = post(sender, other, 4)
        assert sender.wait("post_ended", fine).args[1] is Outcome.DONE
        error = sender.wait("peer_failed", silent.name).args[1]
        assert "did not answer within 1.0 s" in error
        assert sender.wait("post_ended", waiting).args == (waiting, Outcome.REFUSED, 0, error, False)
        # It comes to life: its Hello is enough.
        add_peer(silent, sender, links)
        sender.wait("peer_ready", silent.name)
        silent.wait("peer_ready", sender.name)
        post_id = post(sender, silent, PAGES)
        assert sender.wait("post_ended", post_id).args[1] is Outcome.DONE
        expect_pages(sender, silent, range(PAGES))


def test_metadata_of_another_process_is_refused(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    impostor = pb.Peer(instance_id="impostor")
    sender.call("submit", AddPeer(impostor, receiver.layout, receiver.metadata, ()))
    sender.call("submit", AddPeer(pb.Peer(instance_id="garbage"), receiver.layout, b"garbage", ()))
    assert f"NIXL metadata of agent '{receiver.name}'" in sender.wait("peer_failed", "impostor").args[1]
    sender.wait("peer_failed", "garbage")
    # The peer whose metadata it was is as well as before.
    post_id = post(sender, receiver, 4)
    assert sender.wait("post_ended", post_id).args[1] is Outcome.DONE


def test_close_leaves_no_thread_no_socket_and_no_post() -> None:
    sender, receiver = (Worker(KV, seed=seed) for seed in (1, 2))
    with running(sender, receiver):
        connect(sender, receiver)
        done = post(sender, receiver, PAGES)
        sender.wait("post_ended", done)
        waiting = sender.next_post()
        items = (Items("kv", np.arange(1), np.arange(1)),)
        sender.call("submit_fenced", Post(waiting, receiver.name, items, None))
        for worker in (receiver, sender):
            threads, files, _took = worker.call("close", 5.0)
            assert (threads, files) == ([], [])
        assert sender.wait("post_ended", waiting).args[1:3] == (Outcome.CANCELLED, 0)


def test_close_waits_no_longer_than_told_for_a_stopped_peer() -> None:
    sender, receiver = (Worker(KV, seed=seed, tls="tcp") for seed in (1, 2))
    with running(sender, receiver):
        connect(sender, receiver)
        receiver.pause()
        stuck = post(sender, receiver, PAGES)
        sender.call("wait_for_piece", 1)
        threads, files, took = sender.call("close", 1.0)
        assert (threads, files) == ([], [])
        assert 1.0 <= took < 6.0
        ended = sender.wait("post_ended", stuck)
        assert ended.args[1] is Outcome.FAILED
        assert ended.args[3] == "the mover was closed"


def test_an_unexpected_error_is_told_and_leaves_nothing(pair: tuple[Worker, Worker]) -> None:
    sender, _other = pair
    receiver = Worker(KV, tls="tcp")
    with running(receiver):
        connect(sender, receiver)
        receiver.call("raise_in", "notified")
        sender.call("submit", Notify(receiver.name, NOTIFICATION_PREFIX + pb.Notification().SerializeToString()))
        assert receiver.wait("mover_died").args == ("RuntimeError: an event went wrong",)
        threads, files, _took = receiver.call("close", 1.0)
        assert (threads, files) == ([], [])


def test_start_raises_where_nixl_cannot_start() -> None:
    worker = Worker(KV, tls="cma")  # Notifications need tcp, or another network.
    try:
        with pytest.raises(RuntimeError, match="nixlBackendError"):
            worker.start()
    finally:
        worker.exit()
