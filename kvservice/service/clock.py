"""Time that stands still while this process does."""

import time
from collections.abc import Callable

TICK = 0.25
"""Seconds between two readings while the service runs, at most."""


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Seconds on CLOCK_BOOTTIME, less those in which nobody read it although somebody should have.

    A service that was stopped, or a machine that was suspended, could not hear its workers meanwhile: every deadline
    moves by as much.
    """

    def __init__(self, read: Callable[[], float] = _since_boot) -> None:
        self._read = read
        self._last = read()
        self._lost = 0.0

    def now(self) -> float:
        """Never goes back. To be called every TICK at least."""
        read = self._read()
        gap, self._last = read - self._last, read
        if gap > 2 * TICK:
            self._lost += gap - TICK
        return read - self._lost

    def wall_offset(self) -> float:
        """What to add to a recent instant of this clock to get seconds since 1970."""
        return time.time() - self.now()
