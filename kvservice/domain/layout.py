"""Whether a layout makes sense by itself, and whether a destination or a completion fits one."""

import re
from collections.abc import Sequence
from itertools import pairwise

from kvservice.domain.errors import InvalidField
from kvservice.domain.types import (
    BufferGroup,
    Completion,
    Destination,
    GroupIndices,
    GroupKind,
    Layout,
    MemoryKind,
    Order,
    Part,
    Region,
)

MAX_GROUPS = 32
MAX_PARTS = 32
MAX_REGIONS = 8192  # over all parts of a layout
MAX_TOKENS = 2**31 - 1
MIN_SCRATCH = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_DTYPE = re.compile(r"[a-z0-9_]{1,32}")


def check_layout(layout: Layout) -> None:
    """Raises InvalidField that names the first bad field of `layout`."""
    if not 1 <= len(layout.model) <= 256:
        raise InvalidField("layout.model", "must have 1 to 256 characters", layout.model)
    if not 1 <= len(layout.groups) <= MAX_GROUPS:
        raise InvalidField("layout.groups", f"must have 1 to {MAX_GROUPS} entries", len(layout.groups))
    _check_unique("layout.groups", [group.name for group in layout.groups])
    for group in layout.groups:
        _check_group(group)
    if sum(len(part.regions) for group in layout.groups for part in group.parts) > MAX_REGIONS:
        raise InvalidField("layout.groups", f"must have at most {MAX_REGIONS} regions in all")
    if layout.scratch is None:
        raise InvalidField("layout.scratch", "must be set")
    _check_region("layout.scratch", layout.scratch, layout.scratch.item_stride)
    if layout.scratch.item_count * layout.scratch.item_stride < MIN_SCRATCH:
        raise InvalidField(
            "layout.scratch",
            f"must cover at least {MIN_SCRATCH} bytes",
            layout.scratch.item_count * layout.scratch.item_stride,
        )


def _check_group(group: BufferGroup) -> None:
    at = f"layout.groups[{group.name}]"
    if not _NAME.fullmatch(group.name):
        raise InvalidField(f"{at}.name", "must be 1 to 63 of letters, digits, '_', '.' and '-'", group.name)
    if group.kind is GroupKind.PAGED and not 1 <= group.page_tokens <= 65536:
        raise InvalidField(f"{at}.page_tokens", "must be in [1, 65536]", group.page_tokens)
    if group.kind is GroupKind.SLOT and group.page_tokens != 0:
        raise InvalidField(f"{at}.page_tokens", "must be 0 for a slot group", group.page_tokens)
    if not 1 <= len(group.parts) <= MAX_PARTS:
        raise InvalidField(f"{at}.parts", f"must have 1 to {MAX_PARTS} entries", len(group.parts))
    _check_unique(f"{at}.parts", [part.name for part in group.parts])
    for part in group.parts:
        _check_part(f"{at}.parts[{part.name}]", group, part)


def _check_part(at: str, group: BufferGroup, part: Part) -> None:
    if not _NAME.fullmatch(part.name):
        raise InvalidField(f"{at}.name", "must be 1 to 63 of letters, digits, '_', '.' and '-'", part.name)
    if not _DTYPE.fullmatch(part.dtype):
        raise InvalidField(f"{at}.dtype", "must be an ml_dtypes name such as 'bfloat16'", part.dtype)
    if not 1 <= part.item_bytes <= 1 << 32:
        raise InvalidField(f"{at}.item_bytes", "must be in [1, 2^32]", part.item_bytes)
    if part.order is Order.WHOLE:
        if (part.total_heads, part.first_head, part.head_count) != (0, 0, 0):
            raise InvalidField(f"{at}.total_heads", "and the head range must be 0 for ORDER_WHOLE", part.total_heads)
    else:
        if part.head_count < 1 or part.first_head < 0 or part.first_head + part.head_count > part.total_heads:
            heads = f"[{part.first_head}, {part.first_head + part.head_count})"
            raise InvalidField(f"{at}.head_count", f"must give a range of heads in [0, {part.total_heads})", heads)
        if part.item_bytes % (part.head_count * max(group.page_tokens, 1)):
            raise InvalidField(f"{at}.item_bytes", "must be a multiple of page_tokens * head_count", part.item_bytes)
    if not part.regions:
        raise InvalidField(f"{at}.regions", "must not be empty")
    layers = [region.layer for region in part.regions]
    if len(set(layers)) != len(layers):
        raise InvalidField(f"{at}.regions", "must each have a layer of its own", layers)
    for index, region in enumerate(part.regions):
        _check_region(f"{at}.regions[{index}]", region, part.item_bytes)


