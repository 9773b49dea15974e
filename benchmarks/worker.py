"""Ranks of an engine, in a process of their own: an engine's thread with a KVManager for each, and a raw agent."""

import time
from collections.abc import Mapping, Sequence

from kvtransfer import KVManager, KVPoll, KVReceiver, KVSender, PagedGroup, Part
from kvtransfer.manager import Rank, Role, Topology
from kvtransfer.nixl_agent import make_sleeps_short

from benchmarks.device_pool import DevicePool, pool_for
from benchmarks.pool import Pool
from benchmarks.probe import Mark, PathProbe, WriteProbe
from benchmarks.processes import Span
from benchmarks.raw import RawAgent
from benchmarks.shapes import PAGE_TOKENS, Shape

ROOM_TIMEOUT_S = 60.0
LOOK_EVERY_S = 50e-6
"""Between two looks of the engine's thread: it must leave the interpreter to the worker's threads."""


class Worker:
    """Some ranks of a prefill or decode engine, and their pools."""

    def __init__(self, role: Role, target: str, shape: Shape, ranks: Sequence[int] = (0,)) -> None:
        self._shape = shape
        self._pools = [pool_for(shape, filled=role == "prefill", rank=rank) for rank in ranks]
        self._probe = WriteProbe()
        engine = f"bench-{role}"
        with self._probe.installed():
            self._managers = [
                manager(role, target, pool, engine, rank) for rank, pool in zip(ranks, self._pools, strict=True)
            ]
        self._raw_name = f"raw-{role}-{ranks[0]}"
        self._raw: RawAgent | None = None
        self._open: dict[int, list[KVSender | KVReceiver]] = {}
        self._path: PathProbe | None = None
        make_sleeps_short()

    @property
    def raw(self) -> RawAgent:
        """NIXL by itself, over the pool of the first of the ranks; made when it is asked for."""
        if self._raw is None:
            self._raw = RawAgent(self._raw_name, self._pools[0])
        return self._raw

    def wait_ready(self) -> str:
        """Until the other side is met. Returns the transport."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        while not all(manager.ready() for manager in self._managers):
            _check(until, "the peer was not met")
        return self._managers[0].links()[0].transport

    # --- rooms ---

    def send(self, pages: Mapping[int, Sequence[int]]) -> None:
        """Joins rooms, and hands over all pages of each."""
        for room, indices in pages.items():
            for sender in self._join(room, indices):
                sender.send({"kv": indices}, last=True)

    def _join(self, room: int, pages: Sequence[int]) -> list[KVSender]:
        senders = [manager.sender(room, len(pages) * PAGE_TOKENS) for manager in self._managers]
        self._open[room] = list(senders)
        return senders

    def send_awaited(self, room: int, pages: Sequence[int]) -> float:
        """Joins a room and, once its offers are there, hands over all pages: when that began."""
        senders = self._join(room, pages)
        until = time.monotonic() + ROOM_TIMEOUT_S
        while any(sender.poll() is not KVPoll.WAITING_FOR_INPUT for sender in senders):
            _check(until, f"room {room} was not offered")
        began = time.monotonic()
        for sender in senders:
            sender.send({"kv": pages}, last=True)
        return began

    def arrived(self, room: int) -> float:
        """Waits for the end of a room that was offered: when it came."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        while not self._ended(room):
            _check(until, f"room {room} did not end")
        return time.monotonic()

    def receive(self, pages: Mapping[int, Sequence[int]], in_flight: int) -> dict[int, Span]:
        """Joins rooms, so many at a time. Of each, when its first rank joined and when its last had its Success."""
        waiting = iter(pages.items())
        joined: dict[int, float] = {}
        spans: dict[int, Span] = {}
        until = time.monotonic() + ROOM_TIMEOUT_S
        while True:
            while len(joined) < in_flight and (following := next(waiting, None)):
                room, indices = following
                joined[room] = time.monotonic()
                self._offer(room, indices)
            if not joined:
                return spans
            for room in [room for room in joined if self._ended(room)]:
                spans[room] = (joined.pop(room), time.monotonic())
            _check(until, f"rooms {sorted(joined)[:3]} did not end")

    def offer(self, pages: Mapping[int, Sequence[int]]) -> None:
        """Joins rooms, and offers pages to each."""
        for room, indices in pages.items():
            self._offer(room, indices)

    def _offer(self, room: int, pages: Sequence[int]) -> None:
        receivers = [manager.receiver(room, "bench-prefill") for manager in self._managers]
        for receiver in receivers:
            receiver.offer(len(pages) * PAGE_TOKENS, {"kv": pages})
        self._open[room] = list(receivers)

    def _ended(self, room: int) -> bool:
        return all(handle.poll().final for handle in self._open[room])

    def finish(self) -> None:
        """Waits until all rooms have ended well, closes them, and takes their pages back."""
        until = time.monotonic() + ROOM_TIMEOUT_S
        for room, handles in self._open.items():
            while not self._ended(room):
                _check(until, f"room {room} did not end")
            for handle in handles:
                if handle.poll() is not KVPoll.SUCCESS:
                    raise RuntimeError(f"room {room}: {handle.failure()}")
                handle.close()
        while self._open:
            for manager in self._managers:
                for released in manager.released():
                    held = self._open[released.room]
                    held.pop()
                    if not held:
                        del self._open[released.room]
            _check(until, f"{len(self._open)} rooms were not released")

    def writes(self) -> tuple[list[float], list[float]]:
        """When the mover's writes since the last call began and ended, on CLOCK_MONOTONIC."""
        seen = self._probe.began, self._probe.ended
        self._probe.reset()
        return seen

    def path(self) -> list[Mark]:
        """Where rooms passed since the last call; from the first call on."""
        self._path = self._path or PathProbe()
        seen, self._path.marks = self._path.marks, []
        return seen

    # --- memory, of all ranks ---

    def kind_of_pages(self) -> str:
        """See Pool."""
        return self._pools[0].pages

    def clear(self, pages: Sequence[int]) -> None:
        """See Pool."""
        for pool in self._pools:
            pool.clear(pages)

    def wrong_pieces(self, targets: Sequence[int], sources: Sequence[int]) -> int:
        """See Pool."""
        return sum(pool.wrong_pieces(targets, sources) for pool in self._pools)

    def touched_pieces(self, allowed: Sequence[int]) -> int:
        """See Pool."""
        return sum(pool.touched_pieces(allowed) for pool in self._pools)

    def copy_memory(self) -> Span:
        """When a plain copy of a rank's share of a prompt began and ended, to memory that was touched before."""
        return self._pools[0].copy_prompt()

    def close(self) -> None:
        """Leaves the service, and NIXL."""
        if self._raw is not None:
            self._raw.close()
        for manager in self._managers:
            manager.close()


def manager(role: Role, target: str, pool: Pool | DevicePool, engine_id: str, rank: int = 0) -> KVManager:
    """A worker over a pool."""
    return KVManager(
        target,
        engine_id=engine_id,
        role=role,
        model=pool.shape.name,
        groups=[kv_group(pool, rank)],
        topology=Topology(tp_size=pool.shape.ranks),
        rank=Rank(tp_rank=rank),
    )


def kv_group(pool: Pool | DevicePool, rank: int) -> PagedGroup:
    """What a worker tells of its pool."""
    shape = pool.shape
    keys, values = ({layer: pool.memory[2 * layer + i] for layer in range(shape.layers)} for i in range(2))
    if shape.ranks == 1:
        return PagedGroup("kv", PAGE_TOKENS, [Part("k", keys), Part("v", values)])
    parts = [
        Part(name, memory, "token_head", total_heads=shape.ranks, first_head=rank, head_count=1)
        for name, memory in (("k", keys), ("v", values))
    ]
    return PagedGroup("kv", PAGE_TOKENS, parts)


def _check(until: float, what: str) -> None:
    if time.monotonic() > until:
        raise TimeoutError(f"{what} within {ROOM_TIMEOUT_S:g} s")
    time.sleep(LOOK_EVERY_S)
