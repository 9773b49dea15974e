"""The client's tests once more, with the oldest dependencies allowed: those of an engine with pins of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "oldest.lock"
TESTS = [f"tests/transport/test_{name}.py" for name in ("client", "calls", "watch", "aio", "features")] + [
    "tests/vectors"
]
OUT_OF_REACH = ("Failed to fetch", "the network was disabled")
"""What uv says where it is the network that fails it, and neither versions nor hashes."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment made by the lock; needs the network, or uv's cache."""
    environment = tmp_path_factory.mktemp("oldest") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
    interpreter = environment / "bin" / "python"
    install = [Path(sys.executable).parent / "uv", "pip", "install", "--quiet", "--python", interpreter]
    made = subprocess.run(
        [*install, "--require-hashes", "-r", LOCK], capture_output=True, text=True, timeout=300, check=False
    )
    if any(said in made.stderr for said in OUT_OF_REACH):
        pytest.skip(f"the packages cannot be had: {made.stderr.strip().splitlines()[-1]}")
    assert made.returncode == 0, made.stderr
    return interpreter


def _run(python: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients" / "python")])}
    done = subprocess.run(
        [python, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return done.stdout


def test_the_clients_tests_pass_with_the_oldest_dependencies(python: Path) -> None:
    assert " grpcio/1.76.0 protobuf/6.33." in _run(python, "-m", "kvtransfer", "--version")
    said = _run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)
    assert " passed" in said
    assert "skipped" not in said
