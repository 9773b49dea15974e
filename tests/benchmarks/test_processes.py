"""Children of a benchmark: what they hold is called, and what goes wrong in them is told."""

import os
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.processes import Child


class Counter:
    """Something to hold."""

    def __init__(self, start: int) -> None:
        if start < 0:
            raise ValueError(f"start: must be 0 or more, got {start}")
        self._count = start

    def add(self, more: int) -> int:
        """The sum so far."""
        self._count += more
        return self._count

    def speak(self) -> None:
        """As a library that writes to stdout."""
        print("from the library")

    def fail(self) -> None:
        """Raises."""
        raise LookupError("nothing here")

    def close(self) -> None:
        """Nothing to give back."""


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find Counter, too."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def test_calls_reach_one_and_the_same_object() -> None:
    with Child(Counter, 1) as child:
        assert child.call("add", 2) == 3
        child.begin("add", 4)
        assert child.end() == 7
        assert child.pid != os.getpid()


def test_an_error_comes_back_with_its_place_and_the_child_goes_on() -> None:
    with Child(Counter, 1) as child:
        with pytest.raises(RuntimeError, match=r"in fail\n(.|\n)*LookupError: nothing here"):
            child.call("fail")
        assert child.call("add", 1) == 2


def test_an_object_that_cannot_be_made_says_why() -> None:
    with Child(Counter, -1) as child, pytest.raises(RuntimeError, match="start: must be 0 or more, got -1"):
        child.call("add", 1)


def test_a_child_that_died_is_told() -> None:
    with Child(Counter, 1) as child:
        child.call("add", 1)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=f"process {child.pid} died"):
            child.call("add", 1)


def test_a_paused_child_answers_once_it_is_resumed() -> None:
    with Child(Counter, 1) as child:
        child.call("add", 1)
        child.pause()
        child.begin("add", 1)
        assert not child.ended()
        child.resume()
        assert child.end() == 3


def test_what_libraries_print_stays_out_of_the_report(capfd: pytest.CaptureFixture[str]) -> None:
    with Child(Counter, 1) as child:
        child.call("speak")
    sys.stdout.flush()
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "from the library" in printed.err
