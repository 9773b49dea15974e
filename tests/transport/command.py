"""The command `kvservice` in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

TIMEOUT = 30
KVSERVICE = Path(sys.executable).parent / "kvservice"


def run(*flags: str, command: Path = KVSERVICE, **environment: str) -> "subprocess.CompletedProcess[str]":
    """To its end."""
    return subprocess.run(
        [command, *flags], env=_environment(environment), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )


class Command:
    """Serves inside the `with` block."""

    def __init__(self, *flags: str, command: Path = KVSERVICE, **environment: str) -> None:
        self._process = subprocess.Popen(
            [command, *flags],
            env=_environment(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.line = self._process.stdout.readline()
        found = re.fullmatch(r"kvservice listening on (.+:\d+)\n", self.line)
        if found is None:
            raise AssertionError(f"it said {self.line!r} and {self._process.communicate(timeout=TIMEOUT)}")
        self.target = found.group(1)
        return self

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit status and what it logged."""
        self.send_signal(number)
        _, logged = self._process.communicate(timeout=TIMEOUT)
        return self._process.returncode, logged

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def _environment(said: dict[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KVSERVICE_")}
    return inherited | said
