"""How an engine describes, once, the memory that it lends to transfers.

    LocalMemory("my-model", [
        PagedGroup("kv", page_tokens=16, parts=[
            Part("k", {layer: k_pool[layer] for layer in layers}, "token_head", total_heads=8, head_count=8),
            Part("v", {layer: v_pool[layer] for layer in layers}, "token_head", total_heads=8, head_count=8),
        ]),
        SlotGroup("aux", parts=[Part("first_token", first_tokens)]),
    ])

Neither torch nor NIXL is needed to describe host memory.
"""

import mmap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from kvtransfer import v1 as pb
from kvtransfer.errors import InvalidField
from kvtransfer.memory import Buffer, Extent, ItemArray, Kind, allocation_of, describe, merged

SCRATCH_BYTES = 1 << 20
"""Size of the region into which peers write to warm a connection up; the least that the protocol allows."""

Order = Literal["whole", "token_head", "head_token"]

_ORDERS: dict[str, pb.Part.Order] = {
    "whole": pb.Part.ORDER_WHOLE,
    "token_head": pb.Part.ORDER_TOKEN_HEAD,
    "head_token": pb.Part.ORDER_HEAD_TOKEN,
}
_KINDS: dict[Kind, pb.MemoryKind] = {"dram": pb.MEMORY_KIND_DRAM, "vram": pb.MEMORY_KIND_VRAM}


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of tensor in a group, such as `k`, `v`, `kv` or `scale`."""

    name: str
    memory: Buffer | Mapping[int, Buffer]
    """One buffer per layer, by the layer's number in the model; or a single one that belongs to no layer.

    Items (pages or slots) lie along a buffer's first axis; a page of a paged group is e.g. (token, head, dim)."""
    order: Order = "whole"
    """Order of the axes within a page; `whole` for what is not split by head, such as MLA, and for slots."""
    total_heads: int = 0
    """KV heads of the model; 0 for `whole`, as the next two."""
    first_head: int = 0
    """First head that this worker holds."""
    head_count: int = 0
    """Heads that this worker holds."""
    dtype: str = ""
    """Element type by its ml_dtypes name, such as `bfloat16`; the buffer's own if empty. Needed for `Memory`."""


@dataclass(frozen=True, slots=True)
class PagedGroup:
    """Token pages, addressed by one list of page indices per room."""

    name: str
    page_tokens: int
    """Tokens that a page covers."""
    parts: Sequence[Part]
    allow_missing: bool = False
    """Whether the other side may lack this group: it is then not sent."""


@dataclass(frozen=True, slots=True)
class SlotGroup:
    """One row per room, such as the first token and its logits, or recurrent state."""

    name: str
    parts: Sequence[Part]


Group = PagedGroup | SlotGroup


