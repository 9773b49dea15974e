"""Waiting for what nothing announces."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    look: Callable[[], T], enough: Callable[[T], bool] = bool, within: float = 10.0, every: float = 0.005
) -> T:
    """Looks, every so many seconds, until what is seen is enough, and returns it; fails with what was seen last."""
    until = time.monotonic() + within
    while not enough(seen := look()):
        assert time.monotonic() < until, f"not within {within:g} s: {seen!r}"
        time.sleep(every)  # between two looks: other processes, Docker's containers too, tell nobody when they change
    return seen
