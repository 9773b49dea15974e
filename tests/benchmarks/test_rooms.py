"""Rooms of several ranks, on real workers."""

import json

import pytest

from benchmarks import rooms
from benchmarks.shapes import Shape

TINY = Shape("tiny", layers=1, piece_bytes=512, pages=1, pool_pages=10, ranks=2)


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")


def test_each_level_of_two_ranks_a_side_gets_a_row() -> None:
    rows = json.loads(rooms.measure([TINY], rounds=2, rooms=10).to_json())["rows"]
    assert [(row["ranks"], row["in_flight"]) for row in rows] == [(2, 1), (2, 4), (2, 16), (2, 64)]
    for row in rows:
        # A room takes longer than its floor, as both its messages and its write are in it.
        assert row["p50_to_floor"]["median"] > 1
        assert row["p99_ms"]["median"] >= row["p50_ms"]["median"] > 0
