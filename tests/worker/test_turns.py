"""Threads that bring work or wait take the mover's turn themselves, and never wait for another's."""

from collections.abc import Iterator

import numpy as np
import pytest
from kvtransfer import v1 as pb
from kvtransfer.actions import NOTIFICATION_PREFIX, Items, Notify, Outcome, Post
from kvtransfer.mover import LENT_S
from kvtransfer.pacing import CLOSELY

from .pools import GroupSpec, PartSpec, copy_by_token
from .processes import Worker, connect, running

COUNT = 20
MOST = 15
"""Of COUNT: the mover's thread, which looks ten times a second, may come first now and then."""
KV = (GroupSpec("kv", 1, (PartSpec("kv", "whole", 0, 1024),), (0,), COUNT + 1),)


@pytest.fixture
def pair() -> Iterator[tuple[Worker, Worker]]:
    sender, receiver = Worker(KV, seed=1), Worker(KV, seed=2)
    with running(sender, receiver):
        connect(sender, receiver)
        yield sender, receiver


def post(sender: Worker, receiver: Worker, page: int) -> Post:
    return Post(sender.next_post(), receiver.name, (Items("kv", np.array([page]), np.array([page])),), None)


def notify(sender: Worker, receiver: Worker, room: int) -> None:
    payload = pb.Notification(completion=pb.Completion(room=room)).SerializeToString()
    sender.call("submit", Notify(receiver.name, NOTIFICATION_PREFIX + payload))


def expect_pages(sender: Worker, receiver: Worker, pages: range) -> None:
    (want,) = receiver.original()
    copy_by_token(sender.original()[0].views, want, ((page, page) for page in pages))
    np.testing.assert_array_equal(receiver.call("snapshot")[0][0], want.backing[0])


def test_who_lends_its_thread_writes_at_once(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    threads = []
    for page in range(COUNT):
        brought = post(sender, receiver, page)
        sender.call("lend", brought)
        ended = sender.wait("post_ended", brought.post_id)
        assert ended.args[1:3] == (Outcome.DONE, 1024)
        threads.append(ended.thread)
    assert threads.count("MainThread") >= MOST
    expect_pages(sender, receiver, range(COUNT))


def test_who_looks_is_told_what_has_arrived(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    threads: list[str] = []
    for room in range(2000):  # for a while after they met, the mover's thread looks as closely
        notify(sender, receiver, room)
        receiver.call("look_for", room + 1)
        heard = receiver.wait("notified")
        assert pb.Notification.FromString(heard.args[1]).completion.room == room
        threads.append(heard.thread)
        if threads[-COUNT:].count("MainThread") >= MOST:
            return
    pytest.fail("the mover's thread was nearly always first")


def test_many_looks_in_a_row_ask_nixl_now_and_then(pair: tuple[Worker, Worker]) -> None:
    _, receiver = pair
    polls, looks, seconds = receiver.call("look_often", 0.05)
    assert 1 <= looks <= min(polls - 1, seconds / CLOSELY + 1)


def test_nobody_waits_for_anothers_turn(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    held, brought = post(sender, receiver, 0), post(sender, receiver, 1)
    sender.call("hold_turn", held)
    sender.call("lend", brought)  # comes back, and so does a look, while the mover's thread is held
    sender.call("look_for", 0)
    assert [event for event in sender.events if event.name == "post_ended"] == []
    sender.call("reach", held.post_id)
    for each in (held, brought):
        assert sender.wait("post_ended", each.post_id).args[1] is Outcome.DONE
    expect_pages(sender, receiver, range(2))


def test_a_lent_thread_begins_no_further_write_after_a_while(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    threads: list[str] = []
    for _ in range(200):  # for a while after they met, the mover's thread is nearly always first
        if "MainThread" in threads:
            break
        brought = [post(sender, receiver, page) for page in range(COUNT)]
        threads = sender.call("lend_slowly", brought, 2 * LENT_S)
        for each in brought:
            assert sender.wait("post_ended", each.post_id).args[1] is Outcome.DONE
    assert threads.count("MainThread") == 1
    expect_pages(sender, receiver, range(COUNT))
    for page in range(COUNT):
        assert "MainThread" not in sender.call("lend_slowly", [post(sender, receiver, page)], 0.0), "it was kept long"


def test_a_lent_thread_asks_no_fence_for_it_might_block(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    asked = {sender.call("lend_fenced", post(sender, receiver, page)) for page in range(COUNT)}
    assert asked == {f"kvtransfer-mover-{sender.name[:8]}"}


def test_what_goes_wrong_in_a_lent_turn_ends_the_mover_and_not_its_caller(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    sender.call("raise_in", "post_ended")
    sender.call("lend", post(sender, receiver, 0))
    died = sender.wait("mover_died")
    assert died.args == ("RuntimeError: an event went wrong",)
    sender.call("look_for", 0)
    sender.call("lend", Notify(receiver.name, NOTIFICATION_PREFIX))


def test_what_a_signals_handler_raises_in_a_look_is_the_callers(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    receiver.call("interrupt_looks", 2000)
    notify(sender, receiver, 1)
    receiver.wait("notified")
    threads, _files, _took = receiver.call("close", 1.0)
    assert threads == []
    assert not [event for event in receiver.events if event.name == "mover_died"]
