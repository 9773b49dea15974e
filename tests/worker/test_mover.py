"""Transfers between two processes on real NIXL: which bytes arrive where, and what is told about it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from kvtransfer import v1 as pb
from kvtransfer.actions import NOTIFICATION_PREFIX, Cancel, Drain, Items, Notify, Outcome, Pace, Post
from kvtransfer.pacing import CLOSELY, SELDOM

from .pools import GroupSpec, PartSpec, copy_by_token
from .processes import Worker, connect, running

KV_PARTS = (PartSpec("k", "token_head", 3, 64), PartSpec("v", "token_head", 3, 64))
LAYERS = tuple(range(4))
GROUPS = (
    GroupSpec("kv", 16, KV_PARTS, LAYERS, 64),
    GroupSpec("fine", 1, KV_PARTS, LAYERS, 64, "page_major_gapped"),
    GroupSpec("coarse", 64, (PartSpec("kv", "head_token", 2, 32),), LAYERS, 64, "page_major"),
    GroupSpec("mla", 16, (PartSpec("latent", "whole", 0, 96),), LAYERS, 64, "gapped"),
    GroupSpec("aux", 0, (PartSpec("first_token", "whole", 0, 400),), (0,), 16),
)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Worker, Worker]]:
    """A sender and a receiver whose pools are arranged differently, met and warmed up."""
    receiving = [replace(group, items=group.items + 9) for group in GROUPS]
    sender, receiver = Worker(GROUPS, seed=1), Worker(receiving, seed=100)
    with running(sender, receiver):
        connect(sender, receiver)
        yield sender, receiver


def post(sender: Worker, receiver: Worker, *items: Items) -> int:
    post_id = sender.next_post()
    sender.call("submit", Post(post_id, receiver.name, items, None))
    return post_id


def scattered(group: GroupSpec, count: int, seed: int) -> Items:
    rng = np.random.default_rng(seed)
    return Items(group.name, rng.permutation(group.items)[:count], rng.permutation(group.items + 9)[:count])


def contiguous(group: GroupSpec, count: int, seed: int) -> Items:
    return Items(group.name, np.arange(count) + seed, np.arange(count) + 5)


def expect_moved(sender: Worker, receiver: Worker, before: list[list[np.ndarray]], items: list[Items]) -> None:
    """The receiver's memory is what it was, gaps and other groups too, but for the items that a slow copy changes."""
    sent = {pool.spec.name: pool for pool in sender.original()}
    expected = receiver.original()
    for pool, arrays in zip(expected, before, strict=True):
        for array, was in zip(pool.backing, arrays, strict=True):
            array[:] = was
    for each in items:
        pool = next(pool for pool in expected if pool.spec.name == each.group)
        pairs = zip(each.sender.tolist(), each.receiver.tolist(), strict=True)
        copy_by_token(sent[each.group].views, pool, pairs)
    for pool, arrays in zip(expected, receiver.call("snapshot"), strict=True):
        for want, got in zip(pool.backing, arrays, strict=True):
            np.testing.assert_array_equal(got, want, err_msg=pool.spec.name)


@pytest.mark.parametrize("pages", [contiguous, scattered])
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_the_pages_posted_arrive_and_nothing_else_is_touched(
    pair: tuple[Worker, Worker], group: GroupSpec, pages: object
) -> None:
    sender, receiver = pair
    before = receiver.call("snapshot")
    items = pages(group, 11, seed=3)
    post_id = post(sender, receiver, items)
    ended = sender.wait("post_ended", post_id)
    item_bytes = sum(p.dim * max(1, p.heads) * max(1, group.page_tokens) for p in group.parts) * len(group.layers)
    assert ended.args == (post_id, Outcome.DONE, 11 * item_bytes, "", False)
    expect_moved(sender, receiver, before, [items])


