"""NIXL by itself: what a write and a notification cost with nothing around them."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from kvtransfer.memory import Extent

from benchmarks.device_pool import DevicePool
from benchmarks.pool import Pool
from benchmarks.processes import Span

MEET_TIMEOUT_S = 60.0
LINGER_S = 0.2
"""After the peer was heard: a connection comes up only while both sides look for notifications."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a peer has to know."""

    name: str
    metadata: bytes
    extent: Extent
    """Of the pool."""


class RawAgent:
    """An agent over a pool. One thread at a time may use it."""

    def __init__(self, name: str, pool: Pool | DevicePool) -> None:
        from nixl._api import nixl_agent, nixl_agent_config  # type: ignore[import-untyped]  # has no types

        self._name = name
        self._pool = pool
        self._extent = pool.extent
        self._memory = self._extent.kind.upper()
        self._nixl: Any = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
        region = (self._extent.address, self._extent.nbytes, self._extent.device, "")
        self._registered = self._nixl.register_memory([region], self._memory)
        self._attending: threading.Thread | None = None
        self._leaving = threading.Event()

    def introduction(self) -> Introduction:
        """For the peer's `meet`."""
        return Introduction(self._name, bytes(self._nixl.get_agent_metadata()), self._extent)

    def meet(self, peer: Introduction) -> None:
        """Connects; both sides must do so at the same time. Raises TimeoutError."""
        self._nixl.add_remote_agent(peer.metadata)
        self._peer = peer
        self._nixl.send_notif(peer.name, b"hello")
        until = time.monotonic() + MEET_TIMEOUT_S
        while not self._nixl.get_new_notifs():
            if time.monotonic() > until:
                raise TimeoutError(f"{peer.name} did not say hello within {MEET_TIMEOUT_S:g} s")
        until = time.monotonic() + LINGER_S
        while time.monotonic() < until:
            self._nixl.get_new_notifs()
        self._local = self._nixl.prep_xfer_dlist("NIXL_INIT_AGENT", self._table(self._extent), self._memory)
        self._remote = self._nixl.prep_xfer_dlist(peer.name, self._table(peer.extent), self._memory)

    # --- writes: from the making of the handle to DONE, on CLOCK_MONOTONIC ---

    def write_prepared(self, sources: Sequence[int], targets: Sequence[int]) -> Span:
        """By index into prepared lists, in the order that lets NIXL merge the most."""
        source, target = self._positions(sources, targets)
        return self._time(lambda: self._nixl.make_prepped_xfer("WRITE", self._local, source, self._remote, target))

    def write_listed(self, sources: Sequence[int], targets: Sequence[int]) -> Span:
        """By `initialize_xfer`, with neighbours merged beforehand; it does not merge by itself."""
        size = self._pool.shape.item_bytes
        source, target = self._positions(sources, targets)
        joined = (np.diff(source, prepend=-2) == 1) & (np.diff(target, prepend=-2) == 1)
        first = np.flatnonzero(~joined)
        nbytes = np.diff(first, append=len(source)) * size
        local, remote = (
            self._nixl.get_xfer_descs(
                np.stack(
                    [
                        np.uint64(there.address) + at[first].astype(np.uint64) * np.uint64(size),
                        nbytes,
                        np.full_like(nbytes, there.device),
                    ],
                    axis=1,
                ).astype(np.uint64),
                self._memory,
            )
            for there, at in ((self._extent, source), (self._peer.extent, target))
        )
        return self._time(lambda: self._nixl.initialize_xfer("WRITE", local, remote, self._peer.name))

    def _time(self, make: Callable[[], Any]) -> Span:
        began = time.monotonic()
        handle = make()
        state = self._nixl.transfer(handle)
        while state == "PROC":
            state = self._nixl.check_xfer_state(handle)
        ended = time.monotonic()
        handle.release()
        if state != "DONE":
            raise RuntimeError(f"NIXL reports state {state!r} of a write")
        return began, ended

    # --- the target's part ---

    def attend(self) -> None:
        """Makes NIXL go on, on a thread, until `leave`: over tcp a write needs its target's help."""
        self._leaving.clear()
        self._attending = threading.Thread(target=self._attend, daemon=True)
        self._attending.start()

    def _attend(self) -> None:
        while not self._leaving.is_set():
            self._nixl.get_new_notifs()
            time.sleep(50e-6)

    def leave(self) -> None:
        """Ends `attend`."""
        if self._attending is not None:
            self._leaving.set()
            self._attending.join()
            self._attending = None

    # --- notifications ---

    def ping(self, count: int, pause_s: float = 0.0) -> list[float]:
        """Seconds one way, half of there and back, of each of `count` notifications to a peer that answers them."""
        took = []
        for _ in range(count):
            time.sleep(pause_s)
            began = time.perf_counter()
            self._nixl.send_notif(self._peer.name, b"ping")
            while not self._nixl.get_new_notifs():
                pass
            took.append((time.perf_counter() - began) / 2)
        return took

    def pong(self, count: int) -> None:
        """Answers `count` notifications."""
        for _ in range(count):
            while not self._nixl.get_new_notifs():
                pass
            self._nixl.send_notif(self._peer.name, b"pong")

    def close(self) -> None:
        """Leaves nothing in NIXL."""
        self.leave()
        for prepared in (self._local, self._remote):
            prepared.release()
        self._nixl.deregister_memory(self._registered)
        del self._nixl

    def _table(self, extent: Extent) -> npt.NDArray[np.uint64]:
        shape = self._pool.shape
        size, count = shape.item_bytes, shape.pool_pages
        first = range(extent.address, extent.address + shape.tracks * size * count, size * count)
        return np.array([(address, size, extent.device, size, count) for address in first], np.uint64)

    def _positions(
        self, sources: Sequence[int], targets: Sequence[int]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        order = np.argsort(sources)
        track = np.arange(self._pool.shape.tracks)[:, None] * self._pool.shape.pool_pages
        source, target = ((track + np.asarray(pages)[order]).ravel().astype(np.int32) for pages in (sources, targets))
        return source, target
