"""What is wanted against what is seen, line by line, from short forms of the other benchmarks; in under ten minutes."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import engine, first, idle, machine, peer, rooms, saturated, tail, transfer
from benchmarks.report import Column, Report, Spread
from benchmarks.shapes import LARGE_PIECES, SMALL_PIECES, scattered

COLUMNS = (
    Column("benchmark", "benchmark"),
    Column("figure", "figure"),
    Column("wanted", "wanted"),
    Column("seen", "seen"),
    Column("verdict", ""),
)
NOTES = (
    "Medians; the benchmarks themselves tell what each figure is and how far it spreads. On a machine that others use",
    "too, only ratios mean anything, and not even all of them.",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A figure and its bound."""

    benchmark: str
    figure: str
    seen: float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool:
        """Whether it is what is wanted; a figure without a bound always is."""
        return (self.at_most is None or self.seen <= self.at_most) and (
            self.at_least is None or self.seen >= self.at_least
        )

    def row(self) -> dict[str, object]:
        """Of the report."""
        bounds = (("at most", self.at_most), ("at least", self.at_least))
        wanted = [f"{word} {bound:g}" for word, bound in bounds if bound is not None]
        verdict = ("met" if self.met else "MISSED") if wanted else ""
        return {
            "benchmark": self.benchmark,
            "figure": self.figure,
            "wanted": wanted[0] if wanted else "-",
            "seen": self.seen,
            "verdict": verdict,
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes none."""


def run(arguments: argparse.Namespace) -> Report:
    """Runs all of them. Raises WrongBytes."""
    del arguments
    lines = []
    for part in (_transfer, _rooms, _saturated, _first, _tail, _idle, _engine, _peer):
        began = time.monotonic()
        lines += list(part())
        print(f"{part.__name__[1:]} took {time.monotonic() - began:.0f} s", file=sys.stderr)
    return verdicts(lines)


def verdicts(lines: Sequence[Line]) -> Report:
    """A row for each line; counts those that are missed."""
    report = Report("check", machine.describe(), COLUMNS, NOTES)
    report.rows = [line.row() for line in lines]
    report.missed = sum(not line.met for line in lines)
    return report


def _transfer() -> Iterator[Line]:
    shapes = [shape for each in (SMALL_PIECES, LARGE_PIECES) for shape in (each, each.best())]
    for row in transfer.measure([(shape, [scattered(shape)]) for shape in shapes], rounds=7).rows:
        line = partial(Line, "transfer")
        shape = f"{row['shape']}, {row['pool']}"
        yield line(f"{shape}: write / raw NIXL", _of(row, "write_to_raw"))
        yield line(f"{shape}: awaited room / raw NIXL", _of(row, "awaited_to_raw"), at_least=0.95)
        yield line(f"{shape}: room from its joins on / raw NIXL", _of(row, "room_to_raw"), at_least=0.95)


def _rooms() -> Iterator[Line]:
    alone, *_ = rooms.measure(rooms.SHAPES[:1], rounds=5).rows
    yield Line("rooms", "one page, 1x1, one at a time: p50 / floor", _of(alone, "p50_to_floor"), at_most=2.5)
    yield Line("rooms", "the same to its floor at the rooms' pace", _of(alone, "p50_to_paced_floor"))


def _saturated() -> Iterator[Line]:
    bounds = {1: 0.3, 8: 3.0}
    for row in saturated.measure(bounds, rounds=3).rows:
        sides = f"{row['ranks']}x{row['ranks']}"
        yield Line("saturated", f"{sides}: service CPU, ms a room", _of(row, "cpu_ms"), at_most=bounds[row["ranks"]])
        yield Line("saturated", f"{sides}: rooms a second", _of(row, "rooms_per_s"))


def _first() -> Iterator[Line]:
    (row,) = first.run(argparse.Namespace(pairs=5)).rows
    yield Line("first", "first room's extra, in warm rooms", _of(row, "extra_to_warm"), at_most=1)


def _tail() -> Iterator[Line]:
    (row,) = tail.run(argparse.Namespace(rounds=5)).rows
    yield Line("tail", "tail p50 / notification", _of(row, "tail_to_notification"), at_most=2)


def _idle() -> Iterator[Line]:
    for row in idle.run(argparse.Namespace(seconds=4.0)).rows:
        for who in ("service", "prefill", "decode"):
            yield Line("idle", f"{row['state']}: {who}, % of a core", _of(row, f"{who}_percent"), at_most=2)
        if row["service_bytes_room"] != "-":
            yield Line("idle", f"{row['state']}: service, bytes a room", _of(row, "service_bytes_room"))


def _engine() -> Iterator[Line]:
    for row in engine.run(argparse.Namespace(rounds=5, seconds=1.5)).rows:
        line = partial(Line, "engine")
        yield line(f"{row['side']}: rate with an idle worker / without", _of(row, "idle_to_alone"), at_least=0.97)
        yield line(f"{row['side']}: rate with its rooms / without", _of(row, "within_to_beside"), at_least=0.97)
        yield line(f"{row['side']}: longest step, longer by ms", _of(row, "longer_ms"), at_most=5)


def _peer() -> Iterator[Line]:
    if not peer.installed():
        print(f"peer: left out. {peer.HOW_TO_INSTALL}", file=sys.stderr)
        return
    for row in peer.run(argparse.Namespace(pairs=2, rounds=5)).rows:
        case, pool = row["case"], row["pool"]
        line, to_peer = partial(Line, "peer"), _of(row, "ours_to_peer")
        if case.endswith("first contact"):
            yield line(f"{case}, {pool}: time / SGLang's", to_peer, at_most=0.1)
        elif case.endswith("one page"):
            yield line(f"{case}, {pool}: time / SGLang's", to_peer, at_most=0.8)
        elif pool == "layer-major":
            yield line(f"{case}, {pool}: speed / raw NIXL", _of(row, "speed_to_raw"), at_least=0.95)
        else:
            yield line(f"{case}, {pool}: time / SGLang's", to_peer, at_most=0.6)


def _of(row: dict[str, Any], key: str) -> float:
    value = row[key]
    return value.median if isinstance(value, Spread) else float(value)