class LocalMemory:
    """The memory of this process that transfers may touch, checked and described.

    Attributes:
        layout: what is registered with the service, scratch region included.
        allocations: what is registered with NIXL, scratch region included.
        scratch: where peers write to warm connections up.

    Keeps the tensors, the arrays and the scratch region alive. Raw `Memory` is the caller's to keep.
    """

    layout: pb.Layout
    allocations: tuple[Extent, ...]
    scratch: Extent

    def __init__(self, model: str, groups: Sequence[Group], allocations: Iterable[Buffer] | None = None) -> None:
        """Describe `groups`.

        Args:
            model: the model that the pages belong to; must be equal on both sides of a transfer.
            groups: unique by name.
            allocations: the memory to register; by default whatever lies behind the parts' buffers.

        Raises:
            InvalidField: names the field and its value, e.g. `groups[kv].parts[k].layers[3]`.
        """
        if not model:
            raise InvalidField("model", f"must not be empty, is {model!r}")
        if not groups:
            raise InvalidField("groups", "there must be at least one")
        listed = None if allocations is None else list(allocations)
        self._keep: list[Any] = [groups, listed]
        self.layout = pb.Layout(model=model)
        found: list[tuple[str, ItemArray]] = []
        for group in groups:
            field = f"groups[{group.name}]"
            if group.name in (g.name for g in self.layout.groups):
                raise InvalidField(field, "named twice")
            self.layout.groups.append(_describe_group(group, field, found))
        if listed is None:
            extents = merged(items.allocation for _, items in found)
        else:
            extents = merged(allocation_of(buffer, f"allocations[{i}]") for i, buffer in enumerate(listed))
        for field, items in found:
            _check_inside(items, extents, field)
        self.scratch = self._allocate_scratch(extents)
        self.layout.scratch.CopyFrom(
            pb.Region(
                address=self.scratch.address,
                item_count=1,
                item_stride=SCRATCH_BYTES,
                memory=_KINDS[self.scratch.kind],
                device=self.scratch.device,
            )
        )
        self.allocations = (*extents, self.scratch)
        self._groups = {group.name: group for group in self.layout.groups}
        self._item_counts = {
            name: min(region.item_count for part in group.parts for region in part.regions)
            for name, group in self._groups.items()
        }

    @property
    def groups(self) -> Mapping[str, pb.BufferGroup]:
        """The groups of the layout by name."""
        return self._groups

    def page_tokens(self, group: str) -> int:
        """Tokens that a page of a paged group covers."""
        return self._groups[group].page_tokens

    def item_count(self, group: str) -> int:
        """Pages or slots that all regions of a group have."""
        return self._item_counts[group]

    def item_bytes(self, group: str) -> int:
        """Bytes of one page or slot over all parts and layers of a group."""
        return sum(part.item_bytes * len(part.regions) for part in self._groups[group].parts)

    def check_indices(
        self, group: str, indices: npt.ArrayLike, field: str, *, distinct: bool = True
    ) -> npt.NDArray[np.int32]:
        """Check page or slot indices of a group; returns them as an array with one axis.

        Raises:
            InvalidField: no such group; not a list of whole numbers; one outside the pool; if `distinct`, one twice.
                Begins with `field` and names the first wrong value.
        """
        if group not in self._groups:
            raise InvalidField(field, f"no group {group!r} in the layout: it has {', '.join(self._groups)}")
        array = np.asarray(indices)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InvalidField(field, f"not a list of whole numbers: {array.dtype} of shape {array.shape}")
        count = self.item_count(group)
        if array.size and (array.min() < 0 or array.max() >= count):
            at = int(np.flatnonzero((array < 0) | (array >= count))[0])
            raise InvalidField(f"{field}[{at}]", f"index {array[at]} is outside the {count} items of group {group!r}")
        result = np.ascontiguousarray(array, dtype=np.int32)
        if distinct and result.size > 1:
            ordered = np.sort(result)
            twice = np.flatnonzero(ordered[1:] == ordered[:-1])
            if twice.size:
                raise InvalidField(field, f"index {ordered[twice[0]]} of group {group!r} is there twice")
        return result

    def _allocate_scratch(self, extents: Sequence[Extent]) -> Extent:
        """On a device if any memory is, so that the warm-up takes the road that the pages will take."""
        on_device = next((extent for extent in extents if extent.kind == "vram"), None)
        if on_device:
            import torch

            tensor = torch.empty(SCRATCH_BYTES, dtype=torch.uint8, device=f"cuda:{on_device.device}")
            self._keep.append(tensor)
            return Extent(tensor.data_ptr() % 2**64, SCRATCH_BYTES, "vram", on_device.device)
        array = np.frombuffer(mmap.mmap(-1, SCRATCH_BYTES), np.uint8)
        self._keep.append(array)
        return Extent(array.ctypes.data, SCRATCH_BYTES, "dram", 0)


