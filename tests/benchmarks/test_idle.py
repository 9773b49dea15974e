"""Workers at rest, for a moment."""

import pytest

from benchmarks import idle


def test_each_state_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    monkeypatch.setattr(idle, "SETTLE_S", 0.1)
    rows = idle.measure(0.2, idle.Counts(rooms=10, filling=20, measured=200)).rows
    assert [row["state"] for row in rows] == [
        "no room open",
        "10 rooms wait for receivers",
        "10 rooms wait for senders",
    ]
    assert all(0 <= row["service_percent"] < 100 for row in rows)
