"""What can be said of the files without an engine."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.demo import FILES, ROOT
from tests.containers.tools import Tools


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    ran = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
@pytest.mark.parametrize("files", [FILES[:1], FILES], ids=["compose.yaml", "overridden"])
def test_compose_takes_each_profile(docker_tools: Tools, files: tuple[Path, ...], profile: str) -> None:
    chosen = [str(argument) for file in files for argument in ("--file", file)]
    ran = subprocess.run(
        ["docker", "compose", *chosen, "--profile", profile, "config", "--quiet"],
        env=docker_tools.environment, capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("lock", ["server", "demo"])
def test_images_have_the_versions_that_are_tested(lock: str) -> None:
    tested = _pins(ROOT / "requirements/dev.lock")
    assert _pins(ROOT / f"requirements/{lock}.lock") <= tested


def _pins(lock: Path) -> set[str]:
    return {line.split()[0] for line in lock.read_text().splitlines() if "==" in line}
