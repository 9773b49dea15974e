"""What workers and the service cost while nothing moves: CPU of each, and the service's memory for a waiting room."""

import argparse
import sys
import time
from dataclasses import dataclass

from benchmarks import machine
from benchmarks.pair import Pair, met
from benchmarks.report import Column, Report
from benchmarks.shapes import ONE_PAGE


@dataclass(frozen=True, slots=True)
class Counts:
    """Rooms that wait: at first, and for the service's memory."""

    rooms: int
    filling: int
    """They take up what the service's heap has free; its resident memory grows with those that come after them."""
    measured: int


STANDARD = Counts(rooms=1000, filling=2000, measured=4000)
SETTLE_S = 2.0
"""After the workers have met, and after the last join: offers are watched closely while they are young, and the memory
of calls is given back."""

COLUMNS = (
    Column("state", "state"),
    Column("service_percent", "service % of a core", 2),
    Column("prefill_percent", "prefill worker %", 2),
    Column("decode_percent", "decode worker %", 2),
    Column("service_bytes_room", "service bytes/room", 0),
)
NOTES = (
    "CPU of all threads of a process, as the kernel counts it, while its engine's own thread sleeps. The workers have",
    f"met. Bytes: growth of the service's resident memory by {STANDARD.measured} rooms, after {STANDARD.filling} that",
    "fill its heap.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="to look at each state [8]")


def run(arguments: argparse.Namespace) -> Report:
    """Measures with no room open, then with rooms that wait for either side."""
    return measure(arguments.seconds, STANDARD)


def measure(seconds: float, counts: Counts) -> Report:
    """A row with no room open, one with rooms that wait for their receivers, one for their senders."""
    report = Report("idle", machine.describe(), COLUMNS, NOTES)
    with met(ONE_PAGE) as pair:
        report.machine["transport"] = pair.transport
        time.sleep(SETTLE_S)
        report.rows.append({"state": "no room open", **_look(pair, seconds), "service_bytes_room": "-"})
        report.rows.append(_waiting(pair, "send", "for receivers", seconds, counts))
    with met(ONE_PAGE) as pair:
        report.rows.append(_waiting(pair, "offer", "for senders", seconds, counts))
    return report


def _waiting(pair: Pair, method: str, whom: str, seconds: float, counts: Counts) -> dict[str, object]:
    side = pair.prefill if method == "send" else pair.decode

    def join(count: int) -> int:
        rooms = pair.numbers(count)
        side.call(method, {room: [0] for room in rooms})
        pair.wait_joined(rooms)
        time.sleep(SETTLE_S)
        return machine.memory_bytes(pair.service.pid)

    join(counts.rooms)
    figures = _look(pair, seconds)
    bytes_room = (-join(counts.filling) + join(counts.measured)) / counts.measured
    return {"state": f"{counts.rooms} rooms wait {whom}", **figures, "service_bytes_room": bytes_room}


def _look(pair: Pair, seconds: float) -> dict[str, float]:
    print(f"looking for {seconds:g} s", file=sys.stderr)
    pids = {"service": pair.service.pid, "prefill": pair.prefill.pid, "decode": pair.decode.pid}
    began, used = time.monotonic(), {name: machine.cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    took = time.monotonic() - began
    return {f"{name}_percent": 100 * (machine.cpu_seconds(pid) - used[name]) / took for name, pid in pids.items()}
