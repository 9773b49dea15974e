"""Turns at what only one thread at a time may touch."""

import threading
from collections.abc import Callable
from functools import partial


class Turns:
    """From `begin` to `end`. An exception in a turn that is taken ends them: it is kept, and no other follows."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open = False
        self._holder = 0
        self.error: BaseException | None = None
        """What ended them, if something did."""

    def begin(self) -> None:
        """Now they can be had."""
        self._open = True

    @property
    def mine(self) -> bool:
        """Whether the calling thread has the turn: it is inside of it, or a signal's handler that came in its midst."""
        return self._holder == threading.get_ident()

    def take(self, turn: Callable[[], object]) -> None:
        """Waits for the turn, and does what is to be done in it."""
        with self._lock:
            self._run(partial(self._keep_error, turn))

    def try_take(self, turn: Callable[[], object]) -> None:
        """The same, unless another thread has the turn."""
        self.visit(partial(self._keep_error, turn))

    def visit(self, turn: Callable[[], object]) -> None:
        """The same, but an exception is the caller's."""
        if self.mine:
            return
        try:
            if self._lock.acquire(blocking=False):
                self._run(turn)
        finally:  # a signal's handler may raise as soon as the lock is had: only the lock itself knows whether it is
            try:  # noqa: SIM105  nor may it raise between here and the release
                self._lock.release()
            except RuntimeError:
                pass  # another thread has it

    def end(self) -> None:
        """Waits for the turn under way; there is none after it."""
        with self._lock:
            self._open = False

    def _keep_error(self, turn: Callable[[], object]) -> None:
        try:
            turn()
        except Exception as error:  # noqa: BLE001  whatever it is, it is told where they end
            self.error = error

    def _run(self, turn: Callable[[], object]) -> None:
        try:
            self._holder = threading.get_ident()
            if self._open and self.error is None:
                turn()
        finally:
            self._holder = 0
