"""Wakes the writer of one stream: at once for what somebody waits for, a little later for the rest."""

import asyncio

HOLD = 0.005
"""Seconds that what nobody waits for may wait for more: a message costs more than what is in it."""


class Bell:
    """For one waiter, in the event loop that runs when it is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Wakes the waiter now."""
        self._rung.set()

    def ring_soon(self) -> None:
        """Wakes it within HOLD."""
        if self._later is None and not self._rung.is_set():
            self._later = self._loop.call_later(HOLD, self.ring)

    async def wait(self) -> None:
        """Until it rings; it is silent again then."""
        await self._rung.wait()
        self._rung.clear()
        self.silence()

    def silence(self) -> None:
        """Whatever would have rung later does not."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
