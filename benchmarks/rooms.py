"""Rooms of one page, warm: from the receiver's join to its Success, against the least that it could take."""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks import floor, machine
from benchmarks.floor import EchoServer
from benchmarks.pair import Pair, running
from benchmarks.processes import Child, together
from benchmarks.report import Column, Report, Spread, percentile
from benchmarks.shapes import LARGE_TP8, ONE_PAGE, SMALL_TP3, Shape

SHAPES = (ONE_PAGE, SMALL_TP3.with_tokens(16, ONE_PAGE.pool_pages), LARGE_TP8.with_tokens(16, ONE_PAGE.pool_pages))
"""By ranks a side."""
IN_FLIGHT = (1, 4, 16, 64)
PACE_S = 0.003
"""Between two messages of one worker, where rooms come one at a time."""
ROOMS = 200
"""Of each level in each round; the pool has a page for each, so that none is offered twice."""

COLUMNS = (
    Column("ranks", "ranks a side"),
    Column("in_flight", "in flight"),
    Column("p50_ms", "p50 ms", 3),
    Column("p99_ms", "p99 ms", 3),
    Column("write_p50_ms", "write p50 ms", 3),
    Column("floor_ms", "floor ms", 3),
    Column("p50_to_floor", "p50 / floor"),
    Column("paced_floor_ms", "paced floor ms", 3),
    Column("p50_to_paced_floor", "p50 / paced floor"),
    Column("rooms_per_s", "rooms/s", 0),
    Column("service_cpu_ms", "service CPU ms/room", 3),
    Column("service_percent", "service % of a core", 0),
)
NOTES = (
    "p50, p99: from the first receiver's join and offer to the last one's Success, as their engine's thread sees it;",
    "all senders have joined and sent before. Medians over the rounds, with quartiles; the order of levels alternates.",
    "All ranks of a side are workers of their own in one process, driven by one thread.",
    "write: of the same rooms, from the making of the NIXL handle to its end. With several ranks, of any rank.",
    "floor: in each round, medians of a message there and back on a bare gRPC stream, a raw NIXL write of the page,",
    "and a notification, one after the other. It is one room's, whatever is in flight. Each part is repeated without a",
    "pause, as no room's are: in the paced floor each comes 3 ms after the one before, to threads that sleep and",
    "caches that others have used.",
    "service CPU: of kvservice, everything from the senders' joins to the last cleanup; its share of a core over the",
    "same time tells how near it was to its limit, which `saturated` measures.",
)


@dataclass(slots=True)
class Level:
    """What was seen of one number of rooms in flight; one entry for each round."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    to_floor: list[float] = field(default_factory=list)
    to_paced_floor: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Seconds of the service for a room."""
    share: list[float] = field(default_factory=list)
    """Of a core, that the service took."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help=f"rounds of {ROOMS} rooms a level [7]")


def run(arguments: argparse.Namespace) -> Report:
    """Measures all levels of all shapes. Raises WrongBytes."""
    return measure(SHAPES, arguments.rounds)


def measure(shapes: Sequence[Shape], rounds: int, rooms: int = ROOMS) -> Report:
    """A row for each shape and number in flight, from so many rooms in each round. Raises WrongBytes."""
    report = Report("rooms", machine.describe(), COLUMNS, NOTES)
    for shape in shapes:
        levels = {in_flight: Level() for in_flight in IN_FLIGHT}
        floors, paced = [], []
        with running(shape) as pair, Child(EchoServer) as echo:
            report.machine["transport"] = pair.transport
            pages = [[page] for page in range(rooms)]
            pair.transfer(pages, pages, 1)
            for number in range(rounds):
                print(f"{shape.ranks} ranks a side, round {number + 1} of {rounds}", file=sys.stderr)
                floors.append(floor.measure(pair, echo, rooms))
                paced.append(floor.measure(pair, echo, rooms, PACE_S))
                for in_flight in IN_FLIGHT if number % 2 else reversed(IN_FLIGHT):
                    level = levels[in_flight]
                    _measure(pair, pages, in_flight, level)
                    level.to_floor.append(level.p50[-1] / floors[-1].total)
                    level.to_paced_floor.append(level.p50[-1] / paced[-1].total)
        parts = {name: statistics.median(getattr(each, name) for each in floors) * 1e3 for name in floors[0].__slots__}
        told = ", ".join(f"{name} {value:.3f}" for name, value in parts.items())
        report.notes = (*report.notes, f"floor at {shape.ranks} ranks a side, in ms: {told}")
        for in_flight, level in levels.items():
            report.rows.append(
                {
                    "ranks": shape.ranks,
                    "in_flight": in_flight,
                    "p50_ms": Spread.of(value * 1e3 for value in level.p50),
                    "p99_ms": Spread.of(value * 1e3 for value in level.p99),
                    "write_p50_ms": Spread.of(value * 1e3 for value in level.write),
                    "floor_ms": Spread.of(each.total * 1e3 for each in floors),
                    "p50_to_floor": Spread.of(level.to_floor),
                    "paced_floor_ms": Spread.of(each.total * 1e3 for each in paced),
                    "p50_to_paced_floor": Spread.of(level.to_paced_floor),
                    "rooms_per_s": Spread.of(level.rate),
                    "service_cpu_ms": Spread.of(value * 1e3 for value in level.cpu),
                    "service_percent": Spread.of(100 * value for value in level.share),
                }
            )
    return report


def _measure(pair: Pair, pages: list[list[int]], in_flight: int, level: Level) -> None:
    together(pair.prefills, "writes")
    before, began_at = machine.cpu_seconds(pair.service.pid), time.monotonic()
    spans = pair.checked_transfer(pages, pages, in_flight)
    used, passed = machine.cpu_seconds(pair.service.pid) - before, time.monotonic() - began_at
    began, ended = pair.prefill.call("writes")
    took = [succeeded - joined for joined, succeeded in spans]
    level.p50.append(statistics.median(took))
    level.p99.append(percentile(took, 99))
    level.write.append(statistics.median(end - begin for begin, end in zip(began, ended, strict=True)))
    level.rate.append(len(spans) / (max(end for _, end in spans) - min(joined for joined, _ in spans)))
    level.cpu.append(used / len(spans))
    level.share.append(used / passed)
