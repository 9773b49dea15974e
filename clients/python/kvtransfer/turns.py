"""Turns at what only one thread at a time may touch."""

import threading
from collections.abc import Callable


class Turns:
    """From `begin` to `end`. An exception in a turn is the last: it is kept, and nobody gets another turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._holder = 0
        self.error: BaseException | None = None
        """What ended them, if something did."""

    def begin(self) -> None:
        """Now they can be had."""
        self._lock.release()

    @property
    def mine(self) -> bool:
        """Whether the calling thread has the turn: it is inside of it, or a signal's handler that came in its midst."""
        return self._holder == threading.get_ident()

    def take(self, turn: Callable[[], object]) -> None:
        """Waits for the turn, and does what is to be done in it."""
        self._lock.acquire()
        self._run(turn)

    def try_take(self, turn: Callable[[], object]) -> None:
        """The same, unless another thread has the turn."""
        if self._lock.acquire(blocking=False):
            self._run(turn)

    def end(self) -> None:
        """Waits for the turn under way; there is none after it."""
        self._lock.acquire()

    def _run(self, turn: Callable[[], object]) -> None:
        try:
            self._holder = threading.get_ident()
            if self.error is None:
                turn()
        except Exception as error:  # noqa: BLE001  whatever it is, it is told where they end; Ctrl-C is the caller's
            self.error = error
        finally:
            self._holder = 0
            self._lock.release()
