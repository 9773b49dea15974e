"""Real writes into a peer's scratch region, timed: they bring the connection up and show what it is worth."""

import contextlib
import os
import statistics
import time

import numpy as np

from kvtransfer import v1 as pb
from kvtransfer.connection import Connection
from kvtransfer.errors import InvalidField
from kvtransfer.nixl_agent import Handle
from kvtransfer.plan import Lane, Piece, Table

TIMED_WRITES = 8
"""After a first one that is not timed: it connects, and touches the pages of both scratch regions."""


def scratch_lane(sender: pb.Region, receiver: pb.Region) -> Lane:
    """The two scratch regions, as far as both reach, as a lane of one item.

    Raises:
        InvalidField: one of them is empty.
    """
    nbytes = min(region.item_count * region.item_stride for region in (sender, receiver))
    if nbytes < 1:
        raise InvalidField("layout.scratch", f"holds {nbytes} bytes")
    return Lane(sender.memory, receiver.memory, _table(sender, nbytes), _table(receiver, nbytes))


class WarmUp:
    """The writes, one after the other."""

    def __init__(self, connection: Connection, position: int, lane: Lane) -> None:
        """`position`: of the scratch lane `lane` among the connection's."""
        self._connection = connection
        self._lane = lane
        first = np.zeros(1, np.int32)
        self._piece = Piece(position, first, first, int(lane.sender_table[0, 1]))
        self._handle: Handle | None = None
        """Of the write in flight."""
        self._posted_at = 0.0
        self._seconds: list[float] = []
        self._in_call = 0
        """Timed writes that ended within the call that posted them."""

    def step(self) -> bool:
        """Go on; True when all writes have ended.

        Raises:
            Exception: whatever NIXL raises.
        """
        if self._handle is not None and not self._check(self._handle):
            return False
        while len(self._seconds) <= TIMED_WRITES:
            handle = self._connection.prepare(self._piece)
            self._posted_at = time.perf_counter()
            if not self._connection.post(handle):
                self._handle = handle
                return False
            self._in_call += 1 if self._seconds else 0
            self._seconds.append(time.perf_counter() - self._posted_at)
        return True

    def over(self) -> bool:
        """Whether nothing is in flight any more, however it ended. Posts nothing."""
        if self._handle is not None:
            with contextlib.suppress(Exception):
                return self._check(self._handle)
        return True

    def bandwidth(self) -> float:
        """Bytes per second of a write of up to 1 MiB: the median of `TIMED_WRITES`."""
        return self._piece.nbytes / statistics.median(self._seconds[1:])

    def transport(self) -> str:
        """How the bytes went, inferred: NIXL does not tell.

        A copy by the CPU, UCX's `cma`, ends within the call that posts it, but for the odd one on a busy machine; over
        tcp up to a third did (measured). Other host memory goes over `tcp`, or over a `network` that may be either
        where the host has RDMA devices; device memory is just `device`.
        """
        if pb.MEMORY_KIND_VRAM in (self._lane.sender_memory, self._lane.receiver_memory):
            return "device"
        if self._in_call * 4 >= TIMED_WRITES * 3:
            return "cma"
        return "network" if os.path.isdir("/sys/class/infiniband") else "tcp"

    def _check(self, handle: Handle) -> bool:
        self._handle = None
        if not self._connection.check(handle):
            self._handle = handle
            return False
        self._seconds.append(time.perf_counter() - self._posted_at)
        return True


def _table(region: pb.Region, nbytes: int) -> Table:
    return np.array([[region.address, nbytes, region.device, nbytes, 1]], dtype=np.uint64)
