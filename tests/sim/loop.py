"""An asyncio loop whose time is the world's: what is ready runs when told to, timers ring as the world goes on."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

from .world import World


class WorldLoop(asyncio.AbstractEventLoop):
    """As much of a loop as tasks, futures, events and timers need."""

    def __init__(self, world: World, stirred: Callable[[], None]) -> None:
        """`stirred` is called when a timer has made something ready."""
        self._world = world
        self._stirred = stirred
        self._ready: deque[asyncio.Handle] = deque()
        self._error: BaseException | None = None

    @property
    def idle(self) -> bool:
        return not self._ready

    def run_ready(self) -> None:
        """Runs what is ready, and what that makes ready. Raises what a callback let through."""
        asyncio._set_running_loop(self)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def time(self) -> float:
        return self._world.now

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self._world.now + delay, callback, args, self, context)
        self._world.after(delay, self._ring, timer)
        return timer

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **named: Any) -> "asyncio.Task[Any]":  # type: ignore[override]
        return asyncio.Task(coro, loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._error = context.get("exception") or RuntimeError(context["message"])

    def _ring(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._ready.append(timer)
            self._stirred()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer rings for nobody."""
