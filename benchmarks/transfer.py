"""One room at a time, of one prompt: how fast its pages move, against raw NIXL and against memcpy."""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from benchmarks import machine
from benchmarks.pair import Pair, WrongBytes, overall, running
from benchmarks.processes import Span, together
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import LARGE_PIECES, SMALL_PIECES, SMALL_TP3, PageLists, Shape, contiguous, scattered

COLUMNS = (
    Column("shape", "shape"),
    Column("tokens", "tokens"),
    Column("pool", "pool"),
    Column("pages", "pages"),
    Column("memcpy_gb_s", "memcpy GB/s", 1),
    Column("raw_gb_s", "raw GB/s", 1),
    Column("write_gb_s", "write GB/s", 1),
    Column("awaited_gb_s", "awaited GB/s", 1),
    Column("room_gb_s", "room GB/s", 1),
    Column("write_to_raw", "write / raw"),
    Column("awaited_to_raw", "awaited / raw"),
    Column("room_to_raw", "room / raw"),
    Column("room_to_memcpy", "room / memcpy"),
    Column("room_less_write_ms", "room - write, ms"),
)
NOTES = (
    "Medians, with quartiles; ratios are of speeds within one round, in which the order changes from round to round.",
    "room: from the receiver's join to its Success, by KVManager in two processes; the sender had joined and sent.",
    "awaited: of rooms that both sides had joined before, from send() to Success: what a first token waits for when",
    "prefill is over. write: of the first kind, from the making of the first NIXL handle to the end of the last.",
    "raw: NIXL alone between the same processes and pages: the better of prepared lists by index, and of",
    "initialize_xfer over descriptors merged beforehand. Page-major: a page is one descriptor.",
    "memcpy: one contiguous copy of as many bytes within one process. Every byte of every transfer was checked.",
    "TP 3: three processes on either side, at the same time, from the first beginning to the last end.",
)


def cases(device: str = "") -> Iterator[tuple[Shape, Sequence[PageLists]]]:
    """Shapes, and the page lists that each moves by; fewer on a device."""
    if device:
        for shape in (SMALL_PIECES, LARGE_PIECES):
            for page_major in (False, True):
                held = replace(shape, page_major=page_major, device=device)
                yield held, (scattered(held),)
        return
    for shape in (SMALL_PIECES, LARGE_PIECES):
        for page_major in (False, True):
            for huge in (False, True):
                held = replace(shape, page_major=page_major, huge=huge)
                yield held, (contiguous(held), scattered(held))
    for tokens, pool_pages in ((16, 256), (128, 256), (8192, 640)):
        prompt = SMALL_PIECES.with_tokens(tokens, pool_pages)
        for held in (prompt, prompt.best()):
            yield held, (scattered(held),)
    for held in (SMALL_TP3, SMALL_TP3.best()):
        yield held, (scattered(held),)


@dataclass(slots=True)
class Seconds:
    """What each round of one case took, in order of the rounds."""

    by: dict[str, list[float]] = field(default_factory=dict)

    def note(self, name: str, span: Span) -> None:
        self.by.setdefault(name, []).append(span[1] - span[0])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--device", choices=["cpu", "cuda"], default="", help="hold the pools in torch tensors there")
    parser.add_argument("--cases", type=int, metavar="N", help="only the first N")
    parser.add_argument("--rounds", type=int, default=11, metavar="N", help="rounds of each case, at least 7 [11]")


def run(arguments: argparse.Namespace) -> Report:
    """All cases, of a device if one is given. Raises WrongBytes."""
    if arguments.rounds < 7:
        sys.exit(f"--rounds: must be at least 7, got {arguments.rounds}")
    return measure(islice(cases(arguments.device), arguments.cases), arguments.rounds)


def measure(cases: Iterable[tuple[Shape, Sequence[PageLists]]], rounds: int) -> Report:
    """A row for each shape and page lists. Raises WrongBytes."""
    report = Report("transfer", machine.describe(), COLUMNS, NOTES)
    for shape, lists in cases:
        print(f"{shape.name}, {shape.tokens} tokens, {shape.pool}: starting a service and workers", file=sys.stderr)
        with running(shape, processes=shape.ranks) as pair:
            report.machine["transport"] = pair.transport
            targets: set[int] = set()
            for pages in lists:
                print(f"{pages.name} pages: {rounds} rounds", file=sys.stderr)
                row = _row(shape, pages, _seconds(pair, pages, rounds))
                report.rows.append({**row, "memory": pair.prefill.call("kind_of_pages")})
                targets.update(pages.targets)
            if touched := sum(together(pair.decodes, "touched_pieces", sorted(targets))):
                raise WrongBytes(f"{shape.name}: {touched} pieces were written that were no room's")
    return report


def _seconds(pair: Pair, pages: PageLists, rounds: int) -> Seconds:
    seconds = Seconds()

    def raw(method: str) -> Callable[[], None]:
        def write() -> None:
            together(pair.decodes, "raw.attend")
            spans = together(pair.prefills, f"raw.{method}", pages.sources, pages.targets)
            seconds.note(method, overall(spans))
            together(pair.decodes, "raw.leave")

        return write

    def room() -> None:
        together(pair.prefills, "writes")
        (span,) = pair.transfer([pages.sources], [pages.targets], 1)
        seconds.note("room", span)
        seconds.note("write", overall([(began[0], ended[-1]) for began, ended in together(pair.prefills, "writes")]))

    def awaited() -> None:
        seconds.note("awaited", pair.awaited_transfer(pages.sources, pages.targets))

    moves = [raw("write_prepared"), raw("write_listed"), room, awaited]
    for number in range(rounds + 1):
        if number == 1:
            seconds.by.clear()  # the first round only warms up
        first = number % len(moves)
        order = moves[first:] + moves[:first]
        for move in order if number % 2 else reversed(order):
            together(pair.decodes, "clear", pages.targets)
            move()
            pair.check(pages.targets, pages.sources)
        seconds.note("memcpy", overall(together(pair.prefills, "copy_memory")))
    return seconds


def _row(shape: Shape, pages: PageLists, seconds: Seconds) -> dict[str, object]:
    raw_by = min(("write_prepared", "write_listed"), key=lambda name: Spread.of(seconds.by[name]).median)
    took = {name: seconds.by[name] for name in ("memcpy", "write", "awaited", "room")} | {"raw": seconds.by[raw_by]}
    nbytes, descriptors = shape.nbytes * shape.ranks, shape.descriptors * shape.ranks

    def speed(name: str) -> Spread:
        return Spread.of(nbytes / 1e9 / each for each in took[name])

    def ratio(name: str, base: str) -> Spread:
        return Spread.of(of / each for each, of in zip(took[name], took[base], strict=True))

    return {
        "shape": f"{shape.name}, {nbytes / 1e6:.0f} MB in {descriptors}",
        "tokens": shape.tokens,
        "pool": shape.pool,
        "bytes": nbytes,
        "descriptors": descriptors,
        "pages": pages.name,
        "raw_by": {"write_prepared": "prepared", "write_listed": "initialize_xfer"}[raw_by],
        **{f"{name}_gb_s": speed(name) for name in took},
        "write_to_raw": ratio("write", "raw"),
        "awaited_to_raw": ratio("awaited", "raw"),
        "room_to_raw": ratio("room", "raw"),
        "room_to_memcpy": ratio("room", "memcpy"),
        "room_less_write_ms": Spread.of(
            (room - write) * 1e3 for room, write in zip(took["room"], took["write"], strict=True)
        ),
    }
