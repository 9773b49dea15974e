"""Which transport UCX chose for writes, by what it says with UCX_PROTO_INFO=y, and whether that will do.

UCX prints a table for each kind of operation and peer. Its title names both, in one row or in two; then each row has a
range of sizes, how they are moved, and the transport that moves them:

    | 3a201b5a-0eef-4dbd-9ed1-67417b6 intra-node cfg#1         |
    | remote memory write by ucp_put* from host memory to host |
    | 0..inf | zero-copy   | cma/memory                        |
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

MemoryType = Literal["cuda", "host"]
"""Of both ends of a write, in UCX's words."""

ABLE: dict[MemoryType, tuple[str, ...]] = {
    "cuda": ("cuda_ipc", "rc_", "dc_", "gga_"),
    "host": ("cma", "xpmem", "knem", "rc_", "dc_", "gga_"),
}
"""Beginnings of the transports that write such memory of a peer without the help of its processor. tcp is not one: it
takes memory of a GPU through that of the host."""

TCP_ONLY = """\
[1795982689.601913] [vm:6283 :0]   | a593b7dd-21ab-43f6-80e5-f7f0459 intra-node cfg#1                       |
[1795982689.601913] [vm:6283 :0]   | remote memory write by ucp_put* from cuda/GPU0 to cuda/dev[0]          |
[1795982689.601913] [vm:6283 :0]   +------------+---------------------------------+-------------------------+
[1795982689.601913] [vm:6283 :0]   |   Range    |           Description           |         Config          |
[1795982689.601913] [vm:6283 :0]   +------------+---------------------------------+-------------------------+
[1795982689.601913] [vm:6283 :0]   | 0..inf     | software emulation              | tcp/lo                  |
"""
"""What must be refused: the table of a machine whose writes of GPU memory go over tcp."""

CUDA_IPC = TCP_ONLY.replace("software emulation", "zero-copy         ").replace("tcp/lo       ", "cuda_ipc/cuda")
"""What must not."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How large writes between processes are moved."""

    description: str
    """Such as `zero-copy`."""
    config: str
    """Such as `cma/memory`: transport and device."""


def refusal(log: str, memory: MemoryType) -> str:
    """Why writes of such memory will not do, as a log shows them; empty if they will."""
    choices = dict.fromkeys(choose(log, memory))
    if not choices:
        return f"the log shows no writes of {memory} memory"
    for choice in choices:
        if not choice.config.startswith(ABLE[memory]) or "emulation" in choice.description:
            return f"{choice.config} ({choice.description}) moves {memory} memory by way of the host's processor"
    return ""


def choose(log: str, memory: MemoryType) -> Iterator[Choice]:
    """Of each table of writes to another process, the row for the largest."""
    peer = title = ""
    for line in log.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if any("cfg#" in cell for cell in cells):
            peer, title = " ".join(cells), ""
        if cells and "by ucp_" in cells[-1]:
            title = cells[-1]
        ours = re.match(rf"remote memory write by ucp_put.* from {memory}\b.* to {memory}\b", title)
        if ours and len(cells) == 3 and cells[0].endswith("inf") and " self " not in f" {peer} ":
            yield Choice(cells[1], cells[2])
