"""Where the time of a one-page room goes, step by step, from the receiver's join to its Success."""

import argparse
import itertools
import statistics
import sys
from collections.abc import Sequence

from benchmarks import machine
from benchmarks.pair import running
from benchmarks.probe import Mark
from benchmarks.processes import Span, together
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import ONE_PAGE

ROOMS = 200
"""In each round, one at a time."""
STEPS = (
    ("join taken to be sent", "receiver() and offer(), and the way to the thread that sends"),
    ("offer received", "two messages, and what the service does between them"),
    ("mover has it", "the offer is looked at, and a turn at NIXL is had"),
    ("write planned", "pages to descriptors"),
    ("written", "the write"),
    ("notification sent", "the Completion leaves"),
    ("notification read", "on its way, until the engine's thread looks"),
    ("Success", "it is checked"),
)

COLUMNS = (
    Column("step", "until"),
    Column("us", "us", 0),
    Column("share", "% of the room", 0),
    Column("what", "what it takes"),
)
NOTES = (
    "Rooms of one page, one at a time; the sender of each has joined and sent before. Medians of each round, and over",
    "the rounds with quartiles; medians of parts do not add up to that of the whole. Shares are of the sum of parts.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help=f"rounds of {ROOMS} rooms [9]")


def run(arguments: argparse.Namespace) -> Report:
    """Measures. Raises WrongBytes."""
    report = Report("path", machine.describe(), COLUMNS, NOTES)
    took: dict[str, list[float]] = {step: [] for step, _ in STEPS}
    whole = []
    with running(ONE_PAGE) as pair:
        report.machine["transport"] = pair.transport
        both = (pair.prefill, pair.decode)
        pages = [[page] for page in range(ROOMS)]
        together(both, "path")
        pair.transfer(pages, pages, 1)
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            together(both, "path")
            spans = pair.checked_transfer(pages, pages, 1)
            marks = sorted(itertools.chain(*together(both, "path")), key=lambda mark: mark[1])
            parts = [found for span in spans if (found := _parts(span, marks))]
            for at, (step, _) in enumerate(STEPS):
                took[step].append(statistics.median(part[at] for part in parts) * 1e6)
            whole.append(statistics.median(ended - began for began, ended in spans) * 1e6)
    total = sum(statistics.median(values) for values in took.values())
    for step, what in STEPS:
        each = Spread.of(took[step])
        report.rows.append({"step": step, "us": each, "share": each.median * 100 / total, "what": what})
    report.rows.append({"step": "the whole", "us": Spread.of(whole), "share": 100.0, "what": ""})
    return report


def _parts(span: Span, marks: Sequence[Mark]) -> list[float] | None:
    """Seconds of each step of one room; None where a step is missing, as one that came before its time."""
    began, ended = span
    # The last of each name: a join that left without its offer left once more with it.
    seen = {name: at for name, at in marks if began <= at <= ended} | {"Success": ended}
    if any(step not in seen for step, _ in STEPS):
        return None
    times = [began, *(seen[step] for step, _ in STEPS)]
    return [after - before for before, after in itertools.pairwise(times)]
