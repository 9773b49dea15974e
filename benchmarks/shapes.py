"""What is moved: KV caches of real models, and how pools hold them."""

from dataclasses import dataclass, replace

import numpy as np

PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """One prompt's KV, as one rank's pool holds it."""

    name: str
    layers: int
    piece_bytes: int
    """Bytes that one page takes of K, or of V, of one layer. A multiple of 8."""
    pages: int
    """Of the prompt."""
    pool_pages: int
    page_major: bool = False
    """Whether all pieces of a page lie side by side, rather than all pages of a layer's K, then of its V."""
    huge: bool = False
    """Whether the pool asks for huge pages of memory."""
    device: str = ""
    """Where the pool is a torch tensor: `cpu` or `cuda`; else it is plain memory."""
    ranks: int = 1
    """Of the engine, on either side. With several, a rank has one KV head of as many."""

    @property
    def pieces(self) -> int:
        """Of a page: K and V of each layer."""
        return 2 * self.layers

    @property
    def tracks(self) -> int:
        """Arrays of items that lie apart in the pool."""
        return 1 if self.page_major else self.pieces

    @property
    def item_bytes(self) -> int:
        """That lie side by side: of a page, or of a piece."""
        return self.pieces // self.tracks * self.piece_bytes

    @property
    def descriptors(self) -> int:
        """Of the prompt and a rank, before neighbouring pages are merged."""
        return self.tracks * self.pages

    @property
    def nbytes(self) -> int:
        """Of the prompt and a rank."""
        return self.pieces * self.pages * self.piece_bytes

    @property
    def tokens(self) -> int:
        """Of the prompt."""
        return self.pages * PAGE_TOKENS

    @property
    def pool(self) -> str:
        """How the pool holds it, in words."""
        held = "page-major" if self.page_major else "layer-major"
        return ", ".join([held, *(["huge"] if self.huge else []), *([self.device] if self.device else [])])

    def with_tokens(self, tokens: int, pool_pages: int) -> "Shape":
        """For another prompt."""
        return replace(self, pages=tokens // PAGE_TOKENS, pool_pages=pool_pages)

    def best(self) -> "Shape":
        """In the pool that moves fastest: page-major, in huge pages."""
        return replace(self, page_major=True, huge=True)


SMALL_PIECES = Shape("SmolLM2", layers=30, piece_bytes=PAGE_TOKENS * 3 * 64 * 2, pages=64, pool_pages=256)
"""SmolLM2-135M at 1024 tokens in 2-byte elements: 3 KV heads of 64."""
SMALL_TP3 = Shape("SmolLM2 TP 3", layers=30, piece_bytes=PAGE_TOKENS * 64 * 2, pages=64, pool_pages=256, ranks=3)
"""The same over 3 ranks on either side."""
LARGE_PIECES = Shape("8B", layers=32, piece_bytes=PAGE_TOKENS * 8 * 128 * 2, pages=64, pool_pages=128)
"""An 8B model with grouped queries at 1024 tokens in 2-byte elements: 8 KV heads of 128."""
LARGE_TP8 = Shape("8B TP 8", layers=32, piece_bytes=PAGE_TOKENS * 128 * 2, pages=64, pool_pages=128, ranks=8)
"""The same over 8 ranks on either side."""
ONE_PAGE = replace(SMALL_PIECES, name="one page", pages=1)
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
