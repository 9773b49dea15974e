"""The same pages through SGLang's own classes over NIXL and through KVManager, in turn; see benchmarks/peers."""

import argparse
import itertools
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks import machine
from benchmarks.pair import Pair, WrongBytes, met
from benchmarks.peers.sglang_worker import SglangWorker
from benchmarks.processes import ROOT, Child, Span
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import LARGE_PIECES, SMALL_PIECES, PageLists, Shape, scattered

PYTHON = ROOT / ".cache/peers/sglang/bin/python"
HOW_TO_INSTALL = "SGLang is not installed: bash benchmarks/peers/install.sh (some 6 GB, a minute or two)"
START_TIMEOUT_S = 240.0
"""SGLang's imports take 10 s to 40 s."""
SETTLE_S = 0.05
"""After processes were resumed."""
FIRST = PageLists("first contact", [0], [1])
ONE = PageLists("one page", [2], [3])

COLUMNS = (
    Column("case", "case"),
    Column("mb", "MB", 1),
    Column("pool", "our pool"),
    Column("peer_ms", "SGLang ms"),
    Column("ours_ms", "ours ms"),
    Column("ours_to_peer", "ours / SGLang"),
    Column("speed_to_raw", "our speed / raw NIXL"),
)
NOTES = (
    "Time of a room: from the receiver's beginning to its success, in two processes; the sender had begun before.",
    "SGLang 0.5.23: NixlKVSender and NixlKVReceiver, polled as closely as ours. Scattered pages. Medians, quartiles;",
    "ratios are within one round; the order changes from round to round. Every byte of every transfer was checked.",
    "SGLang always sends a row of metadata after the pages, here of 256 bytes; our rooms have none.",
    "While one is measured, the processes of the others are stopped: SGLang's keep cores busy when idle.",
    "layer-major is the peer's own layout. raw: NIXL alone over our pool of the same row, the better of two ways.",
    "first contact: the first page between two new workers that are ready.",
)

Move = Callable[[PageLists], Span]


@dataclass(slots=True)
class Peer:
    """SGLang's two workers."""

    prefill: Child
    decode: Child
    _rooms: Iterator[int] = field(default_factory=lambda: itertools.count(secrets.randbits(40) + 1))

    def move(self, pages: PageLists) -> Span:
        """One room."""
        room = next(self._rooms)
        self.prefill.call("join", room, len(pages.sources))
        self.prefill.begin("send", pages.sources)
        span: Span = self.decode.call("receive", room, pages.targets)
        self.prefill.end()
        return span


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that moves pages between two processes, which are stopped while it does not."""

    prefill: Child
    decode: Child
    move: Move

    def measure(self, pages: PageLists) -> float:
        """Milliseconds of one room. Raises WrongBytes."""
        for child in (self.prefill, self.decode):
            child.resume()
        self.decode.call("clear", pages.targets)
        time.sleep(SETTLE_S)
        began, ended = self.move(pages)
        if wrong := self.decode.call("wrong_pieces", pages.targets, pages.sources):
            raise WrongBytes(f"{wrong} pieces do not hold what was sent to them")
        for child in (self.prefill, self.decode):
            child.pause()
        return (ended - began) * 1e3


Took = dict[str, list[float]]
"""By contender, one entry for each round."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--pairs", type=int, default=4, metavar="N", help="new pairs of workers for each model [4]")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="rounds of each pair [7]")


def installed() -> bool:
    """Whether there is a peer to measure against."""
    return PYTHON.exists()


def run(arguments: argparse.Namespace) -> Report:
    """Measures. Raises WrongBytes; exits with 2 if the peer is not installed."""
    if not installed():
        print(HOW_TO_INSTALL, file=sys.stderr)
        raise SystemExit(2)
    if arguments.pairs < 2:
        sys.exit(f"--pairs: must be at least 2, got {arguments.pairs}")
    return measure((SMALL_PIECES, LARGE_PIECES), arguments.pairs, arguments.rounds)


