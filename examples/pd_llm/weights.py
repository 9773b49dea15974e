"""The model's weights as torch tensors."""

import math
import mmap
from pathlib import Path

import numpy as np
import torch

from .config import SMOLLM2, ModelConfig
from .weights_file import offsets, prepare

Weights = dict[str, torch.Tensor]
"""fp32 tensors by the names of `ModelConfig.shapes()`."""

_SEED = 135


def of(config: ModelConfig) -> Weights:
    """The weights of a model, in host memory: SmolLM2's own, another's from a seed."""
    return load(prepare()) if config is SMOLLM2 else draw(config)


def draw(config: ModelConfig) -> Weights:
    """Weights that keep activations near 1, the same in each process."""
    random = torch.Generator().manual_seed(_SEED)
    return {
        name: torch.ones(shape) if name.endswith("norm") else torch.randn(shape, generator=random) / shape[-1] ** 0.5
        for name, shape in config.shapes().items()
    }


def load(path: Path, config: ModelConfig = SMOLLM2) -> Weights:
    """Map the file made by `prepare()`; nothing is copied.

    Raises:
        ValueError: The file is not one that `prepare()` made for this model.
    """
    first_byte, end = offsets(config)
    if path.stat().st_size != end:
        raise ValueError(f"{path}: {path.stat().st_size} bytes, {config.name} has {end}")
    mapped = np.memmap(path, dtype=np.float32, mode="c")  # copy-on-write: torch wants writable memory; nobody writes
    flat = torch.from_numpy(mapped)
    flat[:: mmap.PAGESIZE // 4].sum()  # touches every page: now rather than in the first request
    return {
        name: flat[first_byte[name] // 4 :][: math.prod(shape)].view(shape) for name, shape in config.shapes().items()
    }
