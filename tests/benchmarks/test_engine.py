"""Steps of an engine's thread beside a real worker."""

import pytest

from benchmarks import engine
from benchmarks.stepping import Work


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")


def test_a_wait_for_a_core_is_not_held_against_a_step() -> None:
    work = Work()
    work.note_step(took=0.0002, waited=0.0)
    work.note_step(took=0.0302, waited=0.030)
    assert work.rate == pytest.approx(5000)
    assert work.rate_by_clock == pytest.approx(2 / 0.0304)
    assert (work.longest, work.long) == (pytest.approx(0.0002), 0)
    work.note_step(took=0.007, waited=0.001)
    assert (work.longest, work.long) == (pytest.approx(0.006), 1)


def test_a_decode_engine_makes_steps_while_its_rooms_come_and_go() -> None:
    row = engine.measure("decode", rounds=2, seconds=0.2)
    assert row["side"] == "decode"
    # 0.2 s at 20 rooms a second, in two rounds.
    assert row["room_within_ms"].count == row["room_beside_ms"].count == 8
    assert row["steps_per_s"].median > 500  # a step takes about 0.2 ms
