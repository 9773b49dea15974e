"""Memory that pages are moved between: plain numbers that can be checked, laid out as a shape says."""

import mmap
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from benchmarks.processes import Span
from benchmarks.shapes import Shape

if TYPE_CHECKING:  # a peer's environment has neither this project nor what it needs
    from kvtransfer.memory import Extent

CANARY = np.uint64(0xC0FFEE)

_MAP_HUGETLB = 0x40000
"""Of linux/mman.h; Python has no name for it. Pages of the kernel's default huge size, which must be set aside."""

Words = npt.NDArray[np.uint64]


class Pool:
    """A rank's pages. A sender's are filled by a rule that the receiver knows too.

    Attributes:
        memory: (piece, page, word), wherever each lies.
        base: the memory as it lies, without axes.
        pages: the kind of memory that was got: `huge` (set aside by the kernel), `transparent huge N %` or `small`.
    """

    memory: Words
    base: Words
    pages: str

    def __init__(self, shape: Shape, *, filled: bool, rank: int = 0) -> None:
        self.shape = shape
        words = shape.piece_bytes // 8
        self._row = np.arange(words, dtype=np.uint64)
        drawn = np.random.default_rng((1, rank))
        # Page by page, so that pools of unequal length agree.
        self._keys = drawn.integers(2**64, size=(shape.pool_pages, shape.pieces), dtype=np.uint64).T
        self.base, kind = allocate(shape.pieces * shape.pool_pages * shape.piece_bytes, huge=shape.huge)
        if shape.page_major:
            self.memory = self.base.reshape(shape.pool_pages, shape.pieces, words).swapaxes(0, 1)
        else:
            self.memory = self.base.reshape(shape.pieces, shape.pool_pages, words)
        self.base[:] = CANARY
        if filled:
            for piece, keys in enumerate(self._keys):
                self.memory[piece] = self._row ^ keys[:, None]
        self.pages = kind if kind != "transparent huge" else f"{kind} {_huge_percent(self.base)} %"

    @property
    def extent(self) -> "Extent":
        """Where it lies."""
        from kvtransfer.memory import Extent

        return Extent(self.base.ctypes.data, self.base.nbytes, "dram", 0)

    def clear(self, pages: Sequence[int]) -> None:
        """Puts the canary back, so that bytes found there afterwards have come since."""
        self.memory[:, pages] = CANARY

    def wrong_pieces(self, targets: Sequence[int], sources: Sequence[int]) -> int:
        """How many pieces of `targets` do not hold what the sender has in `sources`. Every byte is looked at."""
        wrong = 0
        for piece, keys in enumerate(self._keys):
            expected = self._row ^ keys[list(sources), None]
            wrong += int(np.any(self.memory[piece, list(targets)] != expected, axis=1).sum())
        return wrong

    def touched_pieces(self, allowed: Sequence[int]) -> int:
        """How many pieces outside of the pages `allowed` do not hold the canary."""
        others = np.setdiff1d(np.arange(self.shape.pool_pages), np.asarray(allowed))
        return sum(int(np.any(piece[others] != CANARY, axis=1).sum()) for piece in self.memory)

    @cached_property
    def _copy(self) -> Words:
        copy, _ = allocate(self.shape.nbytes, huge=self.shape.huge)
        copy[:] = 1
        return copy

    def copy_prompt(self) -> Span:
        """When a plain copy of a prompt's bytes, to memory that was touched before, began and ended."""
        source, target = self.base[: self._copy.size], self._copy
        began = time.monotonic()
        np.copyto(target, source)
        return began, time.monotonic()


def allocate(nbytes: int, *, huge: bool) -> tuple[Words, str]:
    """Private memory for a multiple of 8 bytes; and its kind: `huge`, `transparent huge` or `small`.

    Huge pages come from those that the kernel has set aside (vm.nr_hugepages), or else are asked for by MADV_HUGEPAGE,
    which the kernel may ignore.
    """
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if not huge:
        return np.frombuffer(mmap.mmap(-1, nbytes, private), np.uint64), "small"
    size = _huge_size()
    rounded = -(-nbytes // size) * size
    try:
        kept, kind = mmap.mmap(-1, rounded, private | _MAP_HUGETLB), "huge"
    except OSError:  # fewer are set aside than this takes
        kept, kind = mmap.mmap(-1, rounded, private), "transparent huge"
        kept.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(kept, np.uint64, nbytes // 8), kind


def _huge_size() -> int:
    """Bytes of a huge page; where the kernel has none, what most have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Hugepagesize:"):
            return int(line.split()[1]) << 10
    return 2 << 20


def _huge_percent(memory: Words) -> int:
    """How much of touched memory the kernel holds in transparent huge pages."""
    address, inside, huge = memory.ctypes.data, False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if "-" in name and not name.endswith(":"):
            first, last = (int(end, 16) for end in name.split("-"))
            inside = first < address + memory.nbytes and address < last
        elif inside and name == "AnonHugePages:":
            huge += int(rest.split()[0]) << 10
    return min(100, round(100 * huge / memory.nbytes))
