"""The benchmark on two real workers, with a prompt of a few kilobytes."""

import json
import subprocess
import sys

import pytest

from benchmarks import transfer
from benchmarks.pair import WrongBytes, running
from benchmarks.shapes import Shape, contiguous, scattered

TINY = Shape("tiny", layers=2, piece_bytes=512, pages=3, pool_pages=10)


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")


def test_each_case_gets_a_row_with_its_speeds_and_ratios() -> None:
    rows = json.loads(transfer.measure([(TINY, (contiguous(TINY), scattered(TINY)))], rounds=7).to_json())["rows"]
    assert [(row["pages"], row["bytes"], row["descriptors"]) for row in rows] == [
        ("contiguous", 6144, 12),
        ("scattered", 6144, 12),
    ]
    for row in rows:
        assert row["room_gb_s"]["count"] == 7
        # A room contains its write, and the write what raw NIXL has to do too, but for noise.
        assert 0 < row["room_gb_s"]["median"] < row["write_gb_s"]["median"]
        assert 0 < row["room_to_raw"]["median"] < 1
        # What was joined before need not be joined while somebody waits.
        assert row["room_gb_s"]["median"] < row["awaited_gb_s"]["median"] < row["write_gb_s"]["median"]


def test_a_page_that_does_not_hold_what_was_sent_ends_the_benchmark() -> None:
    pages = contiguous(TINY)
    with running(TINY) as pair:
        pair.checked_transfer([pages.sources], [pages.targets], 1)
        pair.decode.call("clear", pages.targets[-1:])
        with pytest.raises(WrongBytes, match="4 pieces"):
            pair.check(pages.targets, pages.sources)


def test_too_few_rounds_are_refused_by_name_and_value() -> None:
    command = [sys.executable, "-m", "benchmarks", "transfer", "--rounds", "6"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == "--rounds: must be at least 7, got 6\n"
