"""One worker, in a process of its own: an engine's thread with a KVManager, and a raw agent beside it."""

import time
from collections.abc import Mapping, Sequence

import numpy as np
from kvtransfer import KVManager, KVPoll, KVReceiver, KVSender
from kvtransfer.manager import Role
from kvtransfer.nixl_agent import make_sleeps_short

from benchmarks.probe import WriteProbe
from benchmarks.raw import RawAgent
from benchmarks.shapes import Pool, Shape

ROOM_TIMEOUT_S = 30.0
LOOK_EVERY_S = 50e-6
"""Between two looks of the engine's thread: it must leave the interpreter to the worker's threads."""


class Worker:
    """A prefill or decode engine of one rank, and its pool.

    Attributes:
        raw: NIXL by itself, over the same pool.
    """

    raw: RawAgent

    def __init__(self, role: Role, target: str, shape: Shape) -> None:
        self._pool = Pool(shape, filled=role == "prefill")
        self._probe = WriteProbe()
        with self._probe.installed():
            self._manager = KVManager(
                target, engine_id=f"bench-{role}", role=role, model=shape.name, groups=[self._pool.group()]
            )
        self.raw = RawAgent(f"raw-{role}", self._pool)
        self._open: dict[int, KVSender | KVReceiver] = {}
        self._copy = np.ones(shape.nbytes // 8, np.uint64)
        make_sleeps_short()

    def wait_ready(self) -> str:
        """Until the other side is met. Returns the transport."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        while not self._manager.ready():
            _check(until, "the peer was not met")
        return self._manager.links()[0].transport

    # --- rooms ---

    def send(self, pages: Mapping[int, Sequence[int]]) -> None:
        """Joins rooms, and hands over all pages of each."""
        for room, indices in pages.items():
            sender = self._manager.sender(room, self._pool.shape.tokens)
            sender.send({"kv": indices}, last=True)
            self._open[room] = sender

    def receive(self, pages: Mapping[int, Sequence[int]], in_flight: int) -> list[tuple[float, float]]:
        """Joins rooms, so many at a time. Of each, when it joined and when it saw its Success, on CLOCK_MONOTONIC."""
        waiting = iter(pages.items())
        joined: dict[int, float] = {}
        spans: list[tuple[float, float]] = []
        until = time.monotonic() + ROOM_TIMEOUT_S
        while True:
            while len(joined) < in_flight and (following := next(waiting, None)):
                room, indices = following
                joined[room] = time.monotonic()
                self._offer(room, indices)
            if not joined:
                return spans
            for room in [room for room in joined if self._open[room].poll().final]:
                spans.append((joined.pop(room), time.monotonic()))
            _check(until, f"rooms {sorted(joined)[:3]} did not end")

    def offer(self, pages: Mapping[int, Sequence[int]]) -> None:
        """Joins rooms, and offers pages to each."""
        for room, indices in pages.items():
            self._offer(room, indices)

    def _offer(self, room: int, pages: Sequence[int]) -> None:
        receiver = self._manager.receiver(room, "bench-prefill")
        receiver.offer(self._pool.shape.tokens, {"kv": pages})
        self._open[room] = receiver

    def finish(self) -> None:
        """Waits until all rooms have ended well, closes them, and takes their pages back."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        for room, handle in self._open.items():
            while not handle.poll().final:
                _check(until, f"room {room} did not end")
            if handle.poll() is not KVPoll.SUCCESS:
                raise RuntimeError(f"room {room}: {handle.failure()}")
            handle.close()
        while self._open:
            for released in self._manager.released():
                del self._open[released.room]
            _check(until, f"{len(self._open)} rooms were not released")

    def writes(self) -> tuple[list[float], list[float]]:
        """When the mover's writes since the last call began and ended, on CLOCK_MONOTONIC."""
        seen = self._probe.began, self._probe.ended
        self._probe.reset()
        return seen

    # --- memory ---

    def clear(self, pages: Sequence[int]) -> None:
        """See Pool."""
        self._pool.clear(pages)

    def wrong_pieces(self, targets: Sequence[int], sources: Sequence[int]) -> int:
        """See Pool."""
        return self._pool.wrong_pieces(targets, sources)

    def touched_pieces(self, allowed: Sequence[int]) -> int:
        """See Pool."""
        return self._pool.touched_pieces(allowed)

    def copy_memory(self) -> float:
        """Seconds for a plain copy of a prompt's bytes within this process, to memory that was touched before."""
        source = self._pool.memory.reshape(-1)[: self._copy.size]
        began = time.perf_counter()
        np.copyto(self._copy, source)
        return time.perf_counter() - began

    def close(self) -> None:
        """Leaves the service, and NIXL."""
        self.raw.close()
        self._manager.close()


def _check(until: float, what: str) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"{what} within {ROOM_TIMEOUT_S:g} s")
    time.sleep(LOOK_EVERY_S)
