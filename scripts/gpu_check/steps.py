"""The steps of a check, each in processes of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.gpu_check import transports

ROOT = Path(__file__).parents[2]
BUDGET_S = 460
"""For all steps together: under 8 minutes."""

_MACHINE = """
import json, sys
import torch
import grpc, google.protobuf, nixl._api
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps({"python": sys.version.split()[0], "torch": torch.__version__, "gpus": gpus,
    "grpcio": grpc.__version__, "protobuf": google.protobuf.__version__, "nixl": nixl._pkg.__name__}))
"""


class Failed(Exception):
    """A step found something wrong; the message says what."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    step: str
    ok: bool
    seconds: float
    seen: str


@dataclass(slots=True)
class Check:
    """A run of all steps."""

    device: str
    """`cuda`, or `cpu`: then there is nothing on a GPU, and less of everything."""
    packages: Path | None
    """Where wheels were unpacked."""
    logs: Path
    """An empty folder."""
    rows: list[Row] = field(default_factory=list)
    until: float = field(default_factory=lambda: time.monotonic() + BUDGET_S)
    """On CLOCK_MONOTONIC; what runs then is ended."""

    def run(self) -> bool:
        """Every step, unless the machine will not do; whether all is well."""
        self._step("machine", self.machine)
        if not self.rows[0].ok:
            return False
        self._step("refuses tcp for GPU memory", refuses_what_it_must)
        self._step("transfer, host memory", lambda: self.transfer("cpu"))
        if self.device == "cuda":
            self._step("transfer, GPU memory", lambda: self.transfer("cuda"))
        self._step("transport", self.transport)
        self._step(f"demo, {self.device}", self.demo)
        return all(row.ok for row in self.rows)

    def _step(self, name: str, work: Callable[[], str]) -> None:
        print(f"{name} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            seen, ok = work(), True
        except Failed as failed:
            seen, ok = str(failed), False
        self.rows.append(Row(name, ok, time.monotonic() - began, seen))

    def machine(self) -> str:
        """Versions, and GPUs. Raises Failed."""
        found = json.loads(self._python("-c", _MACHINE))
        if self.device == "cuda" and not found["gpus"]:
            raise Failed(f"torch {found['torch']} sees no GPU; --dry-run does without")
        gpus = ", ".join(found.pop("gpus")) or "no GPU"
        return f"{gpus}; " + ", ".join(f"{name} {version}" for name, version in found.items())

    def transfer(self, device: str) -> str:
        """The benchmark, with pools on a torch device. Raises Failed."""
        command = ["-m", "benchmarks", "transfer", "--json", "--rounds", "7", "--device", device]
        if self.device == "cpu":
            command += ["--cases", "1"]
        environment = {"UCX_PROTO_INFO": "y", "UCX_LOG_FILE": f"{self.logs}/ucx-{device}-%p.log"}
        rows = json.loads(self._python(*command, environment=environment))["rows"]
        speeds = [f"{row['shape'].split(',')[0]} {row['pool'].split(',')[0]}" for row in rows]
        return "; ".join(
            f"{name} room {row['room_gb_s']['median']:.1f} raw {row['raw_gb_s']['median']:.1f} GB/s"
            for name, row in zip(speeds, rows, strict=True)
        )

    def transport(self) -> str:
        """What carried the transfers on the device, as UCX said. Raises Failed."""
        log = "\n".join(path.read_text() for path in self.logs.glob(f"ucx-{self.device}-*.log"))
        memory: transports.MemoryType = "cuda" if self.device == "cuda" else "host"
        if refused := transports.refusal(log, memory):
            raise Failed(f"REFUSED: {refused}")
        return ", ".join(dict.fromkeys(choice.config for choice in transports.choose(log, memory)))

    def demo(self) -> str:
        """The demo, with its own checks. Raises Failed."""
        command = ["-m", "examples.pd_llm.demo", "--model", "random", "--device", self.device, "--json"]
        if self.device == "cpu":
            command += ["--prompts", "2", "--new-tokens", "3"]
        found = json.loads(self._python(*command, statuses=(0, 1)))
        wrong = [name for name, check in found["checks"].items() if not check["ok"]]
        if wrong:
            raise Failed("; ".join(f"{name}: {found['checks'][name]['faults'][0]}" for name in wrong))
        pair = found["pairs"][0]
        link = f"{pair['transport']} {pair['bandwidth_bytes_s'] / 1e9:.1f} GB/s at warm-up"
        return f"{len(found['requests'])} answers, {len(found['checks'])} checks right; {link}"

    def _python(
        self, *arguments: str, statuses: Sequence[int] = (0,), environment: dict[str, str] | None = None
    ) -> str:
        """Run the interpreter over the tree and the wheels; gives what it printed."""
        folders = [ROOT / "clients" / "python", ROOT, *([self.packages] if self.packages else [])]
        path = {"PYTHONPATH": os.pathsep.join(map(str, folders)), "UCX_NET_DEVICES": "lo"}
        with subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, env=os.environ | path | (environment or {}),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(timeout=max(self.until - time.monotonic(), 1))
            except BaseException as ended:
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(ended, subprocess.TimeoutExpired):
                    raise Failed(f"the {BUDGET_S} s of the whole check are over") from None
                raise
        if process.returncode not in statuses or not out:
            last = err.strip().splitlines()[-1:] or ["it said nothing"]
            (self.logs / "failed.log").write_text(out + err)
            raise Failed(f"status {process.returncode}: {last[0]}")
        return out


def refuses_what_it_must() -> str:
    """The control of the transport's check: logs whose answer is known."""
    wanted: dict[str, tuple[str, Any]] = {
        "tcp only": (transports.TCP_ONLY, True),
        "an empty log": ("", True),
        "cuda_ipc": (transports.CUDA_IPC, False),
    }
    for name, (log, refused) in wanted.items():
        if bool(transports.refusal(log, "cuda")) != refused:
            raise Failed(f"{name}: {'not ' if refused else ''}refused")
    return transports.refusal(transports.TCP_ONLY, "cuda")
