import pytest
import torch

from examples.pd_llm.config import ModelConfig
from examples.pd_llm.kv_pool import Indices, KVPool, bytes_of, holds_canary, restore_canary

TINY = ModelConfig(
    name="tiny", layers=2, hidden=8, heads=3, kv_heads=3, head_dim=4, ffn=8, vocab=16, context=64,
    rope_base=1e4, norm_eps=1e-5, eos=0,
)  # fmt: skip


def test_a_canary_differs_from_place_to_place_and_shows_the_smallest_touch() -> None:
    pool = KVPool(TINY, pages=3, page_tokens=2, slots=2, heads=range(3), device=torch.device("cpu"))
    items = [row for tensor in [*pool.page_parts(), *pool.slot_parts()] for row in tensor]
    assert all(holds_canary(item) for item in items)
    assert len({bytes_of(item).tobytes() for item in items}) == len(items)

    bytes_of(pool.v[1][2])[-1] ^= 1
    assert not holds_canary(pool.v[1][2])
    assert not holds_canary(pool.v[1])
    assert holds_canary(pool.v[1][1])
    restore_canary(pool.v[1][2])
    assert holds_canary(pool.v[1])


def test_indices_are_handed_out_once_and_come_back() -> None:
    indices = Indices(8, seed=1)
    first, second = indices.take(3), indices.take(5)
    assert sorted(first + second) == list(range(8))
    assert indices.free == 0
    with pytest.raises(ValueError, match="1 wanted, 0 free"):
        indices.take(1)
    indices.give_back(first)
    assert sorted(indices.take(3)) == sorted(first)


def test_without_reuse_an_index_is_never_seen_twice() -> None:
    indices = Indices(4, seed=1, reuse=False)
    taken = indices.take(3)
    indices.give_back(taken)
    assert indices.free == 1
    assert sorted(taken + indices.untouched) == list(range(4))
