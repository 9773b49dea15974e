"""An engine's process whose thread makes steps of Python, as a scheduler does, and tells how they went."""

import os
import time
from dataclasses import dataclass, field

from kvtransfer import KVManager
from kvtransfer.manager import Role

from benchmarks.pool import Pool
from benchmarks.shapes import Shape
from benchmarks.traffic import Schedule, Traffic
from benchmarks.worker import manager

STEP_S = 200e-6
"""Of pure Python, as a scheduler's step is."""
LONG_S = 5e-3
READY_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Work:
    """What a stretch of steps was like. Seconds, less those without a core unless said otherwise."""

    steps: int = 0
    in_steps: float = 0.0
    in_steps_by_clock: float = 0.0
    """Waits for a core counted."""
    longest: float = 0.0
    long: int = 0
    """Steps of over LONG_S."""
    cpu_in_calls: float = 0.0
    """CPU of the thread in what it does between steps for its rooms."""
    longest_call: float = 0.0
    """All that it does there between two steps."""
    rooms: list[float] = field(default_factory=list)
    """From join to Success, by the clock."""

    def note_step(self, took: float, waited: float) -> None:
        """By the clock, and without a core."""
        self.steps += 1
        self.in_steps_by_clock += took
        self.in_steps += took - waited
        self.longest = max(self.longest, took - waited)
        self.long += took - waited > LONG_S

    @property
    def rate(self) -> float:
        """Steps a second."""
        return self.steps / self.in_steps

    @property
    def rate_by_clock(self) -> float:
        """Steps a second, waits for a core counted."""
        return self.steps / self.in_steps_by_clock


class Engine:
    """A process with a thread that makes steps, and with a worker once `open_worker` was called."""

    def __init__(self, role: Role, name: str, shape: Shape) -> None:
        self._role, self._name = role, name
        self._pool = Pool(shape, filled=role == "prefill")
        self._manager: KVManager | None = None

    def open_worker(self, target: str) -> None:
        """Begins to register."""
        self._manager = manager(self._role, target, self._pool, self._name)

    def wait_ready(self) -> None:
        """Until the peers were met. Raises TimeoutError."""
        until = time.monotonic() + READY_TIMEOUT_S
        assert self._manager is not None
        while not self._manager.ready():
            if time.monotonic() > until:
                raise TimeoutError(f"{self._name} met nobody within {READY_TIMEOUT_S:g} s")
            time.sleep(0.005)

    def calibrate(self) -> int:
        """Turns of `_think` that take a step's time."""
        turns = 1000
        best = min(_timed_think(turns) for _ in range(200))
        return max(1, round(turns * STEP_S / best))

    def work(self, turns: int, seconds: float, schedule: Schedule | None) -> Work:
        """Makes steps for so long, and until the schedule's rooms, if any, have come and gone."""
        traffic = self._traffic(schedule) if schedule is not None else None
        work = Work()
        looked_at = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        waited = _waited(looked_at)
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until or (traffic is not None and not traffic.over):
            _think(turns)
            before, waited = waited, _waited(looked_at)
            now = time.monotonic()
            work.note_step(now - began, waited - before)
            if traffic is not None:
                used = time.thread_time()
                traffic.turn()
                work.cpu_in_calls += time.thread_time() - used
                before, waited = waited, _waited(looked_at)
                work.longest_call = max(work.longest_call, time.monotonic() - now - (waited - before))
        os.close(looked_at)
        work.rooms = _seconds(traffic)
        return work

    def drive(self, schedule: Schedule) -> list[float]:
        """The rooms of a schedule, on a thread that does nothing else. Seconds of each, from join to Success."""
        traffic = self._traffic(schedule)
        while not traffic.over:
            traffic.turn()
            time.sleep(STEP_S)
        return _seconds(traffic)

    def _traffic(self, schedule: Schedule) -> Traffic:
        assert self._manager is not None
        return Traffic(self._manager, self._pool.shape, schedule)

    def clear(self) -> None:
        """All pages."""
        self._pool.clear(range(self._pool.shape.pool_pages))

    def wrong_pieces(self, rooms: int) -> int:
        """In the pages of the first rooms of a schedule."""
        shape = self._pool.shape
        pages = range(min(rooms, shape.pool_pages // shape.pages) * shape.pages)
        return self._pool.wrong_pieces(pages, pages)

    def close(self) -> None:
        """Leaves the service."""
        if self._manager is not None:
            self._manager.close()


def _think(turns: int) -> int:
    """Plain Python on small objects."""
    table: dict[int, int] = {}
    for turn in range(turns):
        table[turn & 63] = table.get(turn & 63, 0) + turn
    return len(table)


def _timed_think(turns: int) -> float:
    began = time.perf_counter()
    _think(turns)
    return time.perf_counter() - began


def _waited(file: int) -> float:
    """Seconds that the calling thread was ready to run and had no core: the second number of its schedstat."""
    return int(os.pread(file, 64, 0).split()[1]) / 1e9


def _seconds(traffic: Traffic | None) -> list[float]:
    return [ended - joined for joined, ended in traffic.spans] if traffic is not None else []
