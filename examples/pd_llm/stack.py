"""The processes of a running stack: kvservice, the ranks of a prefill and a decode engine, the router."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from . import routers
from .children import Children
from .config import MODELS, SMOLLM2
from .damage import Damage

ROLES = ("prefill", "decode")

START_S = 120
"""Most time for any part of a stack to serve. A free machine of 2 cores needs 10 s at TP 1 and 25 s at TP 3."""

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # more threads, other bits
    "PYTHONUNBUFFERED": "1",  # so that a log has all that its process said before it died
}


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the stack listens on 127.0.0.1; 0: any free port."""

    service: int = 0
    prefill: int = 0
    decode: int = 0
    router: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """What kind of stack."""

    model: str = "smollm2"
    """One of `config.MODELS`."""
    tp: int = 1
    device: str = "cpu"
    """`cpu` or `cuda`."""
    ports: Ports = Ports()
    timeout_s: float = 120
    """Of each generation."""
    evidence: Path | None = None
    """Folder into which the engines write what happens."""
    damage: Damage | None = None
    router: str = "python"
    """One of `routers.ROUTERS`."""
    interface: str = "lo"
    """Where NIXL listens, unless UCX_NET_DEVICES says otherwise."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Addresses and pids of what runs."""

    service: str
    """HOST:PORT."""
    urls: dict[str, str]
    """Of `prefill`, `decode` (rank 0 of each) and `router`."""
    pids: dict[str, int]
    """By name: `kvservice`, `prefill-tp0`, ..., `router`."""


class NoDevice(Exception):
    """A device that cannot be had here."""


def placement(device: str) -> dict[str, str]:
    """The torch device of each engine: with `cuda`, prefill has GPU 0 and decode GPU 1, or 0 if there is no other.

    Raises:
        NoDevice: There is no GPU.
    """
    if device != "cuda":
        return dict.fromkeys(ROLES, device)
    import torch  # only here: it takes seconds

    last = torch.cuda.device_count() - 1
    if last < 0:
        raise NoDevice("--device cuda: torch sees no GPU")
    return {role: f"cuda:{min(gpu, last)}" for gpu, role in enumerate(ROLES)}


def set_up(model: str, say: Callable[[str], None]) -> None:
    """Make what all processes map or read, unless it is there."""
    if MODELS[model] is SMOLLM2:
        from . import tokenizer, weights_file  # only here: a random model does without their packages

        weights_file.prepare(say=say)
        tokenizer.load()


async def start(children: Children, folder: Path, options: Options) -> Stack:
    """Start everything and wait until it serves. `folder`: an empty one, where the ranks of an engine meet.

    Raises:
        TimeoutError: Something does not serve within START_S.
        NoRouter: The router cannot be had here.
        NoDevice: The device cannot be.
    """
    pids, urls = {}, {}
    python = sys.executable
    command = [python, "-m", "kvservice", "--port", str(options.ports.service)]
    command += ["--drain-grace", "1"]  # the engines have ended by then
    pids["kvservice"] = await children.start("kvservice", command, ENVIRONMENT)
    service = (await children.line("kvservice", r"listening on (\S+)", START_S))[1]

    devices = placement(options.device)
    for role in ROLES:
        for rank in range(options.tp):
            name = f"{role}-tp{rank}"
            command = [python, "-m", "examples.pd_llm.engine", "--role", role, "--service", service]
            command += [
                "--model",
                options.model,
                "--tp",
                str(options.tp),
                "--rank",
                str(rank),
                "--device",
                devices[role],
            ]
            command += ["--rendezvous", str(folder / role), "--port", str(getattr(options.ports, role))]
            command += ["--evidence", str(options.evidence)] if options.evidence else []
            command += ["--break", options.damage] if options.damage else []
            environment = ENVIRONMENT | {"UCX_NET_DEVICES": options.interface}
            pids[name] = await children.start(name, command, environment)
    for role in ROLES:
        urls[role] = (await children.line(f"{role}-tp0", r"listening on (\S+)", START_S))[1]

    command = [*await asyncio.to_thread(routers.command, options.router), "--service", service]
    command += ["--port", str(options.ports.router)]
    command += ["--prefill", urls["prefill"], "--decode", urls["decode"], "--timeout", f"{options.timeout_s:g}"]
    pids["router"] = await children.start("router", command, ENVIRONMENT)
    urls["router"] = (await children.line("router", r"listening on (\S+)", START_S))[1]
    async with asyncio.timeout(START_S), aiohttp.ClientSession() as http:
        for role in ROLES:
            await until(http, urls[role], lambda health: health["ready"])
    return Stack(service, urls, pids)


async def until(http: aiohttp.ClientSession, url: str, condition: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until an engine's health is so: whether it is `ready` and how many `rooms` it holds."""
    while True:
        async with http.get(f"{url}/health") as response:
            if condition(await response.json()):
                return
        await asyncio.sleep(0.05)
