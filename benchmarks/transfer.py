"""One room at a time, of a thousand tokens: how fast its pages move, against raw NIXL and against memcpy."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks import machine
from benchmarks.pair import Pair, WrongBytes, running
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import LARGE_PIECES, SMALL_PIECES, PageLists, Shape, contiguous, scattered

COLUMNS = (
    Column("shape", "shape"),
    Column("pages", "pages"),
    Column("memcpy_gb_s", "memcpy GB/s", 1),
    Column("raw_gb_s", "raw GB/s", 1),
    Column("write_gb_s", "write GB/s", 1),
    Column("room_gb_s", "room GB/s", 1),
    Column("write_to_raw", "write / raw"),
    Column("room_to_raw", "room / raw"),
    Column("room_to_memcpy", "room / memcpy"),
    Column("room_less_write_ms", "room - write, ms"),
)
NOTES = (
    "Medians, with quartiles; ratios are of speeds within one round, in which the order changes from round to round.",
    "room: from the receiver's join to its Success, by KVManager in two processes; the sender had joined and sent.",
    "write: of the same rooms, from the making of the first NIXL handle to the end of the last.",
    "raw: NIXL alone between the same two processes and pages: the better of prepared lists by index, and of",
    "initialize_xfer over descriptors merged beforehand.",
    "memcpy: one contiguous copy of as many bytes within one process. Every byte of every transfer was checked.",
)


@dataclass(slots=True)
class Seconds:
    """What each round of one case took, in order of the rounds."""

    by: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, seconds: float) -> None:
        self.by.setdefault(name, []).append(seconds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="rounds of each case, at least 7 [11]")


def run(arguments: argparse.Namespace) -> Report:
    """Both shapes. Raises WrongBytes."""
    if arguments.rounds < 7:
        sys.exit(f"--rounds: must be at least 7, got {arguments.rounds}")
    return measure((SMALL_PIECES, LARGE_PIECES), arguments.rounds)


def measure(shapes: Sequence[Shape], rounds: int) -> Report:
    """A row for each shape, with contiguous and with scattered pages. Raises WrongBytes."""
    report = Report("transfer", machine.describe(), COLUMNS, NOTES)
    for shape in shapes:
        print(f"{shape.name}: starting a service and two workers", file=sys.stderr)
        with running(shape) as pair:
            report.machine["transport"] = pair.transport
            targets: set[int] = set()
            for pages in (contiguous(shape), scattered(shape)):
                print(f"{shape.name}, {pages.name} pages: {rounds} rounds", file=sys.stderr)
                report.rows.append(_row(shape, pages, _seconds(pair, pages, rounds)))
                targets.update(pages.targets)
            if touched := pair.decode.call("touched_pieces", sorted(targets)):
                raise WrongBytes(f"{shape.name}: {touched} pieces were written that were no room's")
    return report


def _seconds(pair: Pair, pages: PageLists, rounds: int) -> Seconds:
    seconds = Seconds()

    def raw(method: str) -> Callable[[], None]:
        def write() -> None:
            pair.decode.call("raw.attend")
            seconds.note(method, pair.prefill.call(f"raw.{method}", pages.sources, pages.targets))
            pair.decode.call("raw.leave")

        return write

    def room() -> None:
        pair.prefill.call("writes")
        ((joined, succeeded),) = pair.transfer([pages.sources], [pages.targets], 1)
        began, ended = pair.prefill.call("writes")
        seconds.note("room", succeeded - joined)
        seconds.note("write", ended[-1] - began[0])

    moves = [raw("write_prepared"), raw("write_listed"), room]
    for number in range(rounds + 1):
        if number == 1:
            seconds.by.clear()  # the first round only warms up
        first = number % len(moves)
        order = moves[first:] + moves[:first]
        for move in order if number % 2 else reversed(order):
            pair.decode.call("clear", pages.targets)
            move()
            pair.check(pages.targets, pages.sources)
        seconds.note("memcpy", pair.prefill.call("copy_memory"))
    return seconds


def _row(shape: Shape, pages: PageLists, seconds: Seconds) -> dict[str, object]:
    raw_by = min(("write_prepared", "write_listed"), key=lambda name: Spread.of(seconds.by[name]).median)
    took = {name: seconds.by[name] for name in ("memcpy", "write", "room")} | {"raw": seconds.by[raw_by]}

    def speed(name: str) -> Spread:
        return Spread.of(shape.nbytes / 1e9 / each for each in took[name])

    def ratio(name: str, base: str) -> Spread:
        return Spread.of(of / each for each, of in zip(took[name], took[base], strict=True))

    return {
        "shape": f"{shape.name}, {shape.nbytes / 1e6:.0f} MB in {shape.descriptors}",
        "bytes": shape.nbytes,
        "descriptors": shape.descriptors,
        "pages": pages.name,
        "raw_by": {"write_prepared": "prepared", "write_listed": "initialize_xfer"}[raw_by],
        **{f"{name}_gb_s": speed(name) for name in took},
        "write_to_raw": ratio("write", "raw"),
        "room_to_raw": ratio("room", "raw"),
        "room_to_memcpy": ratio("room", "memcpy"),
        "room_less_write_ms": Spread.of(
            (room - write) * 1e3 for room, write in zip(took["room"], took["write"], strict=True)
        ),
    }
