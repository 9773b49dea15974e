"""Processes of a benchmark: the real kvservice, and children that are driven call by call."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, Protocol

Span = tuple[float, float]
"""Beginning and end on CLOCK_MONOTONIC, which all processes of a machine share, in seconds."""

ROOT = Path(__file__).parents[1]
ANSWER_TIMEOUT_S = 120.0
CLOSE_TIMEOUT_S = 20.0


class Closing(Protocol):
    """What a child holds."""

    def close(self) -> None:
        """Gives everything back."""


class Child:
    """A process that holds one object; its methods are called by (dotted) name, over a pipe.

    Used as a context: it ends with it.
    """

    def __init__(self, make: Callable[..., Closing], *args: object, python: Path = Path(sys.executable)) -> None:
        """Starts a process of the interpreter `python` for what `make` returns, which it calls with `args`."""
        self._pipe, pipe = Pipe()
        command = [str(python), "-m", "benchmarks.child", str(pipe.fileno())]
        # Its stdout is our stderr: libraries print there, and our stdout is for the report.
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[pipe.fileno()], stdout=2)
        pipe.close()
        self._pipe.send_bytes(pickle.dumps((make, args)))

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def begin(self, method: str, *args: object) -> None:
        """Calls a method; `end` waits for it. Raises RuntimeError if the process died."""
        try:
            self._pipe.send((method, args))
        except ConnectionError:
            raise RuntimeError(f"process {self.pid} died") from None

    def end(self, within_s: float = ANSWER_TIMEOUT_S) -> Any:
        """What the method returned. Raises RuntimeError with the child's traceback, or if it died or is silent."""
        if not self._pipe.poll(within_s):
            raise RuntimeError(f"process {self.pid} did not answer within {within_s:g} s")
        try:
            ok, result = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise RuntimeError(f"process {self.pid} died") from None
        if not ok:
            raise RuntimeError(result)
        return result

    def ended(self) -> bool:
        """Whether `end` would not have to wait."""
        return self._pipe.poll(0)

    def call(self, method: str, *args: object) -> Any:
        """`begin` and `end`."""
        self.begin(method, *args)
        return self.end()

    def pause(self) -> None:
        """Stops all threads of the process, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets them go on."""
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        """The object is closed and its process ended, by force if need be."""
        self.resume()
        self._pipe.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def together(children: Iterable[Child], method: str, *args: object) -> list[Any]:
    """Calls a method in all of them at the same time; what each returned."""
    called = list(children)
    for child in called:
        child.begin(method, *args)
    return [child.end() for child in called]


@dataclass(frozen=True, slots=True)
class Service:
    """A running kvservice."""

    target: str
    """HOST:PORT."""
    pid: int


@contextmanager
def kvservice() -> Iterator[Service]:
    """The service in a process of its own, on a free port of loopback. Raises RuntimeError if it does not start."""
    command = [sys.executable, "-m", "kvservice", "--port", "0", "--log-level", "warning"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "listening on" not in line:
            raise RuntimeError(f"kvservice ended with {process.wait()}: {line}")
        yield Service(line.split()[-1], process.pid)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def stay_on_loopback() -> None:
    """Children's NIXL agents listen on loopback alone, unless UCX_NET_DEVICES says otherwise."""
    os.environ.setdefault("UCX_NET_DEVICES", "lo")
