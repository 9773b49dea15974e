"""The dequantised file: made once, whole or not at all, and made again when it is not what it should be."""

from pathlib import Path

import pytest
import torch

from examples.pd_llm import weights, weights_file
from examples.pd_llm.config import SMOLLM2


def test_it_is_made_once(model_weights: weights.Weights) -> None:
    made = weights_file.prepare()
    said: list[str] = []
    before = made.stat()
    assert weights_file.prepare(say=said.append) == made
    assert made.stat().st_mtime_ns == before.st_mtime_ns
    assert not said


def test_it_holds_the_gguf_s_tensors(model_weights: weights.Weights) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    tensors = {tensor.name: tensor for tensor in GGUFReader(weights_file.find_gguf()).tensors}

    def read(name: str) -> torch.Tensor:
        return torch.from_numpy(dequantize(tensors[name].data, tensors[name].tensor_type).copy())

    assert torch.equal(model_weights["norm"], read("output_norm.weight"))
    assert torch.equal(model_weights["29.down"], read("blk.29.ffn_down.weight"))
    second_head = model_weights["7.qkv"][1]
    assert torch.equal(second_head[:192], read("blk.7.attn_q.weight")[192:384])
    assert torch.equal(second_head[192:256], read("blk.7.attn_k.weight")[64:128])
    assert torch.equal(second_head[256:], read("blk.7.attn_v.weight")[64:128])
    assert all(tensor.data_ptr() % 64 == 0 for tensor in model_weights.values())


def test_a_file_of_another_size_is_not_mapped(tmp_path: Path) -> None:
    stump = tmp_path / "stump"
    stump.write_bytes(bytes(4096))
    with pytest.raises(ValueError, match=rf"4096 bytes, {SMOLLM2.name} has 538\d+"):
        weights.load(stump)