def measure(shapes: Sequence[Shape], pairs: int, rounds: int) -> Report:
    """Rows for first contact, one page and the prompt of each shape, in either of our pools. Raises WrongBytes."""
    report = Report("peer", machine.describe(), COLUMNS, NOTES)
    for shape in shapes:
        whole = scattered(shape)
        took: dict[str, tuple[PageLists, Took]] = {
            f"{shape.name}, {name}": (pages, {})
            for name, pages in (("first contact", FIRST), ("one page", ONE), (f"{shape.tokens} tokens", whole))
        }
        (_, first), *warm = took.values()
        for number in range(pairs):
            print(f"{shape.name}: pair {number + 1} of {pairs}", file=sys.stderr)
            with ExitStack() as stack:
                peer = stack.enter_context(_peer(shape))
                pools = {held.pool: stack.enter_context(met(held)) for held in (shape, shape.best())}
                contenders = {"SGLang": peer} | {pool: _rooms(pair) for pool, pair in pools.items()}
                for contender in contenders.values():
                    contender.prefill.pause()
                    contender.decode.pause()
                _round(contenders, FIRST, first, number)
                for pool, pair in pools.items():
                    report.machine["transport"] = pair.transport
                    contenders |= _raw(pool, pair)
                for pages, seen in warm:
                    _round(contenders, pages, {}, number)  # warms up
                    for count in range(rounds):
                        _round(contenders, pages, seen, count)
        for case, (pages, seen) in took.items():
            report.rows += [_row(shape, case, pages, seen, pool) for pool in pools]
    return report


def _round(contenders: Mapping[str, Contender], pages: PageLists, took: Took, number: int) -> None:
    order = list(contenders)
    first = number % len(order)
    order = order[first:] + order[:first]
    for name in order if number % 2 else reversed(order):
        took.setdefault(name, []).append(contenders[name].measure(pages))


@contextmanager
def _peer(shape: Shape) -> Iterator[Contender]:
    port = _free_port()
    with (
        Child(SglangWorker, "prefill", port, shape, python=PYTHON) as prefill,
        Child(SglangWorker, "decode", port, shape, python=PYTHON) as decode,
    ):
        prefill.begin("clear", [])
        prefill.end(START_TIMEOUT_S)
        decode.begin("wait_ready")
        decode.end(START_TIMEOUT_S)
        yield Contender(prefill, decode, Peer(prefill, decode).move)


def _rooms(pair: Pair) -> Contender:
    def move(pages: PageLists) -> Span:
        (span,) = pair.transfer([pages.sources], [pages.targets], 1)
        return span

    return Contender(pair.prefill, pair.decode, move)


def _raw(pool: str, pair: Pair) -> dict[str, Contender]:
    """Both ways. The raw agents meet here, so that they have not been of use to the first rooms."""

    def way(method: str) -> Move:
        def move(pages: PageLists) -> Span:
            pair.decode.call("raw.attend")
            span: Span = pair.prefill.call(f"raw.{method}", pages.sources, pages.targets)
            pair.decode.call("raw.leave")
            return span

        return move

    both = (pair.prefill, pair.decode)
    for child in both:
        child.resume()
    pair.meet_raw()
    for child in both:
        child.pause()
    return {f"{pool}, {method}": Contender(*both, way(method)) for method in ("write_prepared", "write_listed")}


def _row(shape: Shape, case: str, pages: PageLists, took: Took, pool: str) -> dict[str, object]:
    ours, theirs = took[pool], took["SGLang"]
    raw = [times for name, times in took.items() if name.startswith(f"{pool}, write_")]
    best_raw = min(raw, key=lambda times: Spread.of(times).median) if raw else []
    return {
        "case": case,
        "mb": shape.nbytes / shape.pages * len(pages.sources) / 1e6,
        "pool": pool,
        "peer_ms": Spread.of(theirs),
        "ours_ms": Spread.of(ours),
        "ours_to_peer": Spread.of(one / other for one, other in zip(ours, theirs, strict=True)),
        "speed_to_raw": Spread.of(one / other for one, other in zip(best_raw, ours, strict=True)) if raw else "-",
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
