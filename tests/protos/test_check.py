"""`make proto-check`, in a copy of the tree in which somebody changes the API."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / ".cache" / "gen-venv" / "bin"

pytestmark = pytest.mark.skipif(not GENERATOR.exists(), reason="`make proto-check` has not made the generator yet")


class Copy:
    """What the check looks at."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for part in ("protos", "tools", "clients/python/kvtransfer/v1"):
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "buf.yaml", root)

    def change(self, proto: str, old: str, new: str) -> None:
        """As a developer does: the proto, and the generated code by it."""
        path = self.root / "protos" / "kvtransfer" / "v1" / proto
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        assert self.run("generate").returncode == 0

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """With the generator and buf, and without Go."""
        environment = os.environ | {"PATH": os.pathsep.join([str(GENERATOR), str(Path(sys.executable).parent)])}
        return subprocess.run(
            [GENERATOR / "python", "tools/protos.py", *command],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("int64 epoch = 2;", "int64 term = 2;", 'changed name from "epoch" to "term"'),
        ("int64 epoch = 2;", "int32 epoch = 2;", 'changed type from "int64" to "int32"'),
        ("int64 epoch = 2;", "int64 epoch = 3;", 'Previously present field "2" with name "epoch"'),
        ("ROLE_DECODE = 2;", "ROLE_DECODER = 2;", 'changed name from "ROLE_DECODE" to "ROLE_DECODER"'),
    ],
)
def test_what_would_break_a_client_of_a_release_fails_the_check(copy: Copy, old: str, new: str, said: str) -> None:
    copy.change("engine.proto", old, new)
    checked = copy.run("check")
    assert checked.returncode == 1
    assert said in checked.stdout
    assert "clients of 0.1.0 would break" in checked.stderr


def test_an_added_field_and_an_added_call_pass(copy: Copy) -> None:
    copy.change("engine.proto", "int64 epoch = 2;", "int64 epoch = 2;\n  // Counted from 0.\n  int64 term = 3;")
    messages = "// Request of Leap.\nmessage LeapRequest {}\n\n// Response of Leap.\nmessage LeapResponse {}\n\n"
    copy.change("service.proto", "// Request of GetServerInfo.", messages + "// Request of GetServerInfo.")
    call = "// Is new.\n  rpc Leap(LeapRequest) returns (LeapResponse);\n  "
    copy.change("service.proto", "// Lists transfers, newest first.", call + "// Lists transfers, newest first.")
    checked = copy.run("check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "nothing breaks" in checked.stdout


def test_the_image_of_a_release_is_made_once_and_never_again(copy: Copy) -> None:
    assert copy.run("release", "9.9.9").returncode == 0
    copy.change("engine.proto", "int64 epoch = 2;", "int64 term = 2;")
    (copy.root / "protos" / "released" / "0.1.0.binpb").unlink()
    assert "clients of 9.9.9 would break" in copy.run("check").stderr
    again = copy.run("release", "9.9.9")
    assert again.returncode == 1
    assert "protos/released/9.9.9.binpb is there already" in again.stderr
