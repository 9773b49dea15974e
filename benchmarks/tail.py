"""From the return of a room's last write to its receiver's Success, against a bare notification."""

import argparse
import statistics
import sys

from benchmarks import machine
from benchmarks.pair import running
from benchmarks.report import Column, Report, Spread, percentile
from benchmarks.shapes import ONE_PAGE

ROOMS = 200
"""In each round, one at a time."""

COLUMNS = (
    Column("rooms", "rooms"),
    Column("tail_p50_us", "tail p50 us", 0),
    Column("tail_p99_us", "tail p99 us", 0),
    Column("notification_us", "notification p50 us", 0),
    Column("tail_to_notification", "tail / notification"),
)
NOTES = (
    "tail: from the end of a one-page room's last write at the sender to its Success, as the receiving engine's thread",
    "sees it. notification: one way, over raw NIXL, both sides polling tightly. Medians, with quartiles.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help=f"rounds of {ROOMS} rooms [9]")


def run(arguments: argparse.Namespace) -> Report:
    """Measures. Raises WrongBytes."""
    report = Report("tail", machine.describe(), COLUMNS, NOTES)
    p50, p99, bare = [], [], []
    with running(ONE_PAGE) as pair:
        report.machine["transport"] = pair.transport
        pages = [[page] for page in range(ROOMS)]
        pair.transfer(pages, pages, 1)
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            pair.decode.begin("raw.pong", ROOMS)
            bare.append(statistics.median(pair.prefill.call("raw.ping", ROOMS)))
            pair.decode.end()
            pair.prefill.call("writes")
            spans = pair.checked_transfer(pages, pages, 1)
            _, ended = pair.prefill.call("writes")
            tails = [succeeded - end for (_, succeeded), end in zip(spans, ended, strict=True)]
            p50.append(statistics.median(tails))
            p99.append(percentile(tails, 99))
    report.rows.append(
        {
            "rooms": ROOMS * arguments.rounds,
            "tail_p50_us": Spread.of(value * 1e6 for value in p50),
            "tail_p99_us": Spread.of(value * 1e6 for value in p99),
            "notification_us": Spread.of(value * 1e6 for value in bare),
            "tail_to_notification": Spread.of(tail / one for tail, one in zip(p50, bare, strict=True)),
        }
    )
    return report
