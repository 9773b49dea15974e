"""The real server on a real port, in a thread of the test's process, so that its tables can be counted."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from kvservice.config import Config
from kvservice.domain.control_plane import Sizes
from kvservice.transport.server import Server


class Running:
    """A server and its loop."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-server", daemon=True)
        self._thread.start()
        self.server, self.port = self._run(self._start())

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def sizes(self) -> Sizes:
        """Entries in each table of the control plane."""
        return self._run(self._sizes())

    def stop(self) -> None:
        self._run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> tuple[Server, int]:
        server = Server(self._config)
        return server, await server.start()

    async def _sizes(self) -> Sizes:
        return self.server.service.control.sizes()

    def _run(self, coroutine):  # type: ignore[no-untyped-def] # whatever it returns
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


@contextmanager
def serving(**settings: object) -> Iterator[Running]:
    """A server on a free port; tombstones are kept for 1 s unless said."""
    running = Running(replace(Config(), **{"port": 0, "retention": 1.0, "drain_grace": 0.0, **settings}))  # type: ignore[arg-type] # fields of Config
    try:
        yield running
    finally:
        running.stop()
