"""scripts/gpu_check.sh without a GPU: everything but the GPU."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.gpu_check.steps import ROOT, Check, Failed, Row
from scripts.gpu_check.wheels import WrongWheels, unpack


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [ROOT / "scripts" / "gpu_check.sh", *arguments],
        env=os.environ | {"PYTHON": sys.executable}, capture_output=True, text=True, timeout=480, check=False,
    )  # fmt: skip


def test_a_dry_run_does_every_step_and_prints_one_table() -> None:
    ended = run("--dry-run")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    head, *rows, last = ended.stdout.splitlines()
    assert head.split() == ["step", "s", "seen"]
    assert [row.split("  ")[0] for row in rows] == [
        "machine", "refuses tcp for GPU memory", "transfer, host memory", "transport", "demo, cpu",
    ]  # fmt: skip
    assert all("  right  " in row for row in rows)
    assert "cma" in rows[3]
    assert "13 checks right" in rows[4]
    assert last == "All is well."


def test_without_a_gpu_it_says_so_and_does_no_more() -> None:
    ended = run()
    assert ended.returncode == 1
    assert "sees no GPU; --dry-run does without" in ended.stdout
    assert ended.stdout.endswith("Something is WRONG.\n")
    assert "transfer" not in ended.stdout


def test_a_transport_that_will_not_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real transfers, over tcp alone."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    check = Check("cpu", None, tmp_path)
    check.transfer("cpu")
    with pytest.raises(Failed, match=r"REFUSED: tcp/lo \(zero-copy\) moves host memory by way of"):
        check.transport()


def test_a_process_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UCX_TLS", "nothing")
    with pytest.raises(Failed, match="status 1: "):
        Check("cpu", None, tmp_path).transfer("cpu")
    assert "Traceback" in (tmp_path / "failed.log").read_text()


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    check = Check("cpu", None, tmp_path, until=0)
    with pytest.raises(Failed, match="the 460 s of the whole check are over"):
        check.demo()


def wheel(folder: Path, name: str) -> None:
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("carried/__init__.py", "")


def test_wheels_for_this_python_are_unpacked(tmp_path: Path) -> None:
    ours = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for name in ("a-1-py3-none-any.whl", f"b-1-{ours}-{ours}-manylinux_2_28_x86_64.whl", "c-1-cp39-abi3-linux.whl"):
        wheel(tmp_path, name)
    unpack(tmp_path, tmp_path / "packages")
    assert (tmp_path / "packages" / "carried" / "__init__.py").exists()


def test_wheels_for_another_python_are_refused(tmp_path: Path) -> None:
    wheel(tmp_path, "a-1-cp39-cp39-manylinux_2_28_x86_64.whl")
    with pytest.raises(WrongWheels, match=r"a-1-cp39-.*\.whl is not for this Python, cp3"):
        unpack(tmp_path, tmp_path / "packages")


def test_a_folder_without_wheels_is_told(tmp_path: Path) -> None:
    ended = run(str(tmp_path), "--dry-run")
    assert ended.returncode == 1
    assert ended.stderr == f"gpu_check: {tmp_path}: there are no wheels; `make gpu-wheels` makes such a folder\n"


def test_one_step_that_is_wrong_makes_the_whole_so() -> None:
    from scripts.gpu_check.__main__ import table

    text = table([Row("machine", True, 1, "a"), Row("demo", False, 2, "room 7: other bits")])
    assert text.splitlines()[-2:] == ["demo     WRONG    2.0  room 7: other bits", "Something is WRONG."]
