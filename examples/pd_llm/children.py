"""Child processes that end together: with their parent, however it ends, and when one of them dies."""

import asyncio
import ctypes
import os
import re
import signal
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_LOOK_S = 0.02  # between two looks at a log or an exit status


class ChildDied(Exception):
    """A child ended by itself. The message has its name, its status and the tail of its log."""

    def __init__(self, name: str, status: int, log: Path) -> None:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        tail = "\n".join(f"  | {line}" for line in log.read_text(errors="replace").splitlines()[-20:])
        super().__init__(f"{name} {how}. The end of its log:\n{tail}")
        self.name = name


class Children:
    """Processes, each with its log. An asynchronous context: all have ended when it is left."""

    def __init__(self, logs: Path) -> None:
        """`logs`: an existing folder for `<name>.log`."""
        self._logs = logs
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> "Children":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, name: str, command: Sequence[str], env: dict[str, str]) -> int:
        """Start a child, with `env` over this process's environment; gives its pid."""
        with open(self._logs / f"{name}.log", "wb") as log:  # noqa: ASYNC230 - a local file, made at once
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | env,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which ends the children in order
                preexec_fn=_die_with(os.getpid()),
            )  # fmt: skip
        self._running[name] = process
        return process.pid

    async def line(self, name: str, pattern: str, timeout_s: float) -> re.Match[str]:
        """Wait until a line of a child's log matches.

        Raises:
            TimeoutError: None did in time.
        """
        log = self._logs / f"{name}.log"
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not (found := re.search(pattern, log.read_text(errors="replace"), re.MULTILINE)):
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{name} did not say {pattern!r} within {timeout_s:g} s, see {log}")
            await asyncio.sleep(_LOOK_S)
        return found

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work`, which needs all children.

        Raises:
            ChildDied: One ended first; `work` is cancelled.
        """
        task, death = asyncio.ensure_future(work), asyncio.ensure_future(self._first_death())
        try:
            await asyncio.wait((task, death), return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                raise death.result()
            return task.result()
        finally:
            task.cancel()
            death.cancel()
            await asyncio.gather(task, death, return_exceptions=True)

    async def finish(self, name: str) -> None:
        """Wait for a child that ends by itself.

        Raises:
            ChildDied: Not with status 0.
        """
        status = await self._running[name].wait()
        del self._running[name]
        if status != 0:
            raise ChildDied(name, status, self._logs / f"{name}.log")

    async def stop(self, timeout_s: float = 10) -> None:
        """End all children: the first one started, which serves the others, when the others have ended."""
        running = list(self._running.values())
        await asyncio.gather(*(_end(process, timeout_s) for process in running[1:]))
        await asyncio.gather(*(_end(process, timeout_s) for process in running[:1]))
        self._running.clear()

    async def _first_death(self) -> ChildDied:
        while True:
            dead = [(p.returncode, name) for name, p in self._running.items() if p.returncode is not None]
            if dead:
                status, name = min(dead)  # one killed from outside (below 0) comes before those that missed it
                return ChildDied(name, status, self._logs / f"{name}.log")
            await asyncio.sleep(_LOOK_S)


async def _end(process: asyncio.subprocess.Process, timeout_s: float) -> None:
    """SIGTERM, and SIGKILL to its whole session if that is not enough."""
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _die_with(parent: int) -> Callable[[], None]:
    """What a child does before it becomes its program: ask to be killed when its parent is gone."""

    def ask() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # gone before we asked
            os._exit(1)

    return ask
