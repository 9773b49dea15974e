"""The shell that a reader of a page types into, with the real grpcurl."""

import os
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".cache" / "go" / "bin"
LIMIT = 20.0
"""Seconds that a block of commands may take."""


def need_grpcurl() -> None:
    """Skips only where there is no Go to build it with."""
    if (TOOLS / "grpcurl").exists():
        return
    if shutil.which("go") is None and not Path("/usr/local/go/bin/go").exists():
        pytest.skip("there is no grpcurl, and no Go toolchain to build it with")
    pytest.fail("there is no grpcurl: run `make grpcurl`")


def typed(commands: str) -> str:
    """What commands print, errors included."""
    done = subprocess.run(
        ["bash", "-c", commands],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.stdout


class SecondTerminal:
    """A command that goes on until the `with` block is left."""

    def __init__(self, commands: str) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {commands}"],
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="second terminal")
        self._reader.start()

    def printed(self, lines: int) -> str:
        """The next lines. Fewer if no more come in time, or if it ends."""
        give_up = time.monotonic() + LIMIT
        found = ""
        for _ in range(lines):
            try:
                line = self._lines.get(timeout=max(give_up - time.monotonic(), 0))
            except queue.Empty:
                break
            if line is None:
                break
            found += line
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
