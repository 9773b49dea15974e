"""A process that serves HTTP until it is told to end."""

import asyncio
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future

from aiohttp import web


async def serve(app: web.Application, host: str, port: int) -> None:
    """Serve `app` until SIGTERM or SIGINT. Prints `listening on <url>`; port 0 takes any free one.

    Raises:
        OSError: The port is taken, or `host` is not an address of this machine.
    """
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    # A handler is cancelled when its caller hangs up: that is how a room is given up.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        # In one piece: with its end apart, a line of the log may come between.
        print(f"listening on http://{host}:{runner.addresses[0][1]}\n", end="", flush=True)
        await told.wait()
    finally:
        await runner.cleanup()


async def serve_beside(
    app: web.Application, host: str, port: int, work: Callable[[], None], stop: Callable[[], None]
) -> None:
    """Serve `app` while `work` runs in a thread. Either ends the other; `stop` is how to ask `work` to end.

    Raises:
        Whatever `work` raises.
    """
    done: Future[None] = Future()

    def thread() -> None:
        try:
            work()
            done.set_result(None)
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the other thread
            done.set_exception(error)

    threading.Thread(target=thread, name="model", daemon=True).start()
    worker = asyncio.wrap_future(done)
    server = asyncio.create_task(serve(app, host, port))
    try:
        await asyncio.wait((server, worker), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
        server.cancel()
        await asyncio.wait((server, worker))
    await worker
    if not server.cancelled():
        await server
