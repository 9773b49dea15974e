"""What one room cannot do without, measured bare: two messages over a gRPC stream, a write, a notification."""

import asyncio
import statistics
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc

from benchmarks.pair import Pair
from benchmarks.processes import Child

MESSAGE = bytes(64)
"""About as long as an offer of one page."""
METHOD = "/benchmark/Echo"


class EchoServer:
    """Answers each message of a stream at once, on an asyncio loop as kvservice has."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    async def _start(self) -> int:
        async def echo(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
            async for message in requests:
                yield message

        self._server = grpc.aio.server()
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(echo)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("benchmark", {"Echo": handler}),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return port

    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self._port}"

    def close(self) -> None:
        """Ends all streams."""
        asyncio.run_coroutine_threadsafe(self._server.stop(None), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@dataclass(frozen=True, slots=True)
class Floor:
    """Medians in seconds."""

    stream: float
    """There and back: two one-way messages."""
    write: float
    """One prompt's pages over raw NIXL."""
    notification: float
    """One way."""

    @property
    def total(self) -> float:
        """All of it, one after the other."""
        return self.stream + self.write + self.notification


def measure(pair: Pair, echo: Child, count: int, pause_s: float = 0.0) -> Floor:
    """Each part so many times, while no room is open; with a pause before each, as between parts of single rooms."""
    trips = asyncio.run(_round_trips(echo.call("address"), count, pause_s))
    pair.decode.call("raw.attend")
    spans = []
    for _ in range(count):
        time.sleep(pause_s)
        spans.append(pair.prefill.call("raw.write_prepared", [0], [0]))
    pair.decode.call("raw.leave")
    writes = [ended - began for began, ended in spans]
    pair.decode.begin("raw.pong", count)
    pings = pair.prefill.call("raw.ping", count, pause_s)
    pair.decode.end()
    return Floor(statistics.median(trips), statistics.median(writes), statistics.median(pings))


async def _round_trips(address: str, count: int, pause_s: float) -> list[float]:
    took = []
    async with grpc.aio.insecure_channel(address) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(METHOD)()
        for _ in range(count + 10):
            await asyncio.sleep(pause_s)
            began = time.perf_counter()
            await call.write(MESSAGE)
            await call.read()
            took.append(time.perf_counter() - began)
        await call.done_writing()
    return took[10:]  # the first connect
