"""Time that stands still while this process does."""

import time
from collections.abc import Callable

TICK = 0.25
"""Seconds between two readings while the service runs, at most."""

STRAY = 0.05
"""Seconds that the wall clock may stray from what was told, so that a room's times do not differ from call to call."""


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Clock:
    """Seconds on CLOCK_BOOTTIME, less those in which nobody read it although somebody should have.

    A service that was stopped, or a machine that was suspended, could not hear its workers meanwhile: every deadline
    moves by as much.
    """

    def __init__(self, read: Callable[[], float] = _since_boot, wall: Callable[[], float] = time.time) -> None:
        self._read = read
        self._wall = wall
        self._last = read()
        self._lost = 0.0
        self._wall_offset = 0.0

    def now(self) -> float:
        """Never goes back. To be called every TICK at least."""
        read = self._read()
        gap, self._last = read - self._last, read
        if gap > 2 * TICK:
            self._lost += gap - TICK
        return read - self._lost

    def wall_offset(self) -> float:
        """What to add to a recent instant of this clock to get seconds since 1970."""
        offset = self._wall() - self.now()
        if abs(offset - self._wall_offset) > STRAY:
            self._wall_offset = offset
        return self._wall_offset
