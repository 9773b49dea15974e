"""An engine's KV memory: pages of tokens for every layer, and one aux row per room."""

import random
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from .config import ModelConfig

AUX_FIELDS = 8
"""int64 fields of an aux row (`AuxRow` says what they hold); one cache line."""


class KVPool:
    """Torch tensors of one rank, filled with a canary: words drawn from their own addresses.

    Attributes:
        heads: KV heads of the model that this rank holds.
        k, v: One tensor per layer, fp32 `[pages, page_tokens, len(heads), head_dim]`.
        fields: int64 `[slots, AUX_FIELDS]`.
        logits: fp32 `[slots, vocab]`.
    """

    def __init__(
        self, config: ModelConfig, pages: int, page_tokens: int, slots: int, heads: range, device: torch.device
    ) -> None:
        self.page_tokens = page_tokens
        self.heads = heads
        # One allocation for all layers: what NIXL registers grows the metadata that peers exchange.
        shape = (2, config.layers, pages, page_tokens, len(heads), config.head_dim)
        whole = torch.empty(shape, dtype=torch.float32, device=device)
        self.k, self.v = list(whole[0]), list(whole[1])
        self.fields = torch.empty((slots, AUX_FIELDS), dtype=torch.int64, device=device)
        self.logits = torch.empty((slots, config.vocab), dtype=torch.float32, device=device)
        for tensor in [*self.page_parts(), *self.slot_parts()]:
            restore_canary(tensor)

    def page_parts(self) -> list[torch.Tensor]:
        """Every tensor that the index of a page addresses: keys by layer, then values by layer."""
        return [*self.k, *self.v]

    def slot_parts(self) -> list[torch.Tensor]:
        """Every tensor that the index of a slot addresses."""
        return [self.fields, self.logits]

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` tokens take."""
        return -(-tokens // self.page_tokens)


class Indices:
    """Which pages (or slots) of a pool are free. Handed out in an order shuffled by `seed`, so never in runs."""

    def __init__(self, count: int, seed: int, *, reuse: bool = True) -> None:
        self._free = random.Random(seed).sample(range(count), count)
        self._reuse = reuse
        self._used: set[int] = set()

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def untouched(self) -> list[int]:
        """Those never taken."""
        return [index for index in self._free if index not in self._used]

    def take(self, count: int) -> list[int]:
        """`count` free indices.

        Raises:
            ValueError: Fewer are free.
        """
        if count > len(self._free):
            raise ValueError(f"{count} wanted, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(count)]
        self._used.update(taken)
        return taken

    def give_back(self, indices: Iterable[int]) -> None:
        """Make them free again; with `reuse` off, keep them, so that what was written can still be looked at."""
        if self._reuse:
            self._free[:0] = indices


def bytes_of(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous tensor; a view of them where it is in host memory."""
    return tensor.cpu().reshape(-1).view(torch.uint8).numpy()


def holds_canary(tensor: torch.Tensor) -> bool:
    """Whether nobody has written to this tensor, a pool's or an item of one."""
    return bool(np.array_equal(bytes_of(tensor), _canary(tensor)))


def restore_canary(tensor: torch.Tensor) -> None:
    """Make a tensor, a pool's or an item of one, look untouched."""
    tensor.view(-1).view(torch.uint8).copy_(torch.from_numpy(_canary(tensor)))


def _canary(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    """SplitMix64's finaliser over the address of each 8-byte word."""
    x = np.arange(tensor.nbytes // 8, dtype=np.uint64) * np.uint64(8) + np.uint64(tensor.data_ptr())
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x.view(np.uint8)
