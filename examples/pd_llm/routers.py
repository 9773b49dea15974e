"""The two routers that a stack may have: both speak the same HTTP and take the same flags."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROUTERS = ("python", "go")

_ROOT = Path(__file__).parents[2]
_BINARY = _ROOT / ".cache" / "go" / "bin" / "go-router"


class NoRouter(Exception):
    """A router that cannot be had here."""


def command(router: str) -> list[str]:
    """What starts a router, less its flags; builds the one in Go first.

    Raises:
        NoRouter: There is no Go toolchain, or the build failed.
    """
    if router == "python":
        return [sys.executable, "-m", "examples.pd_llm.router"]
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise NoRouter("--router go needs a Go toolchain: no `go` on PATH")
    build = [go, "build", "-o", str(_BINARY), "."]
    built = subprocess.run(
        build,
        cwd=_ROOT / "examples" / "go-router",
        env=os.environ | {"CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise NoRouter(f"--router go: {' '.join(build)} failed:\n{built.stderr}")
    return [str(_BINARY)]
