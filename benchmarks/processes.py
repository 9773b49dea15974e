"""Processes of a benchmark: the real kvservice, and children that are driven call by call."""

import multiprocessing
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

_SPAWN = multiprocessing.get_context("spawn")  # gRPC does not survive a fork

ANSWER_TIMEOUT_S = 60.0


class Closing(Protocol):
    """What a child holds."""

    def close(self) -> None:
        """Gives everything back."""


class Child:
    """A process that holds one object; its methods are called by (dotted) name, over a pipe."""

    def __init__(self, make: Callable[..., Closing], *args: object) -> None:
        self._pipe, pipe = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(pipe, make, args), daemon=True)
        self._process.start()
        pipe.close()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None  # it was started
        return self._process.pid

    def begin(self, method: str, *args: object) -> None:
        """Calls a method; `end` waits for it."""
        self._pipe.send((method, args))

    def end(self) -> Any:
        """What the method returned. Raises RuntimeError with the child's traceback, or if it died or is silent."""
        if not self._pipe.poll(ANSWER_TIMEOUT_S):
            raise RuntimeError(f"process {self._process.pid} did not answer within {ANSWER_TIMEOUT_S:g} s")
        try:
            ok, result = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"process {self._process.pid} died") from None
        if not ok:
            raise RuntimeError(result)
        return result

    def call(self, method: str, *args: object) -> Any:
        """`begin` and `end`."""
        self.begin(method, *args)
        return self.end()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        """The object is closed and its process ended, by force if need be."""
        self._pipe.close()
        self._process.join(20)
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, make: Callable[..., Closing], args: tuple[object, ...]) -> None:
    held: Closing | None = None
    try:
        while True:
            method, arguments = pipe.recv()
            try:
                held = held or make(*args)
                pipe.send((True, attrgetter(method)(held)(*arguments)))
            except Exception:  # noqa: BLE001  raised again in the parent
                pipe.send((False, traceback.format_exc()))
    except (EOFError, ConnectionResetError, KeyboardInterrupt):  # the parent closed the pipe, or both were interrupted
        if held is not None:
            held.close()


def together(children: Iterable[Child], method: str) -> list[Any]:
    """Calls a method without arguments in all of them at the same time; what each returned."""
    called = list(children)
    for child in called:
        child.begin(method)
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
    command = [str(Path(sys.executable).with_name("kvservice")), "--port", "0", "--log-level", "warning"]
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
