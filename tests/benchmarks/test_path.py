"""The way of a room, seen step by step."""

import argparse

import pytest

from benchmarks import path


def test_each_step_takes_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    monkeypatch.setattr(path, "ROOMS", 10)
    rows = path.run(argparse.Namespace(rounds=2)).rows
    assert [row["step"] for row in rows] == [*(step for step, _ in path.STEPS), "the whole"]
    *steps, whole = (row["us"].median for row in rows)
    assert min(steps) > 0
    assert max(steps) < whole
