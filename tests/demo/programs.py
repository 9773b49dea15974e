"""Running the demo's programs as a user does, and looking at the processes that they start."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.waiting import wait_for


def start(program: str, *arguments: str) -> "subprocess.Popen[str]":
    """Start `python -m examples.pd_llm.<program>`, its output readable."""
    command = [sys.executable, "-m", f"examples.pd_llm.{program}", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def descendants(pid: int) -> list[int]:
    """Every process that has this one as its ancestor."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, frontier = [], {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += frontier
    return found


def wait_for_descendants(pid: int, count: int, timeout_s: float = 30) -> list[int]:
    return wait_for(lambda: descendants(pid), lambda found: len(found) >= count, timeout_s)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_ended(pids: Iterable[int], timeout_s: float = 15) -> None:
    watched = list(pids)
    wait_for(lambda: [pid for pid in watched if alive(pid)], lambda left: not left, timeout_s)


def running(argument: str, pids: Iterable[int]) -> int:
    """Of these processes, the one that has this argument."""
    for pid in pids:
        if argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return pid
    raise LookupError(argument)


def end(process: "subprocess.Popen[str]") -> None:
    """Kill it if it is there still; what it started dies with it."""
    if process.poll() is None:
        os.kill(process.pid, 9)
    process.communicate()
