"""What is moved: KV caches of real models, as pages of plain numbers that can be checked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from kvtransfer import PagedGroup, Part

PAGE_TOKENS = 16

CANARY = np.uint64(0xC0FFEE)


@dataclass(frozen=True, slots=True)
class Shape:
    """One prompt's KV in layer-major pools: a region for K and one for V of each layer."""

    name: str
    layers: int
    piece_bytes: int
    """Bytes that one page takes of one region: a descriptor. A multiple of 8."""
    pages: int
    """Of the prompt."""
    pool_pages: int

    @property
    def regions(self) -> int:
        """K and V of each layer."""
        return 2 * self.layers

    @property
    def descriptors(self) -> int:
        """Of the prompt, before neighbours are merged."""
        return self.regions * self.pages

    @property
    def nbytes(self) -> int:
        """Of the prompt."""
        return self.descriptors * self.piece_bytes

    @property
    def tokens(self) -> int:
        """Of the prompt."""
        return self.pages * PAGE_TOKENS


SMALL_PIECES = Shape("SmolLM2", layers=30, piece_bytes=PAGE_TOKENS * 3 * 64 * 2, pages=64, pool_pages=256)
"""SmolLM2-135M at 1024 tokens in 2-byte elements: 3 KV heads of 64."""
LARGE_PIECES = Shape("8B", layers=32, piece_bytes=PAGE_TOKENS * 8 * 128 * 2, pages=64, pool_pages=128)
"""An 8B model with grouped queries at 1024 tokens in 2-byte elements: 8 KV heads of 128."""
ONE_PAGE = Shape("one page", layers=30, piece_bytes=PAGE_TOKENS * 3 * 64 * 2, pages=1, pool_pages=256)
"""16 tokens of SmolLM2-135M."""


@dataclass(frozen=True, slots=True)
class PageLists:
    """Which pages of the sender go to which of the receiver."""

    name: str
    sources: list[int]
    targets: list[int]


def contiguous(shape: Shape) -> PageLists:
    """A run on both sides, not at the same place."""
    first = (shape.pool_pages - shape.pages) // 2
    return PageLists("contiguous", list(range(shape.pages)), list(range(first, first + shape.pages)))


def scattered(shape: Shape) -> PageLists:
    """Drawn at random, the same in each run."""
    random = np.random.default_rng(7)
    sources, targets = (random.permutation(shape.pool_pages)[: shape.pages].tolist() for _ in range(2))
    return PageLists("scattered", sources, targets)


class Pool:
    """A worker's pages. A sender's are filled by a rule that the receiver knows too."""

    def __init__(self, shape: Shape, *, filled: bool) -> None:
        self.shape = shape
        words = shape.piece_bytes // 8
        self._row = np.arange(words, dtype=np.uint64)
        self._keys = np.random.default_rng(1).integers(2**64, size=(shape.regions, shape.pool_pages), dtype=np.uint64)
        self.memory: npt.NDArray[np.uint64] = np.full((shape.regions, shape.pool_pages, words), CANARY, np.uint64)
        if filled:
            for region, keys in enumerate(self._keys):
                self.memory[region] = self._row ^ keys[:, None]

    def group(self) -> PagedGroup:
        """Described for a KVManager."""
        keys, values = ({layer: self.memory[2 * layer + i] for layer in range(self.shape.layers)} for i in range(2))
        return PagedGroup("kv", PAGE_TOKENS, [Part("k", keys), Part("v", values)])

    def clear(self, pages: Sequence[int]) -> None:
        """Puts the canary back, so that bytes found there afterwards have come since."""
        self.memory[:, pages] = CANARY

    def wrong_pieces(self, targets: Sequence[int], sources: Sequence[int]) -> int:
        """How many pieces of `targets` do not hold what the sender has in `sources`. Every byte is looked at."""
        wrong = 0
        for region, keys in enumerate(self._keys):
            expected = self._row ^ keys[list(sources), None]
            wrong += int(np.any(self.memory[region, list(targets)] != expected, axis=1).sum())
        return wrong

    def touched_pieces(self, allowed: Sequence[int]) -> int:
        """How many pieces outside of the pages `allowed` do not hold the canary."""
        others = np.setdiff1d(np.arange(self.shape.pool_pages), np.asarray(allowed))
        return sum(int(np.any(region[others] != CANARY, axis=1).sum()) for region in self.memory)
