"""KV pools of plain bytes in the arrangements that engines use, and what a transfer between two of them must do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from kvtransfer import v1 as pb
from kvtransfer.layout import Group, LocalMemory, Order, PagedGroup, Part, SlotGroup

Arrangement = Literal["separate", "gapped", "layer_pairs", "page_major", "page_major_gapped"]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class PartSpec:
    """A part whose items have `tokens * heads * dim` bytes, or `dim` if whole."""

    name: str
    order: Order
    heads: int
    dim: int


@dataclass(frozen=True)
class GroupSpec:
    """A group with all its parts in each of `layers`; `page_tokens` is 0 for slots."""

    name: str
    page_tokens: int
    parts: tuple[PartSpec, ...]
    layers: tuple[int, ...]
    items: int
    arrangement: Arrangement = "separate"


@dataclass
class Pool:
    """The memory of one group: the arrays behind it, and a view per part and layer, items along its first axis."""

    spec: GroupSpec
    backing: list[Bytes] = field(default_factory=list)
    views: dict[tuple[str, int], Bytes] = field(default_factory=dict)


def build(spec: GroupSpec, seed: int) -> Pool:
    """Lay the group out and fill all of it, gaps too, with random bytes."""
    pool = Pool(spec)
    rng = np.random.default_rng(seed)
    sizes = {part.name: int(np.prod(_item_shape(part, spec.page_tokens))) for part in spec.parts}
    strips = [(part, layer) for layer in spec.layers for part in spec.parts]
    per_array = {"separate": 1, "gapped": 1, "layer_pairs": len(spec.parts)}.get(spec.arrangement, len(strips))
    for start in range(0, len(strips), per_array):
        members = strips[start : start + per_array]
        gap = 7 if "gapped" in spec.arrangement else 0
        width = sum(sizes[part.name] for part, _ in members) + gap
        words = rng.integers(0, 2**64, -(-spec.items * width // 8), dtype=np.uint64)
        array = words.view(np.uint8)[: spec.items * width].reshape(spec.items, width)
        pool.backing.append(array)
        offset = 0
        for part, layer in members:
            view = array[:, offset : offset + sizes[part.name]]
            pool.views[part.name, layer] = view.reshape(spec.items, *_item_shape(part, spec.page_tokens))
            offset += sizes[part.name]
    return pool


def describe(pools: Iterable[Pool]) -> LocalMemory:
    """As an engine would."""
    return LocalMemory("test-model", describe_groups(pools))


def describe_groups(pools: Iterable[Pool]) -> list[Group]:
    """What an engine hands to KVManager."""
    groups: list[Group] = []
    for pool in pools:
        spec = pool.spec
        parts = [
            Part(
                part.name,
                {layer: pool.views[part.name, layer] for layer in spec.layers},
                part.order,
                total_heads=part.heads,
                head_count=part.heads,
            )
            for part in spec.parts
        ]
        groups.append(
            PagedGroup(spec.name, spec.page_tokens, parts) if spec.page_tokens else SlotGroup(spec.name, parts)
        )
    return groups


def link(sender: str, receiver: str, layout: pb.Layout) -> pb.Link:
    """All of `layout`, from one process to another."""
    spans = [
        pb.Span(
            group=group.name,
            part=part.name,
            layers=[region.layer for region in part.regions if region.HasField("layer")],
            head_count=part.head_count,
        )
        for group in layout.groups
        for part in group.parts
    ]
    ends = [pb.Peer(worker_id=f"worker-of-{name}", instance_id=name) for name in (sender, receiver)]
    return pb.Link(sender=ends[0], receiver=ends[1], spans=spans)


def copy_by_token(sender: Mapping[tuple[str, int], Bytes], receiver: Pool, pairs: Iterable[tuple[int, int]]) -> None:
    """What a transfer of `pairs` of items must do, the slow way: token by token and head by head of each layer."""
    pairs = list(pairs)
    for part in receiver.spec.parts:
        for layer in receiver.spec.layers:
            source, target = sender[part.name, layer], receiver.views[part.name, layer]
            for s, r in pairs:
                if part.order == "whole":
                    target[r] = source[s]
                    continue
                for token in range(receiver.spec.page_tokens):
                    for head in range(part.heads):
                        at: Any = (token, head) if part.order == "token_head" else (head, token)
                        target[(r, *at)] = source[(s, *at)]


def _item_shape(part: PartSpec, page_tokens: int) -> tuple[int, ...]:
    if part.order == "whole":
        return (part.dim * max(1, page_tokens),)
    return (page_tokens, part.heads, part.dim) if part.order == "token_head" else (part.heads, page_tokens, part.dim)
