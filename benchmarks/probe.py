"""When the mover's writes began and ended, seen from where it calls NIXL."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kvtransfer import mover
from kvtransfer.nixl_agent import Handle, NixlAgent
from kvtransfer.plan import Indices


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
