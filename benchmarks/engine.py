"""What a worker's threads cost the engine's own Python thread beside them, while rooms come and go."""

import argparse
import itertools
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
MODES = ("alone", "idle", "beside", "within")

COLUMNS = (
    Column("side", "engine's side"),
    Column("rooms_per_s", "rooms/s"),
    Column("steps_per_s", "steps/s alone", 0),
    Column("same_before", "same before", 3),
    Column("idle_to_alone", "idle / alone", 3),
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
    "within: in a process with a worker whose rooms come and go. beside: in one without a worker, while the same rooms",
    "come and go in a third: the machine has the same work in both, and within / beside is what it costs to have it in",
    "the engine's process. idle / alone: the same two processes while there is no room at all.",
    "same before: the two processes' rates before there was any worker. The ratios after it are divided by it.",
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
    work: dict[str, list[Work]] = {mode: [] for mode in ("before", "before control", *MODES)}
    elsewhere: list[float] = []
    with kvservice() as service, _stage(role) as stage:
        for number in range(rounds):
            both = [("before", stage.stepping), ("before control", stage.control)]
            for mode, process in both if number % 2 else reversed(both):
                work[mode].append(process.call("work", stage.turns, seconds, None))
        workers = (stage.stepping, stage.twin, stage.far)
        together(workers, "open_worker", service.target)
        together(workers, "wait_ready")
        stage.slice("within", seconds)  # warms up
        for number in range(rounds):
            print(f"{role}: round {number + 1} of {rounds}", file=sys.stderr)
            for mode in MODES if number % 2 else reversed(MODES):
                done, seen = stage.slice(mode, seconds)
                work[mode].append(done)
                elsewhere += seen
    return {"side": role, **_row(work, elsewhere)}


@dataclass(frozen=True, slots=True)
class Stage:
    """All processes but the service's."""

    role: Role
    stepping: Child
    control: Child
    """Makes steps too, and never has a worker."""
    twin: Child
    """Has a worker like the stepping one's, and makes no steps."""
    far: Child
    """The other side of both."""
    turns: int
    """Of a step's work."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def slice(self, mode: str, seconds: float) -> tuple[Work, list[float]]:
        """Steps for so long in one of MODES; with them, seconds of rooms next door. Raises WrongBytes."""
        if mode == "idle":
            return self.stepping.call("work", self.turns, seconds, None), []
        if mode == "alone":
            return self.control.call("work", self.turns, seconds, None), []
        worker, name = (self.twin, "twin") if mode == "beside" else (self.stepping, "stepping")
        receiving, prefill = (worker, "far") if self.role == "decode" else (self.far, name)
        receiving.call("clear")
        rooms = list(itertools.islice(self._numbers, max(2, round(seconds * ROOMS_PER_S))))
        schedule = Schedule(rooms, time.monotonic() + LEAD_S, 1 / ROOMS_PER_S, prefill)
        self.far.begin("drive", schedule)
        if mode == "beside":
            self.twin.begin("drive", schedule)
            work: Work = self.control.call("work", self.turns, seconds, None)
            seen = self.twin.end()
        else:
            work, seen = self.stepping.call("work", self.turns, seconds, schedule), []
        self.far.end()
        if wrong := receiving.call("wrong_pieces", len(rooms)):
            raise WrongBytes(f"{wrong} pieces do not hold what was sent to them")
        return work, seen


@contextmanager
def _stage(role: Role) -> Iterator[Stage]:
    with (
        Child(Engine, role, "stepping", SHAPE) as stepping,
        Child(Engine, role, "control", SHAPE) as control,
        Child(Engine, role, "twin", SHAPE) as twin,
        Child(Engine, "decode" if role == "prefill" else "prefill", "far", SHAPE) as far,
    ):
        yield Stage(role, stepping, control, twin, far, stepping.call("calibrate"))


def _row(work: Mapping[str, Sequence[Work]], elsewhere: Sequence[float]) -> dict[str, object]:
    beside, within = work["beside"], work["within"]
    longest = {mode: max(each.longest for each in done) for mode, done in work.items()}
    rooms = [room for each in within for room in each.rooms]
    rates = {mode: [each.rate for each in done] for mode, done in work.items()}
    same = _ratio(rates["before"], rates["before control"])
    return {
        "rooms_per_s": ROOMS_PER_S,
        "steps_per_s": Spread.of(rates["alone"]),
        "same_before": same,
        "idle_to_alone": _ratio(rates["idle"], rates["alone"], same.median),
        "within_to_beside": _ratio(rates["within"], rates["beside"], same.median),
        "clock_within_to_beside": _ratio(
            [each.rate_by_clock for each in within], [each.rate_by_clock for each in beside], same.median
        ),
        **{f"longest_{mode}_ms": 1e3 * longest[mode] for mode in MODES},
        **{f"long_{mode}": sum(each.long for each in work[mode]) for mode in MODES},
        "longer_ms": 1e3 * (longest["within"] - longest["beside"]),
        "calls_cpu_us_room": 1e6 * sum(each.cpu_in_calls for each in within) / len(rooms),
        "longest_call_ms": 1e3 * max(each.longest_call for each in within),
        "room_beside_ms": Spread.of(1e3 * each for each in elsewhere),
        "room_within_ms": Spread.of(1e3 * each for each in rooms),
    }


def _ratio(some: Sequence[float], others: Sequence[float], same: float = 1.0) -> Spread:
    return Spread.of(one / other / same for one, other in zip(some, others, strict=True))
