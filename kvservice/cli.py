"""The command `kvservice`."""

import asyncio
import logging
import os
import signal
import sys

from kvtransfer._version import __version__

from kvservice.config import Config, parse
from kvservice.service import garbage
from kvservice.transport.server import AddressTaken, Server


def main() -> None:
    """Serves until SIGTERM or SIGINT, then lets open rooms end. Exits 1 if it cannot listen, 2 for bad arguments."""
    config = parse(sys.argv[1:], os.environ, __version__)
    logging.basicConfig(
        level=config.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        asyncio.run(_serve(config))
    except AddressTaken as error:
        sys.exit(f"kvservice: {error}")


async def _serve(config: Config) -> None:
    server = Server(config)
    port = await server.start()
    # In one piece: with its end apart, a line of the log may come between where both go to one file.
    print(f"kvservice listening on {server.host}:{port}\n", end="", flush=True)
    searching = asyncio.create_task(garbage.search_while_still(lambda: server.service.control.changes.revision))
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    await told_to_stop.wait()
    await server.stop()
    searching.cancel()