def test_several_groups_go_in_one_post_with_pages_in_any_order(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    before = receiver.call("snapshot")
    items = [scattered(group, count, seed=count) for group, count in zip(GROUPS, (40, 33, 7, 21, 1), strict=True)]
    post_id = post(sender, receiver, *items)
    assert sender.wait("post_ended", post_id).args[1] is Outcome.DONE
    expect_moved(sender, receiver, before, items)


def test_no_items_are_done_at_once_even_for_a_peer_never_met(pair: tuple[Worker, Worker]) -> None:
    sender, _receiver = pair
    nothing = Items("kv", np.empty(0, np.int64), np.empty(0, np.int64))
    for post_id, items in ((sender.next_post(), (nothing,)), (sender.next_post(), ())):
        sender.call("submit", Post(post_id, "nobody", items, None))
        assert sender.wait("post_ended", post_id).args == (post_id, Outcome.DONE, 0, "", False)


def test_nothing_is_read_before_the_fence_is_reached(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    before = receiver.call("snapshot")
    items = scattered(GROUPS[0], 5, seed=77)
    fenced = sender.next_post()
    sender.call("submit_fenced", Post(fenced, receiver.name, (items,), None))
    # Another post, taken up later, is over first.
    later = post(sender, receiver, contiguous(GROUPS[4], 1, seed=0))
    assert sender.wait("post_ended", later).args[1] is Outcome.DONE
    assert not [event for event in sender.events if event.args[0] == fenced]

    sender.call("reach", fenced)
    assert sender.wait("post_ended", fenced).args[1] is Outcome.DONE
    expect_moved(sender, receiver, before, [items, contiguous(GROUPS[4], 1, seed=0)])


def test_a_fence_that_raises_ends_its_post_alone(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    before = receiver.call("snapshot")
    post_id = sender.next_post()
    sender.call("submit_broken", Post(post_id, receiver.name, (scattered(GROUPS[0], 5, seed=1),), None))
    ended = sender.wait("post_ended", post_id)
    assert ended.args[1:3] == (Outcome.REFUSED, 0)
    assert "ValueError('the kernel failed')" in ended.args[3]
    expect_moved(sender, receiver, before, [])


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (Items("kv", np.array([64]), np.array([0])), "items[kv].sender[0]: index 64 is outside the 64 items"),
        (Items("kv", np.array([0]), np.array([73])), "items[kv].receiver[0]: index 73 is outside the 73 items"),
        (Items("swa", np.array([0]), np.array([0])), "items[swa]: the link has no such group"),
    ],
)
def test_items_outside_the_link_are_refused_and_touch_nothing(
    pair: tuple[Worker, Worker], items: Items, words: str
) -> None:
    sender, receiver = pair
    before = receiver.call("snapshot")
    post_id = post(sender, receiver, items)
    ended = sender.wait("post_ended", post_id)
    assert ended.args[1:3] == (Outcome.REFUSED, 0)
    assert words in ended.args[3]
    expect_moved(sender, receiver, before, [])


def test_a_post_to_a_stranger_is_refused(pair: tuple[Worker, Worker]) -> None:
    sender, _receiver = pair
    post_id = sender.next_post()
    sender.call("submit", Post(post_id, "nobody", (contiguous(GROUPS[0], 1, seed=0),), None))
    assert sender.wait("post_ended", post_id).args == (post_id, Outcome.REFUSED, 0, "no such peer: nobody", False)


def test_a_receiver_cannot_post_back(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    post_id = post(receiver, sender, contiguous(GROUPS[0], 1, seed=0))
    assert receiver.wait("post_ended", post_id).args[1:3] == (Outcome.REFUSED, 0)


def test_a_cancelled_post_that_waits_for_its_fence_writes_nothing(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    before = receiver.call("snapshot")
    post_id = sender.next_post()
    sender.call("submit_fenced", Post(post_id, receiver.name, (scattered(GROUPS[0], 5, seed=2),), None))
    sender.call("submit", Cancel(post_id))
    assert sender.wait("post_ended", post_id).args == (post_id, Outcome.CANCELLED, 0, "", False)
    sender.call("reach", post_id)
    sender.call("submit", Cancel(post_id))  # of a post that has ended: nothing
    expect_moved(sender, receiver, before, [])


def test_a_refused_lease_check_stops_before_the_next_piece(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    before = receiver.call("snapshot")
    sender.call("refuse_at_piece", 1)
    post_id = post(sender, receiver, scattered(GROUPS[0], 5, seed=2))
    ended = sender.wait("post_ended", post_id)
    sender.call("refuse_at_piece", None)
    assert ended.args[1:3] == (Outcome.CANCELLED, 0)
    expect_moved(sender, receiver, before, [])


@pytest.mark.parametrize("pause", [CLOSELY, SELDOM])
def test_notifications_arrive_in_order_and_a_drain_leaves_none(pair: tuple[Worker, Worker], pause: float) -> None:
    sender, receiver = pair
    receiver.call("submit", Pace(pause))
    payloads = [pb.Notification(completion=pb.Completion(room=room)).SerializeToString() for room in range(50)]
    sender.call("submit", Notify(receiver.name, b"OTHER not ours"))
    for payload in payloads:
        sender.call("submit", Notify(receiver.name, NOTIFICATION_PREFIX + payload))
    for payload in payloads:
        assert receiver.wait("notified").args == (sender.name, payload)
    receiver.call("submit", Drain(7))
    receiver.wait("drained", 7)
    assert [event for event in receiver.events if event.name == "notified"] == []
    receiver.call("submit", Pace(SELDOM))


def test_a_notification_to_a_stranger_is_dropped(pair: tuple[Worker, Worker]) -> None:
    sender, _receiver = pair
    sender.call("submit", Notify("nobody", NOTIFICATION_PREFIX + b"x"))
    sender.call("submit", Drain(8))
    sender.wait("drained", 8)


def test_a_last_post_tells_its_receiver_once_every_byte_is_written_and_else_never(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    items = contiguous(GROUPS[0], 3, seed=0)
    before = receiver.call("snapshot")

    def last(room: int) -> int:
        post_id = sender.next_post()
        completion = pb.Completion(room=room, sender="s", bytes=1000)  # an earlier post's
        sender.call("submit", Post(post_id, receiver.name, (items,), None, completion))
        return post_id

    sender.call("refuse_at_piece", 1)
    refused = last(1)
    assert sender.wait("post_ended", refused).args[1] is Outcome.CANCELLED
    sender.call("refuse_at_piece", None)
    written = last(2)
    moved = sender.wait("post_ended", written).args[2]
    heard = pb.Notification.FromString(receiver.wait("notified").args[1])
    assert heard.completion == pb.Completion(room=2, sender="s", bytes=1000 + moved)
    expect_moved(sender, receiver, before, [items])