def _check_region(at: str, region: Region, item_bytes: int) -> None:
    if region.layer is not None and not 0 <= region.layer <= 65535:
        raise InvalidField(f"{at}.layer", "must be in [0, 65535]", region.layer)
    if region.address == 0:
        raise InvalidField(f"{at}.address", "must not be 0", region.address)
    if not 1 <= region.item_count <= 2**31 - 1:
        raise InvalidField(f"{at}.item_count", "must be in [1, 2^31)", region.item_count)
    if region.item_stride < item_bytes:
        raise InvalidField(f"{at}.item_stride", f"must be at least item_bytes ({item_bytes})", region.item_stride)
    if region.address + (region.item_count - 1) * region.item_stride + item_bytes > 1 << 64:
        raise InvalidField(f"{at}.item_count", "runs past the address space", region.item_count)
    if region.device < 0 or (region.memory is MemoryKind.DRAM and region.device != 0):
        raise InvalidField(f"{at}.device", "must be 0 for DRAM, a device ordinal for VRAM", region.device)


def _check_unique(at: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidField(at, "must have unique names", twice)


def check_destination(layout: Layout, destination: Destination, max_indices: int) -> None:
    """Raises InvalidField where a receiver's destination does not fit its own layout."""
    at, tokens, prefix = "join.destination", destination.tokens, destination.prefix_tokens
    if tokens < 1:
        raise InvalidField(f"{at}.tokens", "must be at least 1", tokens)
    if not 0 <= prefix <= tokens:
        raise InvalidField(f"{at}.prefix_tokens", f"must be in [0, {tokens}]", prefix)
    if sum([len(group.indices) for group in destination.groups]) > max_indices:
        raise InvalidField(f"{at}.groups", f"must have at most {max_indices} indices in all")
    if len(destination.groups) > MAX_GROUPS:
        raise InvalidField(f"{at}.groups", f"must have at most {MAX_GROUPS} entries", len(destination.groups))
    names = [group.group for group in destination.groups]
    _check_unique(f"{at}.groups", names)
    for listed in destination.groups:
        group = layout.group(listed.group)
        if group is None:
            raise InvalidField(f"{at}.groups", "must name groups of the layout", listed.group)
        _check_indices(group, destination, listed)
    for group in layout.groups:
        if group.name not in names and not group.allow_missing:
            raise InvalidField(f"{at}.groups", "must list every group of the layout; missing", group.name)


def _check_indices(group: BufferGroup, destination: Destination, listed: GroupIndices) -> None:
    at, first_token, indices = f"join.destination.groups[{group.name}]", listed.first_token, listed.indices
    if group.kind is GroupKind.SLOT:
        expected = 1
        if first_token != 0:
            raise InvalidField(f"{at}.first_token", "must be 0 for a slot group", first_token)
    elif destination.prefix_tokens == destination.tokens:
        expected = 0
    else:
        page = group.page_tokens
        if destination.prefix_tokens % page:
            raise InvalidField(
                "join.destination.prefix_tokens",
                f"must be a multiple of {page} (page_tokens of {group.name}) or all of the tokens",
                destination.prefix_tokens,
            )
        if first_token % page or not destination.prefix_tokens <= first_token <= destination.tokens:
            raise InvalidField(
                f"{at}.first_token",
                f"must be a multiple of page_tokens ({page}) in [{destination.prefix_tokens}, {destination.tokens}]",
                first_token,
            )
        expected = -(-destination.tokens // page) - first_token // page
    if len(indices) != expected:
        raise InvalidField(
            f"{at}.indices", f"must list exactly {expected} for {destination.tokens} tokens", len(indices)
        )
    if not indices:
        return
    if min(indices) < 0 or max(indices) >= group.item_count:
        bad = next(index for index in indices if not 0 <= index < group.item_count)
        raise InvalidField(f"{at}.indices", f"must be in [0, {group.item_count})", bad)
    if len(set(indices)) != len(indices):
        ordered = sorted(indices)
        bad = next(index for index, following in pairwise(ordered) if index == following)
        raise InvalidField(f"{at}.indices", "must not name an item twice", bad)


def uncovered(completion: Completion, destination: Destination, moved: frozenset[str]) -> str | None:
    """Why a completion does not cover the moved groups of a destination, each position once; None if it does."""
    ranges = dict(completion.groups)
    if len(ranges) != len(completion.groups):
        return "a group is named twice"
    for group in destination.groups:
        if group.group not in moved:
            continue
        position = 0
        for first, count in ranges.pop(group.group, ()):
            if first != position or count < 1:
                return f"group {group.group}: range [{first}, {first + count}) does not continue at {position}"
            position += count
        if position != len(group.indices):
            return f"group {group.group}: {position} of {len(group.indices)} items were written"
    for name in ranges:
        return f"group {name} was not offered"
    return None
