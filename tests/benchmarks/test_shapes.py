from dataclasses import replace

import numpy as np
import pytest

from benchmarks.pool import Pool, allocate
from benchmarks.shapes import LARGE_PIECES, SMALL_PIECES, Shape, contiguous, scattered

TINY = Shape("tiny", layers=2, piece_bytes=64, pages=3, pool_pages=10)


def received() -> Pool:
    """Pages 1, 4, 7 hold what a sender has in 2, 3, 9."""
    sender, receiver = Pool(TINY, filled=True), Pool(TINY, filled=False)
    receiver.memory[:, [1, 4, 7]] = sender.memory[:, [2, 3, 9]]
    return receiver


def test_the_shapes_are_those_that_are_promised() -> None:
    assert (SMALL_PIECES.descriptors, round(SMALL_PIECES.nbytes / 1e6)) == (3840, 24)
    assert (LARGE_PIECES.descriptors, round(LARGE_PIECES.nbytes / 1e6)) == (4096, 134)


@pytest.mark.parametrize("pages", [contiguous(SMALL_PIECES), scattered(LARGE_PIECES)])
def test_page_lists_name_distinct_pages_of_the_pool(pages) -> None:  # type: ignore[no-untyped-def] # a PageLists
    for listed in (pages.sources, pages.targets):
        assert len(set(listed)) == 64
        assert set(listed) <= set(range(256))
    runs = int(np.sum(np.diff(sorted(pages.targets)) != 1)) + 1
    assert (runs == 1) == (pages.name == "contiguous")


def test_pages_that_arrived_whole_are_right() -> None:
    assert received().wrong_pieces([1, 4, 7], [2, 3, 9]) == 0


def test_each_piece_with_one_wrong_byte_is_counted() -> None:
    pool = received()
    pool.memory.view(np.uint8)[3, 4, 63] ^= 1
    assert pool.wrong_pieces([1, 4, 7], [2, 3, 9]) == 1


def test_pages_in_the_wrong_order_are_wrong() -> None:
    assert received().wrong_pieces([1, 4, 7], [3, 2, 9]) == 2 * TINY.pieces


def test_a_cleared_page_is_wrong() -> None:
    pool = received()
    pool.clear([4])
    assert pool.wrong_pieces([1, 4, 7], [2, 3, 9]) == TINY.pieces


def test_a_write_outside_of_the_pages_is_noticed() -> None:
    pool = received()
    assert pool.touched_pieces([1, 4, 7]) == 0
    pool.memory[2, 0, 5] = 0
    assert pool.touched_pieces([1, 4, 7]) == 1


def test_a_page_of_a_page_major_pool_lies_in_one_piece() -> None:
    pool = Pool(replace(TINY, page_major=True, huge=True), filled=True)
    assert (pool.shape.tracks, pool.shape.item_bytes, pool.shape.descriptors) == (1, 4 * 64, 3)
    one_page = pool.base[3 * 4 * 8 : 4 * 4 * 8].reshape(4, 8)
    assert np.array_equal(one_page, pool.memory[:, 3])


def test_ranks_hold_different_bytes() -> None:
    sender, receiver = Pool(TINY, filled=True, rank=1), Pool(TINY, filled=False, rank=2)
    receiver.memory[:, 1] = sender.memory[:, 2]
    assert receiver.wrong_pieces([1], [2]) == TINY.pieces


def test_memory_tells_whether_it_got_huge_pages() -> None:
    assert allocate(64, huge=False)[1] == "small"
    memory, kind = allocate(4 << 20, huge=True)
    assert (memory.nbytes, kind in ("huge", "transparent huge")) == (4 << 20, True)
