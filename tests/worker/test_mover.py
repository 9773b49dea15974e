"""Transfers between two processes on real NIXL: which bytes arrive where, and what is told about it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from kvtransfer.actions import Items, Outcome, Post

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
