"""A pool in a torch tensor: on a GPU, or for comparison in host memory."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from kvtransfer.memory import Extent

from benchmarks.pool import CANARY, Pool
from benchmarks.shapes import Shape


def pool_for(shape: Shape, *, filled: bool, rank: int = 0) -> "Pool | DevicePool":
    """The pool that a shape asks for."""
    return (DevicePool if shape.device else Pool)(shape, filled=filled, rank=rank)


class DevicePool:
    """As `Pool`, and checked as thoroughly. On GPUs a sender has the first, a receiver the second if there is one.

    Attributes:
        memory: int64 tensor (piece, page, word), wherever each lies.
        base: the memory as it lies, without axes.
        pages: where it is.
    """

    memory: Any
    base: Any
    pages: str

    def __init__(self, shape: Shape, *, filled: bool, rank: int = 0) -> None:
        import torch  # only where it is needed

        self.shape = shape
        device = shape.device
        if device == "cuda":
            device = f"cuda:{0 if filled else min(1, torch.cuda.device_count() - 1)}"
        words = shape.piece_bytes // 8
        self._torch = torch
        self._row = torch.arange(words, dtype=torch.int64, device=device)
        drawn = np.random.default_rng((1, rank))
        keys = drawn.integers(2**64, size=(shape.pool_pages, shape.pieces), dtype=np.uint64)
        self._keys = torch.from_numpy(keys.view(np.int64)).to(device).T
        self.base = torch.full(
            (shape.pieces * shape.pool_pages * words,), int(CANARY), dtype=torch.int64, device=device
        )
        if shape.page_major:
            self.memory = self.base.view(shape.pool_pages, shape.pieces, words).transpose(0, 1)
        else:
            self.memory = self.base.view(shape.pieces, shape.pool_pages, words)
        if filled:
            for piece, by_page in enumerate(self._keys):
                self.memory[piece] = self._row ^ by_page[:, None]
        self.pages = str(self.base.device)
        self._finish()

    @property
    def extent(self) -> Extent:
        """Where it lies."""
        device = self.base.device
        nbytes = self.base.numel() * self.base.element_size()
        return Extent(self.base.data_ptr(), nbytes, "dram" if device.type == "cpu" else "vram", device.index or 0)

    def clear(self, pages: Sequence[int]) -> None:
        """See Pool."""
        self.memory[:, list(pages)] = int(CANARY)
        self._finish()

    def wrong_pieces(self, targets: Sequence[int], sources: Sequence[int]) -> int:
        """See Pool."""
        wrong = 0
        for piece, by_page in enumerate(self._keys):
            expected = self._row ^ by_page[list(sources), None]
            wrong += int((self.memory[piece, list(targets)] != expected).any(1).sum())
        return wrong

    def touched_pieces(self, allowed: Sequence[int]) -> int:
        """See Pool."""
        others = np.setdiff1d(np.arange(self.shape.pool_pages), np.asarray(allowed)).tolist()
        return sum(int((piece[others] != int(CANARY)).any(1).sum()) for piece in self.memory)

    def copy_prompt(self) -> tuple[float, float]:
        """When a plain copy of a prompt's bytes within this memory began and ended, on CLOCK_MONOTONIC."""
        source = self.base[: self.shape.nbytes // 8]
        target = self._torch.ones_like(source)
        self._finish()
        began = time.monotonic()
        target.copy_(source)
        self._finish()
        return began, time.monotonic()

    def _finish(self) -> None:
        """Wait until the GPU has done what it was told: NIXL does not."""
        if self.base.device.type == "cuda":
            self._torch.cuda.synchronize(self.base.device)
