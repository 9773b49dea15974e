"""Tensor parallelism: the ranks of an engine, one process each, and the three things that they tell one another."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

_FOREVER = timedelta(days=365)  # an idle engine's ranks block in `share` until there is work; a death ends it at once


class Group(Protocol):
    """All ranks make the same calls in the same order. Each call blocks, without spinning, until the others made it.

    A rank that dies ends the others' calls with RuntimeError.
    """

    rank: int
    size: int

    def gather_columns(self, x: Tensor) -> Tensor:
        """Put the `[T, n]` of all ranks side by side, by rank: `[T, size * n]`."""

    def gather_ints(self, values: list[int]) -> list[list[int]]:
        """Everyone's values, by rank; lists of one length."""

    def share(self, message: Any) -> Any:
        """Rank 0's message, which JSON can hold; what the others pass is ignored."""


class Alone:
    """A group of one."""

    rank, size = 0, 1

    def gather_columns(self, x: Tensor) -> Tensor:
        return x

    def gather_ints(self, values: list[int]) -> list[list[int]]:
        return [values]

    def share(self, message: Any) -> Any:
        return message


class Processes:
    """A group of processes of one machine, over torch's gloo on the loopback interface."""

    def __init__(self, rank: int, size: int, rendezvous: Path) -> None:
        """`rendezvous` is a path in an existing folder, new for each group and the same for all its ranks."""
        self.rank, self.size = rank, size
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", f"file://{rendezvous}", timeout=_FOREVER, rank=rank, world_size=size)

    def gather_columns(self, x: Tensor) -> Tensor:
        mine = x.cpu().contiguous()  # gloo works in host memory
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine)
        return torch.cat(parts, dim=1).to(x.device)

    def gather_ints(self, values: list[int]) -> list[list[int]]:
        mine = torch.tensor(values, dtype=torch.int64)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine)
        return [part.tolist() for part in parts]

    def share(self, message: Any) -> Any:
        payload = torch.frombuffer(bytearray(json.dumps(message).encode()), dtype=torch.uint8)
        length = torch.tensor([len(payload)])
        dist.broadcast(length, src=0)
        if self.rank != 0:
            payload = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(payload, src=0)
        return json.loads(payload.numpy().tobytes())
