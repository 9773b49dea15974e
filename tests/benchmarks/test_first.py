"""First rooms of real workers."""

import argparse

import pytest

from benchmarks import first


def test_each_new_pair_has_a_first_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    (row,) = first.run(argparse.Namespace(pairs=2)).rows
    assert row["first_ms"].count == row["warm_ms"].count == 2
    # Of two, a median is the mean.
    assert row["extra_ms"].median == pytest.approx(row["first_ms"].median - row["warm_ms"].median)
    assert row["warm_ms"].low > 0
