"""The far end of a `Child`: python -m benchmarks.child FD, with a pipe at that file descriptor."""

import pickle
import sys
import traceback
from multiprocessing.connection import Connection
from operator import attrgetter

from benchmarks.processes import Closing


def serve(pipe: Connection) -> None:
    """Makes the object at the first call, then answers calls until the pipe is closed."""
    held: Closing | None = None
    try:
        recipe = pipe.recv_bytes()
        while True:
            method, arguments = pipe.recv()
            try:
                if held is None:
                    make, made_of = pickle.loads(recipe)
                    held = make(*made_of)
                pipe.send((True, attrgetter(method)(held)(*arguments)))
            except Exception:  # noqa: BLE001  raised again in the parent
                pipe.send((False, traceback.format_exc()))
    except (EOFError, ConnectionError, KeyboardInterrupt):  # the parent closed the pipe, or both were interrupted
        if held is not None:
            held.close()


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
