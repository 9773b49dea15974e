"""Rooms of one page, warm: from the receiver's join to its Success, against the least that it could take."""

import argparse
import statistics
import sys
from dataclasses import dataclass, field

from benchmarks import floor, machine
from benchmarks.floor import EchoServer
from benchmarks.pair import Pair, running
from benchmarks.processes import Child
from benchmarks.report import Column, Report, Spread, percentile
from benchmarks.shapes import ONE_PAGE

IN_FLIGHT = (1, 4, 16, 64)
ROOMS = 200
"""Of each level in each round; the pool has a page for each, so that none is offered twice."""

COLUMNS = (
    Column("in_flight", "in flight"),
    Column("p50_ms", "p50 ms", 3),
    Column("p99_ms", "p99 ms", 3),
    Column("write_p50_ms", "write p50 ms", 3),
    Column("floor_ms", "floor ms", 3),
    Column("p50_to_floor", "p50 / floor"),
    Column("rooms_per_s", "rooms/s", 0),
    Column("service_cpu_ms", "service CPU ms/room", 3),
)
NOTES = (
    "p50, p99: from a receiver's join and offer to its Success, as its engine's thread sees it; the sender of each",
    "room has joined and sent before. Medians over the rounds, with quartiles; the order of the levels alternates.",
    "write: of the same rooms, from the making of the NIXL handle to its end.",
    "floor: in each round, medians of a message there and back on a bare gRPC stream, a raw NIXL write of the page,",
    "and a notification, one after the other. It is one room's, whatever is in flight.",
    "service CPU: of kvservice, everything from the senders' joins to the last cleanup.",
)


@dataclass(slots=True)
class Level:
    """What was seen of one number of rooms in flight; one entry for each round."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    to_floor: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    cpu: float = 0.0
    """Seconds of the service, over all rounds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help=f"rounds of {ROOMS} rooms a level [7]")


def run(arguments: argparse.Namespace) -> Report:
    """Measures all levels. Raises WrongBytes."""
    report = Report("rooms", machine.describe(), COLUMNS, NOTES)
    levels = {in_flight: Level() for in_flight in IN_FLIGHT}
    floors = []
    with running(ONE_PAGE) as pair, Child(EchoServer) as echo:
        report.machine["transport"] = pair.transport
        pair.transfer(_pages(ROOMS), _pages(ROOMS), 1)
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            floors.append(floor.measure(pair, echo, ROOMS))
            for in_flight in IN_FLIGHT if number % 2 else reversed(IN_FLIGHT):
                _measure(pair, in_flight, floors[-1].total, levels[in_flight])
    parts = {name: statistics.median(getattr(each, name) for each in floors) * 1e3 for name in floors[0].__slots__}
    report.notes = (*NOTES, "floor, in ms: " + ", ".join(f"{name} {value:.3f}" for name, value in parts.items()))
    for in_flight, level in levels.items():
        report.rows.append(
            {
                "in_flight": in_flight,
                "p50_ms": Spread.of(value * 1e3 for value in level.p50),
                "p99_ms": Spread.of(value * 1e3 for value in level.p99),
                "write_p50_ms": Spread.of(value * 1e3 for value in level.write),
                "floor_ms": Spread.of(each.total * 1e3 for each in floors),
                "p50_to_floor": Spread.of(level.to_floor),
                "rooms_per_s": Spread.of(level.rate),
                "service_cpu_ms": level.cpu * 1e3 / (ROOMS * arguments.rounds),
            }
        )
    return report


def _measure(pair: Pair, in_flight: int, floor_s: float, level: Level) -> None:
    pair.prefill.call("writes")
    used_before = machine.cpu_seconds(pair.service.pid)
    spans = pair.checked_transfer(_pages(ROOMS), _pages(ROOMS), in_flight)
    level.cpu += machine.cpu_seconds(pair.service.pid) - used_before
    began, ended = pair.prefill.call("writes")
    took = [succeeded - joined for joined, succeeded in spans]
    level.p50.append(statistics.median(took))
    level.p99.append(percentile(took, 99))
    level.write.append(statistics.median(end - begin for begin, end in zip(began, ended, strict=True)))
    level.to_floor.append(level.p50[-1] / floor_s)
    level.rate.append(len(spans) / (max(end for _, end in spans) - min(joined for joined, _ in spans)))


def _pages(count: int) -> list[list[int]]:
    return [[page] for page in range(count)]
