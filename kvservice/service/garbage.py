"""When the interpreter searches for garbage: among what is old only while nothing moves.

Rooms and streams leave no cycles, so nothing of them waits for a search. What gRPC leaves of each call does, but dies
young. To search among all rooms that are remembered takes a tenth of a second for every 60 000, in which nobody is
served: nothing but a safeguard, for which there is time when nobody needs the service.
"""

import asyncio
import gc
from collections.abc import Callable

STILL = 1.0
"""Seconds without a change after which nothing is taken to move."""

SELDOM = 60.0
"""Seconds between two searches among what is old, at least."""

LATEST = 3600.0
"""Seconds after which there is one even while rooms move."""

_NEVER = 2**31 - 1


async def search_while_still(revision: Callable[[], int]) -> None:
    """Sees to it for this process until it is cancelled; `revision` is another one after each change of a room."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()  # modules and all else that stays
    gc.set_threshold(*thresholds[:2], _NEVER)
    try:
        await _search(revision)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def _search(revision: Callable[[], int]) -> None:
    loop = asyncio.get_running_loop()
    seen = searched = revision()
    last = loop.time()
    while True:
        await asyncio.sleep(STILL)
        before, seen = seen, revision()
        waited = loop.time() - last
        still, stirred = seen == before, seen != searched
        if (still and stirred and waited >= SELDOM) or waited >= LATEST:
            gc.collect()
            searched, last = seen, loop.time()
