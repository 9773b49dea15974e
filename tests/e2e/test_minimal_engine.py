"""The README's minimal engine: kvservice, prefill and decode, each in its own process as a reader would start them."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"UCX_NET_DEVICES": "lo", "PYTHONUNBUFFERED": "1"}

KEEPING_MEMORY = """
import sys
import numpy as np
from examples.minimal import {side} as engine

engine.TOKENS = {tokens}
for array, first in ((engine.kv, 1e6), (engine.first_token, 2e6)):  # never what a prefill engine writes
    array[...] = np.arange(first, first + array.size).reshape(array.shape)
code = engine.serve(sys.argv[1], int(sys.argv[2]))
np.savez(sys.argv[3], kv=engine.kv, first_token=engine.first_token)
sys.exit(code)
"""
"""Runs one side with a canary all over its memory, and keeps the memory as it was at the end."""


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Killed if it is still there at the end."""
    started = subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@contextmanager
def kvservice(*arguments: str) -> Iterator[str]:
    """Its address."""
    with process(str(Path(sys.executable).with_name("kvservice")), "--port", "0", *arguments) as service:
        assert service.stdout is not None
        yield service.stdout.readline().split()[-1]


def ended(side: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and output; both streams of a process that failed."""
    output, errors = side.communicate(timeout=60)
    print(errors)  # shown by pytest where a test fails
    return side.returncode, output


def sides(service: str, room: int, folder: Path, tokens: Sequence[int]) -> Iterator[list[str]]:
    for side, count in zip(("prefill", "decode"), tokens, strict=True):
        program = KEEPING_MEMORY.format(side=side, tokens=count)
        yield [sys.executable, "-c", program, service, str(room), str(folder / f"{side}.npz")]


def canary(array: np.ndarray, first: float) -> np.ndarray:
    return np.arange(first, first + array.size, dtype=array.dtype).reshape(array.shape)


def test_the_pages_and_the_slot_arrive_and_nothing_else_is_touched(tmp_path: Path) -> None:
    with kvservice() as service:
        prefill_command, decode_command = sides(service, 4711, tmp_path, (100, 100))
        with process(*prefill_command) as prefill, process(*decode_command) as decode:
            assert ended(decode) == (0, "room 4711: first token 711\nroom 4711: SUCCESS 22 pages free\n")
            assert ended(prefill) == (0, "room 4711: SUCCESS 32 pages free\n")

    sent, got = np.load(tmp_path / "prefill.npz"), np.load(tmp_path / "decode.npz")
    sources, targets = [31, 30, 29, 28, 27, 26, 25], [63, 60, 57, 54, 51, 48, 45]
    np.testing.assert_array_equal(got["kv"][:, targets], sent["kv"][:, sources])
    assert sent["kv"][:, sources].max() < 1, "the sender's pages were written"
    others = [page for page in range(64) if page not in targets]
    np.testing.assert_array_equal(got["kv"][:, others], canary(got["kv"], 1e6)[:, others])

    rows = canary(got["first_token"], 2e6)
    rows[2] = 711
    np.testing.assert_array_equal(got["first_token"], rows)


def test_the_readers_commands(tmp_path: Path) -> None:
    with kvservice() as service:
        prefill, decode = ([sys.executable, "-m", f"examples.minimal.{side}"] for side in ("prefill", "decode"))
        with process(*prefill, service, "7") as sender, process(*decode, service, "7") as receiver:
            assert ended(receiver)[0] == 0
            assert ended(sender)[0] == 0


def test_sides_that_disagree_about_the_tokens_both_fail_and_say_why(tmp_path: Path) -> None:
    with kvservice() as service:
        prefill_command, decode_command = sides(service, 8, tmp_path, (84, 100))
        with process(*prefill_command) as prefill, process(*decode_command) as decode:
            for code, output in (ended(decode), ended(prefill)):
                assert code == 1
                assert "room 8: FAILED" in output
                assert "COMPLETION_MISMATCH" in output
                assert "100 tokens" in output
                assert "84" in output
    kv = np.load(tmp_path / "decode.npz")["kv"]
    np.testing.assert_array_equal(kv, canary(kv, 1e6))


def test_a_room_that_no_decode_engine_joins_fails_by_its_deadline() -> None:
    with (
        kvservice("--bootstrapping-timeout", "0.5") as service,
        process(sys.executable, "-m", "examples.minimal.prefill", service, "9") as prefill,
    ):
        code, output = ended(prefill)
        assert code == 1
        assert "HANDSHAKE_TIMEOUT" in output
