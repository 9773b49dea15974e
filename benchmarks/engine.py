"""What a worker's threads cost the engine's own Python thread beside them, while rooms come and go."""

import argparse
import itertools
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvtransfer import KVManager
from kvtransfer.manager import Role

from benchmarks import machine
from benchmarks.pair import WrongBytes
from benchmarks.pool import Pool
from benchmarks.processes import Child, kvservice, together
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import SMALL_PIECES, Shape
from benchmarks.traffic import Schedule, Traffic
from benchmarks.worker import manager

SHAPE = SMALL_PIECES.with_tokens(1024, pool_pages=8 * 64).best()
STEP_S = 200e-6
"""Of pure Python, as a scheduler's step is."""
LONG_S = 5e-3
ROOMS_PER_S = 20
LEAD_S = 0.05
"""From the order to begin to the first room."""
READY_TIMEOUT_S = 30.0
MODES = ("idle", "beside", "within")

COLUMNS = (
    Column("side", "engine's side"),
    Column("rooms_per_s", "rooms/s"),
    Column("steps_per_s", "idle steps/s", 0),
    Column("idle_to_bare", "idle / bare", 3),
    Column("beside_to_idle", "beside / idle", 3),
    Column("within_to_beside", "within / beside", 3),
    Column("clock_within_to_beside", "by the clock", 3),
    Column("longest_beside_ms", "longest beside ms", 2),
    Column("longest_within_ms", "longest within ms", 2),
    Column("longer_ms", "longer by ms", 2),
    Column("long_beside", "long beside"),
    Column("long_within", "long within"),
    Column("calls_us_room", "calls us/room", 0),
    Column("longest_call_ms", "longest call ms", 2),
    Column("room_beside_ms", "room beside ms", 1),
    Column("room_within_ms", "room within ms", 1),
)
NOTES = (
    f"A thread makes steps of about {STEP_S * 1e6:.0f} us of Python, each with a look at a file, where the interpreter",
    "lock may change hands as when a scheduler looks at its socket. All times are less those in which the thread was",
    "ready but had no core, by the kernel's count: on few cores the other side and the service take turns with it.",
    "Rates: steps a second of the time spent in steps; by the clock, within / beside with the waits for a core.",
    "bare: no worker in the process, before the others. idle: a worker without rooms. within: its rooms come and go.",
    "beside: the same rooms come and go in another process, and the stepping process keeps its idle worker. The",
    "machine has the same work in both: within / beside is what it costs to have it in the engine's process.",
    f"longest: of the steps of all rounds. longer by: within less beside. long: steps of over {LONG_S * 1e3:g} ms.",
    "calls: of the engine's thread into the worker, from joins to pages back; not in steps.",
    "room: from one side's join to its Success. Prompts of 1024 tokens of SmolLM2. All bytes were checked.",
    "Modes alternate; medians over the rounds, with quartiles.",
)


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
    in_calls: float = 0.0
    """Of the thread, into the worker."""
    longest_call: float = 0.0
    rooms: list[float] = field(default_factory=list)
    """From join to Success, by the clock."""

    def note_step(self, took: float, waited: float) -> None:
        """By the clock, and without a core. As the next."""
        self.steps += 1
        self.in_steps_by_clock += took
        self.in_steps += took - waited
        self.longest = max(self.longest, took - waited)
        self.long += took - waited > LONG_S

    def note_call(self, took: float, waited: float) -> None:
        self.in_calls += took - waited
        self.longest_call = max(self.longest_call, took - waited)

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
        now, waited = time.monotonic(), _waited(looked_at)
        until = now + seconds
        while now < until or (traffic is not None and not traffic.over):
            began, before = now, waited
            _think(turns)
            now, waited = time.monotonic(), _waited(looked_at)
            work.note_step(now - began, waited - before)
            if traffic is not None:
                began, before = now, waited
                traffic.turn()
                now, waited = time.monotonic(), _waited(looked_at)
                work.note_call(now - began, waited - before)
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="rounds of each mode [9]")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="of each mode in a round [2]")


def run(arguments: argparse.Namespace) -> Report:
    """Measures a prefill and a decode engine. Raises WrongBytes."""
    report = Report("engine", machine.describe(), COLUMNS, NOTES)
    for role in ("prefill", "decode"):
        report.rows.append(measure(role, arguments.rounds, arguments.seconds))
    return report


