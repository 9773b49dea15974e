"""A Llama-architecture model in plain torch over a paged KV pool.

Written so that equal inputs give equal bits whatever the page numbers and the tensor-parallel size: every matmul has
the same shape and operands either way. Only q, k, v and attention are split, by KV head, and each head is computed on
its own; attention outputs are gathered; the rest is computed by every rank. Chunk sizes do change bits (the shape of a
matmul decides the order of its sums), so who wants equal bits replays them.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .config import ModelConfig
from .kv_pool import KVPool
from .tp import Group
from .weights import Weights


class Model:
    """One rank's model; not thread-safe."""

    def __init__(self, config: ModelConfig, weights: Weights, pool: KVPool, group: Group) -> None:
        """`weights` are whole and on the pool's device; `pool.heads` says which KV heads are this rank's."""
        self._config = config
        self._weights = weights
        self._pool = pool
        self._group = group
        # llama.cpp's converter permutes q and k so that rope turns neighbouring pairs; 1/base^(2i/d) for pair i.
        pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64)
        self._frequencies = config.rope_base ** (-pairs / config.head_dim)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], start: int, pages: Sequence[int]) -> Tensor:
        """Run `tokens`, the first of which is number `start` of its request, and keep their keys and values.

        Args:
            tokens: A chunk of a prompt, or the one token of a decode step.
            start: Tokens of the request that are in the pool already.
            pages: The request's pages in token order, enough for `start + len(tokens)` tokens.

        Returns:
            Logits that follow the last token, fp32 `[vocab]`.
        """
        c, w = self._config, self._weights
        device = self._pool.fields.device
        count, end = len(tokens), start + len(tokens)
        positions = torch.arange(start, end, device=device)
        cos, sin = self._rope(positions)
        later = torch.arange(end, device=device) > positions[:, None]  # [T, S]: what a token must not see
        table = torch.tensor(pages[: self._pool.pages_for(end)], device=device)
        at = (table[positions // self._pool.page_tokens], positions % self._pool.page_tokens)

        x = functional.embedding(torch.tensor(tokens, device=device), w["embed"])
        for layer in range(c.layers):
            normed = self._norm(x, w[f"{layer}.attn_norm"])
            heads = [functional.linear(normed, w[f"{layer}.qkv"][head]) for head in self._pool.heads]
            qkv = torch.stack(heads, dim=1).view(count, len(heads), c.group + 2, c.head_dim)
            qk = _rotate(qkv[:, :, : c.group + 1], cos, sin)
            self._pool.k[layer][at] = qk[:, :, c.group]
            self._pool.v[layer][at] = qkv[:, :, c.group + 1]
            keys, values = (self._read(kv[layer], table, end) for kv in (self._pool.k, self._pool.v))
            attended = [
                self._attend(qk[:, head, : c.group], keys[head], values[head], later) for head in range(len(heads))
            ]
            x = x + functional.linear(self._group.gather_columns(torch.cat(attended, dim=1)), w[f"{layer}.out"])

            gate, up = functional.linear(self._norm(x, w[f"{layer}.ffn_norm"]), w[f"{layer}.gate_up"]).chunk(2, dim=1)
            x = x + functional.linear(functional.silu(gate) * up, w[f"{layer}.down"])
        return functional.linear(self._norm(x[-1:], w["norm"]), w["embed"])[0]

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self._config.norm_eps) * weight

    def _rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each `[T, 1, 1, head_dim / 2]`. Angles in fp64: fp32 loses a digit by position 1000."""
        angles = positions.cpu().double()[:, None] * self._frequencies
        cos, sin = angles.cos().float(), angles.sin().float()
        return cos[:, None, None].to(positions.device), sin[:, None, None].to(positions.device)

    def _read(self, cache: Tensor, table: Tensor, count: int) -> Tensor:
        """The first `count` tokens of the pages in `table`, as contiguous `[heads, S, head_dim]`."""
        paged = cache.index_select(0, table)
        return paged.flatten(0, 1)[:count].transpose(0, 1).contiguous()

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, later: Tensor) -> Tensor:
        """One KV head: queries `[T, group, d]`, keys and values `[S, d]`; gives `[T, group * d]`."""
        count, group, dim = queries.shape
        scores = (queries.reshape(count * group, dim) @ keys.T).view(count, group, -1) / math.sqrt(dim)
        weights = scores.masked_fill(later[:, None], -math.inf).softmax(-1)
        return (weights.view(count * group, -1) @ values).view(count, group * dim)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of neighbours of the last axis by its angle."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
