"""Tails of real rooms."""

import argparse

import pytest

from benchmarks import tail


def test_a_tail_is_longer_than_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    (row,) = tail.run(argparse.Namespace(rounds=2)).rows
    assert row["rooms"] == 2 * tail.ROOMS
    assert row["tail_p99_us"].median >= row["tail_p50_us"].median > 0
    assert row["notification_us"].median > 0