def measure(role: Role, rounds: int, seconds: float) -> dict[str, Any]:
    """A row, for an engine of `role`. Raises WrongBytes."""
    with kvservice() as service, _engines(role) as trio:
        turns = trio.stepping.call("calibrate")
        bare = [trio.stepping.call("work", turns, seconds, None) for _ in range(rounds)]
        together(trio.all, "open_worker", service.target)
        together(trio.all, "wait_ready")
        work: dict[str, list[Work]] = {mode: [] for mode in MODES}
        elsewhere: list[float] = []
        trio.slice("within", turns, seconds)  # warms up
        for number in range(rounds):
            print(f"{role}: round {number + 1} of {rounds}", file=sys.stderr)
            for mode in MODES if number % 2 else reversed(MODES):
                done, seen = trio.slice(mode, turns, seconds)
                work[mode].append(done)
                elsewhere += seen
    return {"side": role, **_row(bare, work, elsewhere)}


@dataclass(frozen=True, slots=True)
class Trio:
    """The engine that makes steps, its twin next door, and the other side of both."""

    role: Role
    stepping: Child
    twin: Child
    far: Child
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def all(self) -> tuple[Child, ...]:
        """Of them."""
        return self.stepping, self.twin, self.far

    def slice(self, mode: str, turns: int, seconds: float) -> tuple[Work, list[float]]:
        """Steps for so long in one of MODES; with them, seconds of rooms next door. Raises WrongBytes."""
        if mode == "idle":
            return self.stepping.call("work", turns, seconds, None), []
        near, prefill = (self.twin, "twin") if mode == "beside" else (self.stepping, "stepping")
        receiving = near if self.role == "decode" else self.far
        receiving.call("clear")
        rooms = list(itertools.islice(self._numbers, max(2, round(seconds * ROOMS_PER_S))))
        schedule = Schedule(
            rooms, time.monotonic() + LEAD_S, 1 / ROOMS_PER_S, "far" if self.role == "decode" else prefill
        )
        self.far.begin("drive", schedule)
        if mode == "beside":
            self.twin.begin("drive", schedule)
        work: Work = self.stepping.call("work", turns, seconds, schedule if mode == "within" else None)
        seen = self.twin.end() if mode == "beside" else []
        self.far.end()
        if wrong := receiving.call("wrong_pieces", len(rooms)):
            raise WrongBytes(f"{wrong} pieces do not hold what was sent to them")
        return work, seen


@contextmanager
def _engines(role: Role) -> Iterator[Trio]:
    with (
        Child(Engine, role, "stepping", SHAPE) as stepping,
        Child(Engine, role, "twin", SHAPE) as twin,
        Child(Engine, "decode" if role == "prefill" else "prefill", "far", SHAPE) as far,
    ):
        yield Trio(role, stepping, twin, far)


def _row(bare: Sequence[Work], work: Mapping[str, Sequence[Work]], elsewhere: Sequence[float]) -> dict[str, object]:
    idle, beside, within = (work[mode] for mode in MODES)
    longest = {mode: max(each.longest for each in done) for mode, done in work.items()}
    rooms = [room for each in within for room in each.rooms]
    typical_bare = statistics.median(each.rate for each in bare)
    return {
        "rooms_per_s": ROOMS_PER_S,
        "steps_per_s": Spread.of(each.rate for each in idle),
        "idle_to_bare": Spread.of(each.rate / typical_bare for each in idle),
        "beside_to_idle": _ratio(beside, idle),
        "within_to_beside": _ratio(within, beside),
        "clock_within_to_beside": Spread.of(
            one.rate_by_clock / other.rate_by_clock for one, other in zip(within, beside, strict=True)
        ),
        **{f"longest_{mode}_ms": 1e3 * longest[mode] for mode in MODES},
        **{f"long_{mode}": sum(each.long for each in done) for mode, done in work.items()},
        "longer_ms": 1e3 * (longest["within"] - longest["beside"]),
        "calls_us_room": 1e6 * sum(each.in_calls for each in within) / len(rooms),
        "longest_call_ms": 1e3 * max(each.longest_call for each in within),
        "room_beside_ms": Spread.of(1e3 * each for each in elsewhere),
        "room_within_ms": Spread.of(1e3 * each for each in rooms),
    }


def _ratio(some: Sequence[Work], others: Sequence[Work]) -> Spread:
    return Spread.of(one.rate / other.rate for one, other in zip(some, others, strict=True))


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
