"""Processes that end together."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples.pd_llm.children import ChildDied, Children
from tests.demo.programs import alive, wait_until_ended
from tests.waiting import wait_for

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
]


def wait_until_reaped(pids: list[int]) -> None:
    wait_for(lambda: [pid for pid in pids if Path(f"/proc/{pid}").exists()], lambda left: not left)


def test_all_end_when_one_dies_and_it_is_named_with_its_log(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with Children(tmp_path) as children:
            pids = [await children.start("first", SLEEPER, {})]
            dying = [sys.executable, "-c", "raise SystemExit('no such model')"]
            pids.append(await children.start("engine", dying, {}))
            with pytest.raises(ChildDied, match=r"(?s)engine ended with status 1\..*no such model"):
                await children.guard(asyncio.Event().wait())
        return pids

    wait_until_ended(asyncio.run(run()))


def test_the_one_killed_is_named_rather_than_those_that_missed_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with Children(tmp_path) as children:
            victim = await children.start("victim", SLEEPER, {})
            mourner = await children.start("mourner", [sys.executable, "-c", "raise SystemExit(1)"], {})
            os.kill(victim, signal.SIGKILL)
            await asyncio.to_thread(wait_until_reaped, [victim, mourner])
            with pytest.raises(ChildDied, match="victim was killed by SIGKILL"):
                await children.guard(asyncio.Event().wait())

    asyncio.run(run())


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async def run() -> int:
        async with Children(tmp_path) as children:
            pid = await children.start("stubborn", STUBBORN, {})
            await children.line("stubborn", "up", 10)
            await children.stop(timeout_s=0.2)
        return pid

    wait_until_ended([asyncio.run(run())])


def test_work_goes_on_while_all_live(tmp_path: Path) -> None:
    async def run() -> str:
        async with Children(tmp_path) as children:
            await children.start("first", SLEEPER, {"GREETING": "up"})
            return (await children.guard(children.line("first", "^up$", 10)))[0]

    assert asyncio.run(run()) == "up"


def test_a_line_that_never_comes_is_a_timeout_that_names_the_child(tmp_path: Path) -> None:
    async def run() -> None:
        async with Children(tmp_path) as children:
            await children.start("mute", SLEEPER, {})
            with pytest.raises(TimeoutError, match=r"mute did not say 'listening' within 0\.1 s"):
                await children.line("mute", "listening", 0.1)

    asyncio.run(run())


def test_nothing_is_orphaned_when_the_parent_is_killed(tmp_path: Path) -> None:
    program = f"""
import asyncio, pathlib
from examples.pd_llm.children import Children

async def run():
    async with Children(pathlib.Path({str(tmp_path)!r})) as children:
        print(await children.start("child", {SLEEPER!r}, {{}}), flush=True)
        await asyncio.Event().wait()

asyncio.run(run())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
    wait_until_ended([child])
