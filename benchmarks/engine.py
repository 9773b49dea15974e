"""What a worker's threads cost the engine's own Python thread beside them, while rooms come and go."""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvtransfer.manager import Role

from benchmarks import machine
from benchmarks.pair import WrongBytes
from benchmarks.processes import Child, kvservice, together
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import SMALL_PIECES
from benchmarks.stepping import LONG_S, STEP_S, Engine, Work
from benchmarks.traffic import Schedule

SHAPE = SMALL_PIECES.with_tokens(1024, pool_pages=8 * 64).best()
ROOMS_PER_S = 20
LEAD_S = 0.05
"""From the order to begin to the first room."""
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
    Column("calls_cpu_us_room", "calls CPU us/room", 0),
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
    "calls: what the thread does for its rooms between steps, polls and all; longest: between two steps.",
    "room: from one side's join to its Success. Prompts of 1024 tokens of SmolLM2. All bytes were checked.",
    "Modes alternate; medians over the rounds, with quartiles.",
)


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
        "calls_cpu_us_room": 1e6 * sum(each.cpu_in_calls for each in within) / len(rooms),
        "longest_call_ms": 1e3 * max(each.longest_call for each in within),
        "room_beside_ms": Spread.of(1e3 * each for each in elsewhere),
        "room_within_ms": Spread.of(1e3 * each for each in rooms),
    }


def _ratio(some: Sequence[Work], others: Sequence[Work]) -> Spread:
    return Spread.of(one.rate / other.rate for one, other in zip(some, others, strict=True))
