"""Pools in torch tensors, on the CPU: equal to those in plain memory, and checked as thoroughly."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import transfer
from benchmarks.device_pool import DevicePool, pool_for
from benchmarks.pool import Pool
from benchmarks.shapes import Shape, scattered

TINY = Shape("tiny", layers=2, piece_bytes=64, pages=3, pool_pages=10, device="cpu")


@pytest.fixture(params=[False, True], ids=["layer-major", "page-major"])
def shape(request: pytest.FixtureRequest) -> Shape:
    return replace(TINY, page_major=request.param)


def received(shape: Shape) -> DevicePool:
    """Pages 1, 4, 7 hold what a sender has in 2, 3, 9."""
    sender, receiver = DevicePool(shape, filled=True), DevicePool(shape, filled=False)
    receiver.memory[:, [1, 4, 7]] = sender.memory[:, [2, 3, 9]]
    return receiver


@pytest.mark.parametrize("filled", [False, True])
def test_it_holds_what_a_pool_in_plain_memory_holds(shape: Shape, filled: bool) -> None:
    pool, plain = DevicePool(shape, filled=filled), Pool(shape, filled=filled)
    assert np.array_equal(pool.base.numpy().view(np.uint64), plain.base)
    assert (pool.extent.nbytes, pool.extent.kind) == (plain.extent.nbytes, "dram")


def test_each_piece_with_one_wrong_bit_is_counted(shape: Shape) -> None:
    pool = received(shape)
    assert pool.wrong_pieces([1, 4, 7], [2, 3, 9]) == 0
    pool.memory[3, 4, 7] ^= 1
    assert pool.wrong_pieces([1, 4, 7], [2, 3, 9]) == 1
    pool.clear([1])
    assert pool.wrong_pieces([1, 4, 7], [2, 3, 9]) == 1 + 4


def test_pieces_that_were_no_room_s_are_counted(shape: Shape) -> None:
    pool = received(shape)
    assert pool.touched_pieces([1, 4, 7]) == 0
    assert pool.touched_pieces([1, 4]) == 4


def test_a_shape_without_a_device_has_plain_memory() -> None:
    assert isinstance(pool_for(replace(TINY, device=""), filled=True), Pool)


def test_the_benchmark_moves_it(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    (row,) = transfer.measure([(shape, (scattered(shape),))], rounds=7).rows
    assert row["memory"] == "cpu"
    assert row["room_gb_s"].median > 0  # type: ignore[attr-defined] # a Spread
