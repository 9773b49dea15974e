"""When a worker's parts did what, seen from where they call one another."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kvtransfer import mover
from kvtransfer.connection import Connection
from kvtransfer.core import Core
from kvtransfer.nixl_agent import Handle, NixlAgent
from kvtransfer.outgoing import Outgoing
from kvtransfer.plan import Indices
from kvtransfer.posts import PostRun
from kvtransfer.rooms import Rooms


class WriteProbe:
    """Times of one worker's writes, on CLOCK_MONOTONIC, which all processes of a machine share.

    Attributes:
        began: when each write began to be made.
        ended: when NIXL said that it was over.
    """

    began: list[float]
    ended: list[float]

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets what was seen."""
        self.began, self.ended = [], []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """A KVManager that is made in here is watched."""
        probe = self

        class TimedAgent(NixlAgent):
            def make_write(self, local: Handle, sources: Indices, remote: Handle, targets: Indices) -> Handle:
                probe.began.append(time.monotonic())
                return super().make_write(local, sources, remote, targets)

            def post(self, handle: Any) -> bool:
                return self._noted(super().post(handle))

            def check(self, handle: Any) -> bool:
                return self._noted(super().check(handle))

            def _noted(self, ended: bool) -> bool:
                if ended:
                    probe.ended.append(time.monotonic())
                return ended

        with patch.object(mover, "NixlAgent", TimedAgent):
            yield


Mark = tuple[str, float]
"""What was done, and when on CLOCK_MONOTONIC."""

# Where a room passes: a method, what is noted when it begins or has ended, and whether the room is in it.
_PASSES: tuple[tuple[type, str, str, bool, Callable[[Any], bool]], ...] = (
    (Outgoing, "take", "join taken to be sent", False, lambda batch: bool(batch.joins)),
    (Rooms, "received", "offer received", True, lambda news: bool(news.offers)),
    (PostRun, "__init__", "mover has it", True, lambda post: True),
    (Connection, "prepare", "write planned", True, lambda piece: True),
    (Connection, "_finish", "written", False, lambda ended: ended),
    (Connection, "notify", "notification sent", False, lambda nothing: True),
    (Core, "notified", "notification read", True, lambda sender: True),
)


class PathProbe:
    """The way of rooms through a process, from the moment it is made to the end of the process."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        for owner, method, name, at_begin, concerns in _PASSES:
            setattr(owner, method, self._noting(getattr(owner, method), name, at_begin, concerns))

    def _noting(
        self, right: Callable[..., Any], name: str, at_begin: bool, concerns: Callable[[Any], bool]
    ) -> Callable[..., Any]:
        def noted(it: Any, *args: Any, **named: Any) -> Any:
            if at_begin and concerns(args[0]):
                self.marks.append((name, time.monotonic()))
            result = right(it, *args, **named)
            if not at_begin and concerns(result):
                self.marks.append((name, time.monotonic()))
            return result

        return noted
