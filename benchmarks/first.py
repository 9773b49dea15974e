"""What the first request between two engines pays beyond a warm one, once both are ready."""

import argparse
import statistics
import sys

from benchmarks import machine
from benchmarks.pair import met
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import ONE_PAGE

WARM_ROOMS = 30

COLUMNS = (
    Column("pairs", "pairs"),
    Column("first_ms", "first room ms", 3),
    Column("warm_ms", "warm room ms", 3),
    Column("extra_ms", "extra ms", 3),
    Column("extra_to_warm", "extra / warm"),
)
NOTES = (
    "Each pair: a new service and two new workers, ready and thus warmed up; nothing else was moved between them.",
    "room: of one page, from the receiver's join to its Success; the sender has joined and sent before.",
    f"warm: median of the {WARM_ROOMS} rooms after the first, each begun alike, by a pair at rest. Bytes were checked.",
    "extra: first less warm, pair by pair. Medians over the pairs, with quartiles.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--pairs", type=int, default=9, metavar="N", help="new pairs of engines [9]")


def run(arguments: argparse.Namespace) -> Report:
    """Measures. Raises WrongBytes."""
    report = Report("first", machine.describe(), COLUMNS, NOTES)
    first, warm = [], []
    for number in range(arguments.pairs):
        print(f"pair {number + 1} of {arguments.pairs}", file=sys.stderr)
        with met(ONE_PAGE) as pair:
            report.machine["transport"] = pair.transport
            took = []
            for page in range(1 + WARM_ROOMS):
                ((joined, succeeded),) = pair.checked_transfer([[page]], [[page]], 1)
                took.append((succeeded - joined) * 1e3)
        first.append(took[0])
        warm.append(statistics.median(took[1:]))
    both = list(zip(first, warm, strict=True))
    report.rows.append(
        {
            "pairs": arguments.pairs,
            "first_ms": Spread.of(first),
            "warm_ms": Spread.of(warm),
            "extra_ms": Spread.of(one - other for one, other in both),
            "extra_to_warm": Spread.of(one / other - 1 for one, other in both),
        }
    )
    return report