def _describe_group(group: Group, field: str, found: list[tuple[str, ItemArray]]) -> pb.BufferGroup:
    """Appends what lies behind each region, with its field, to `found`."""
    if not group.name:
        raise InvalidField(f"{field}.name", f"must not be empty, is {group.name!r}")
    if not group.parts:
        raise InvalidField(f"{field}.parts", "there must be at least one")
    result = pb.BufferGroup(name=group.name, kind=pb.BufferGroup.KIND_SLOT)
    if isinstance(group, PagedGroup):
        if group.page_tokens < 1:
            raise InvalidField(f"{field}.page_tokens", f"must be at least 1, is {group.page_tokens}")
        result.kind = pb.BufferGroup.KIND_PAGED
        result.page_tokens = group.page_tokens
        result.allow_missing = group.allow_missing
    for part in group.parts:
        part_field = f"{field}.parts[{part.name}]"
        if not part.name:
            raise InvalidField(f"{part_field}.name", f"must not be empty, is {part.name!r}")
        if part.name in (p.name for p in result.parts):
            raise InvalidField(part_field, "named twice")
        result.parts.append(_describe_part(part, result.page_tokens, part_field, found))
    return result


def _describe_part(part: Part, page_tokens: int, field: str, found: list[tuple[str, ItemArray]]) -> pb.Part:
    layers: list[tuple[int | None, Buffer]]
    layers = sorted(part.memory.items()) if isinstance(part.memory, Mapping) else [(None, part.memory)]
    if not layers:
        raise InvalidField(f"{field}.layers", "there must be at least one")
    if part.order not in _ORDERS:
        raise InvalidField(f"{field}.order", f"must be one of {', '.join(_ORDERS)}, is {part.order!r}")
    result = pb.Part(
        name=part.name,
        order=_ORDERS[part.order],
        total_heads=part.total_heads,
        first_head=part.first_head,
        head_count=part.head_count,
    )
    for layer, buffer in layers:
        layer_field = f"{field}.memory" if layer is None else f"{field}.layers[{layer}]"
        if layer is not None and layer < 0:
            raise InvalidField(layer_field, "layers are counted from 0")
        items = describe(buffer, layer_field)
        dtype = part.dtype or items.dtype
        if not dtype:
            raise InvalidField(f"{field}.dtype", f"must not be empty for raw memory, is {part.dtype!r}")
        if result.regions and (dtype, items.item_bytes) != (result.dtype, result.item_bytes):
            raise InvalidField(
                layer_field,
                f"items of {items.item_bytes} bytes of {dtype}, layers before it {result.item_bytes} of {result.dtype}",
            )
        result.dtype, result.item_bytes = dtype, items.item_bytes
        result.regions.append(_region(layer, items))
        found.append((layer_field, items))
    _check_heads(result, page_tokens, field)
    return result


def _region(layer: int | None, items: ItemArray) -> pb.Region:
    region = pb.Region(
        address=items.address,
        item_count=items.item_count,
        item_stride=items.item_stride,
        memory=_KINDS[items.allocation.kind],
        device=items.allocation.device,
    )
    if layer is not None:
        region.layer = layer
    return region


def _check_heads(part: pb.Part, page_tokens: int, field: str) -> None:
    heads = (part.total_heads, part.first_head, part.head_count)
    if part.order == pb.Part.ORDER_WHOLE:
        if any(heads):
            raise InvalidField(
                f"{field}.head_count", f"a part of order 'whole' has no heads, this has {part.head_count}"
            )
        return
    if not page_tokens:
        raise InvalidField(f"{field}.order", "must be 'whole' in a slot group")
    if part.head_count < 1 or part.first_head < 0 or part.first_head + part.head_count > part.total_heads:
        first, end = part.first_head, part.first_head + part.head_count
        raise InvalidField(
            f"{field}.head_count", f"heads [{first}, {end}) are not among the {part.total_heads} of total_heads"
        )
    if part.item_bytes % (page_tokens * part.head_count):
        raise InvalidField(
            field,
            f"pages of {part.item_bytes} bytes cannot hold {page_tokens} tokens of {part.head_count} heads",
        )


def _check_inside(items: ItemArray, allocations: Sequence[Extent], field: str) -> None:
    extent = items.extent
    for allocation in allocations:
        same_place = (allocation.kind, allocation.device) == (extent.kind, extent.device)
        if same_place and allocation.address <= extent.address < allocation.end:
            if extent.end > allocation.end:
                raise InvalidField(field, f"{extent} goes past its allocation {allocation}")
            return
    raise InvalidField(field, f"{extent} is outside every allocation")
