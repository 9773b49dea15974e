"""Whole transfers between two processes: right bytes, nothing else touched, everything given back."""

import uuid
from collections.abc import Iterator

import numpy as np
import pytest
from kvtransfer import KVPoll

from tests.e2e.server import Running
from tests.e2e.workers import AUX, Setup, Worker, engines, same
from tests.waiting import wait_for
from tests.worker.pools import GroupSpec, PartSpec, build, copy_by_token

PARTS = (PartSpec("k", "token_head", 3, 64), PartSpec("v", "token_head", 3, 32))
SPECS = (
    GroupSpec("page1", 1, PARTS, (0, 1), 300, "page_major"),
    GroupSpec("page16", 16, PARTS, (0, 1, 2), 40),
    GroupSpec("page64", 64, (PartSpec("kv", "head_token", 2, 32),), (0, 5), 24, "gapped"),
    AUX,
)
PAGED = {spec.name: spec.page_tokens for spec in SPECS if spec.page_tokens}
LEAST = max(PAGED.values())


@pytest.fixture(scope="module")
def pair(server: Running) -> Iterator[tuple[Worker, Worker]]:
    name = uuid.uuid4().hex[:8]
    with engines(
        Setup(server.target, f"p-{name}", "prefill", specs=SPECS, seed=1),
        Setup(server.target, f"d-{name}", "decode", specs=SPECS, seed=50),
    ) as (sender, receiver):
        yield sender, receiver


def draw_pages(
    tokens: int, prefix: int, shuffled: bool, seed: int
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Pages of the sender (all tokens) and of the receiver (those after the prefix)."""
    rng = np.random.default_rng(seed)
    sides: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for spec in SPECS[:3]:
        whole = -(-tokens // spec.page_tokens)
        for side, count in zip(sides, (whole, whole - prefix // spec.page_tokens), strict=True):
            order = rng.permutation(spec.items) if shuffled else np.arange(spec.items)
            side[spec.name] = order[:count].tolist()
    return sides


@pytest.mark.parametrize(
    ("tokens", "prefix", "chunks", "shuffled"),
    [
        (1, 0, [], True),
        (64, 0, [], False),
        (100, 0, [], True),  # ends in the middle of a page
        (255, 0, [64, 128], True),
        (256, 0, [128], False),
        (200, 128, [64, 64], True),  # the receiver has the first two chunks already
        (130, 64, [], False),
    ],
)
def test_bytes(pair: tuple[Worker, Worker], tokens: int, prefix: int, chunks: list[int], shuffled: bool) -> None:
    sender, receiver = pair
    room = 1000 * tokens + prefix + 1
    sources, targets = draw_pages(tokens, prefix, shuffled, room)
    before = receiver.call("snapshot")

    receiver.call("receiver", room, sender.setup.engine_id)
    receiver.call("offer", room, tokens, targets, slots={"aux": 5}, prefix_tokens=prefix)
    sender.call("sender", room, tokens)
    done = 0
    for chunk in chunks:
        pages = {name: sources[name][done // page : (done + chunk) // page] for name, page in PAGED.items()}
        sender.call("send", room, pages, tokens=chunk)
        done += chunk
    rest = {name: sources[name][done // page :] for name, page in PAGED.items()}
    sender.call("send", room, rest, slots={"aux": 9}, last=True)
    receiver.wait_poll(room, KVPoll.SUCCESS)
    sender.wait_poll(room, KVPoll.SUCCESS)

    after = receiver.call("snapshot")
    assert same(after, expected_after(sender, before, sources, targets, prefix))
    assert same(sender.call("snapshot"), sender.original())
    for worker, pages, slot in ((sender, sources, 9), (receiver, targets, 5)):
        worker.call("close_room", room)
        (released,) = worker.wait_released()
        assert (released.room, released.pages, released.slots) == (room, pages, {"aux": slot})
        assert not released.presumed


def expected_after(sender, before, sources, targets, prefix):  # type: ignore[no-untyped-def]
    """What a copy by token and head makes of the receiver's memory."""
    pools = [build(spec, 50 + i) for i, spec in enumerate(SPECS)]
    sent = {spec.name: build(spec, 1 + i) for i, spec in enumerate(SPECS)}
    for pool, arrays in zip(pools, before, strict=True):
        for array, was in zip(pool.backing, arrays, strict=True):
            array[:] = was
        name, page = pool.spec.name, pool.spec.page_tokens
        pairs = [(9, 5)] if not page else list(zip(sources[name][prefix // page :], targets[name], strict=True))
        copy_by_token(sent[name].views, pool, pairs)
    return [pool.backing for pool in pools]


def test_zero_pages(pair: tuple[Worker, Worker]) -> None:
    """All tokens are there already: no page moves, the slot does."""
    sender, receiver = pair
    room, before = 7, receiver.call("snapshot")
    sender.call("sender", room, 37)
    sender.call("send", room, draw_pages(37, 0, True, 3)[0], slots={"aux": 1}, last=True)
    receiver.call("receiver", room, sender.setup.engine_id)
    receiver.call("offer", room, 37, {}, slots={"aux": 2}, prefix_tokens=37)
    receiver.wait_poll(room, KVPoll.SUCCESS)
    after = receiver.call("snapshot")
    assert same(after[:3], before[:3])
    assert np.array_equal(after[3][0][2], sender.original()[3][0][1])
    for worker in pair:
        worker.call("close_room", room)
        worker.wait_released()


def test_memory_is_read_when_its_fence_is_reached(pair: tuple[Worker, Worker]) -> None:
    sender, receiver = pair
    room = 8
    sources, targets = draw_pages(16, 0, False, 4)
    receiver.call("receiver", room, sender.setup.engine_id)
    receiver.call("offer", room, 16, targets, slots={"aux": 2})
    sender.call("sender", room, 16)
    sender.call("send_fenced", room, sources, 0.5, slots={"aux": 1}, last=True)
    sender.call("write", 3, 0, 1, 77)  # after send(), before the fence
    receiver.wait_poll(room, KVPoll.SUCCESS)
    assert (receiver.call("snapshot")[3][0][2] == 77).all()
    sender.call("write", 3, 0, 1, 0)
    for worker in pair:
        worker.call("close_room", room)
        worker.wait_released()


def test_everything_is_empty_in_the_end(server: Running, pair: tuple[Worker, Worker]) -> None:
    """After the tests above and the retention, no table holds anything of them."""
    for worker in pair:
        wait_for(lambda worker=worker: worker.call("open_rooms"), lambda count: count == 0)  # type: ignore[misc]
    sizes = wait_for(server.sizes, lambda sizes: sizes.rooms == 0)
    assert (sizes.open_rooms, sizes.pending_pages) == (0, 0)
    for worker in pair:
        assert worker.call("close") == []
    sizes = wait_for(server.sizes, lambda sizes: sizes.instances == 0)
    assert (sizes.engines, sizes.workers, sizes.timers) == (0, 0, 0)
