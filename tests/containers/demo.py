"""The demo in containers, handled as a user does: by `docker compose`, and by what the README says to ask it."""

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.containers.engine import Engine
from tests.containers.needs import cannot
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "compose.yaml", ROOT / "tests/containers/compose.override.yaml")
GO_TOOLS = ROOT / ".cache/go/bin"
UP_S = 900
ANSWER = "\nthat has been passed down to me by my great-grandmother. "
"""To the README's request, by SmolLM2 in one process."""


def readme_command(start: str) -> str:
    """The command of the README that starts so."""
    found = re.search(rf"^{re.escape(start)}(?:.*\\\n)*.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert found, f"the README has no command {start!r}"
    return found[0]


def run_readme_command(start: str) -> Any:
    """Run it in a shell; gives the JSON that it prints."""
    command = readme_command(start)
    path = f"{GO_TOOLS}:{os.environ['PATH']}"
    if not shutil.which(command.split()[0], path=path):
        cannot(f"there is no {command.split()[0]}")
    ran = subprocess.run(
        ["bash", "-c", command], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, f"{command}: {ran.stderr}"
    return json.loads(ran.stdout)


def ask(new_tokens: int = 16, timeout_s: float = 120) -> tuple[int, dict[str, Any]]:
    """The README's request, of an answer of this many tokens: HTTP status and body."""
    body = {"text": "Let me tell you a lonnng story ", "sampling_params": {"max_new_tokens": new_tokens}}
    request = urllib.request.Request(
        "http://127.0.0.1:8000/generate", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


class Demo:
    """One profile of compose.yaml, as far as the tests' machine goes."""

    def __init__(self, engine: Engine, profile: str) -> None:
        self._engine, self._profile = engine, profile

    def compose(self, *arguments: str, timeout_s: float = 120) -> str:
        """What `docker compose <arguments>` prints."""
        files = [argument for file in FILES for argument in ("--file", str(file))]
        options = ["--ansi", "never", *files, "--profile", self._profile]
        return self._engine.docker("compose", *options, *arguments, timeout_s=timeout_s)

    def up(self) -> None:
        """Build what is not built, and start everything until it is healthy."""
        try:
            self.compose("up", "--detach", "--wait", timeout_s=UP_S)
        except AssertionError as failed:
            failed.add_note(self.compose("logs"))
            raise

    def down(self) -> None:
        self.compose("down", "--volumes")

    def logs(self, service: str) -> str:
        return self.compose("logs", "--no-log-prefix", service)

    def inspect(self, service: str, field: str) -> str:
        """A field of the service's container, by a Go template such as `.State.Pid`."""
        container = self.compose("ps", "--all", "--quiet", service).strip()
        return self._engine.docker("inspect", "--format", f"{{{{{field}}}}}", container).strip()

    def wait_until_healthy(self, service: str, timeout_s: float = 120) -> None:
        try:
            wait_for(lambda: self.inspect(service, ".State.Health.Status"), "healthy".__eq__, timeout_s, every=0.5)
        except AssertionError as failed:
            failed.add_note(self.logs(service))
            raise
