"""The real server in a thread of this process, so that a test can look at its tables."""

import asyncio
import dataclasses
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from kvservice.config import Config
from kvservice.domain.control_plane import Sizes
from kvservice.transport.server import Server
from kvservice.transport.servicer import FEATURES

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs something in the loop and returns its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def close(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class RunningServer:
    """Listens on a free port of loopback from `with` on."""

    def __init__(self, features: Sequence[str] = FEATURES, **settings: Any) -> None:
        self._config = Config(**({"port": 0} | settings))
        self._features = features
        self._stopped = False

    def __enter__(self) -> Self:
        self._loop = LoopThread("server")
        self.server: Server = self._loop.run(self._make())
        self.port: int = self._loop.run(self.server.start())
        self.target = f"127.0.0.1:{self.port}"
        return self

    async def _make(self) -> Server:
        return Server(self._config, self._features)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.close()

    def close(self) -> None:
        """Ends the thread."""
        self._loop.close()

    def stop(self) -> None:
        """Gracefully; returns when all calls have ended."""
        if not self._stopped:
            self._stopped = True
            self._loop.run(self.server.stop())

    def sizes(self) -> Sizes:
        """Entries in each table."""

        async def read() -> Sizes:
            return self.server.service.control.sizes()

        return self._loop.run(read())

    def entries(self) -> list[int]:
        """The same, as numbers."""
        return list(dataclasses.asdict(self.sizes()).values())
