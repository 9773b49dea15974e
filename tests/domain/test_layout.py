"""Layouts, destinations and completions that make no sense are refused by field and value."""

from dataclasses import replace

import pytest

from domain.plane import PAGE, POOL, destination, layout, paged, part, region, slots
from kvservice.domain.errors import InvalidField
from kvservice.domain.layout import check_destination, check_layout, uncovered
from kvservice.domain.types import BufferGroup, Completion, Destination, GroupIndices, Layout, MemoryKind, Order

K = "layout.groups[kv].parts[k]"


def with_part(**said: object) -> Layout:
    group = paged()
    return layout(replace(group, parts=(part("k", 1 << 32, **said), group.parts[1])))


def with_region(**said: object) -> Layout:
    return with_part(regions=(replace(region(1 << 32, layer=0), **said),))


def with_group(**said: object) -> Layout:
    return layout(replace(paged(), **said))


def test_a_good_layout_passes() -> None:
    check_layout(layout())


def test_an_address_may_use_all_64_bits() -> None:
    check_layout(with_region(address=(1 << 64) - POOL * 4096))


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (layout(model=""), "layout.model"),
        (Layout("m", (), region(1, 1, 1 << 20)), "layout.groups"),
        (layout(paged(), paged()), "layout.groups"),
        (replace(layout(), scratch=None), "layout.scratch"),
        (replace(layout(), scratch=region(1 << 41, 1, 1 << 19)), "layout.scratch"),
        (with_group(name="a b"), "layout.groups[a b].name"),
        (with_group(page_tokens=0), "layout.groups[kv].page_tokens"),
        (layout(replace(slots(), page_tokens=16)), "layout.groups[aux].page_tokens"),
        (with_group(parts=()), "layout.groups[kv].parts"),
        (with_part(dtype="Float 16"), f"{K}.dtype"),
        (with_part(item_bytes=0), f"{K}.item_bytes"),
        (with_part(item_bytes=4095), f"{K}.item_bytes"),
        (with_part(first_head=1), f"{K}.head_count"),
        (with_part(head_count=0), f"{K}.head_count"),
        (with_part(order=Order.WHOLE), f"{K}.total_heads"),
        (with_part(regions=()), f"{K}.regions"),
        (with_part(regions=(region(1, layer=1), region(2, layer=1))), f"{K}.regions"),
        (with_region(address=0), f"{K}.regions[0].address"),
        (with_region(layer=-1), f"{K}.regions[0].layer"),
        (with_region(item_count=0), f"{K}.regions[0].item_count"),
        (with_region(address=(1 << 64) - 4096), f"{K}.regions[0].item_count"),
        (with_region(item_stride=4095), f"{K}.regions[0].item_stride"),
        (with_region(device=1), f"{K}.regions[0].device"),
        (with_region(memory=MemoryKind.VRAM, device=-1), f"{K}.regions[0].device"),
    ],
)
def test_a_bad_layout_is_refused_by_field(bad: Layout, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_layout(bad)
    assert refused.value.field == field


def test_the_refusal_quotes_the_value() -> None:
    with pytest.raises(InvalidField, match=r"item_bytes must be a multiple of page_tokens \* head_count, got 4095"):
        check_layout(with_part(item_bytes=4095))


# --- destinations ---


def offered(tokens: int, kv: GroupIndices | None, aux: GroupIndices | None, prefix: int = 0) -> Destination:
    return Destination(tokens, prefix, tuple(group for group in (kv, aux) if group is not None))


def kv(*pages: int, first: int = 0) -> GroupIndices:
    return GroupIndices("kv", first, pages)


AUX = GroupIndices("aux", 0, (0,))


@pytest.mark.parametrize(
    "good",
    [
        destination(1, [0]),
        destination(PAGE, [0]),
        destination(PAGE + 1, [POOL - 1, 0]),
        destination(40, [5], prefix_tokens=32),
        offered(20, kv(first=0), AUX, prefix=20),  # all of it is held already: no page, the slot still moves
        offered(100, kv(1, 2, first=80), AUX, prefix=32),  # a window: only the last pages
    ],
)
def test_a_destination_lists_exactly_the_pages_it_needs(good: Destination) -> None:
    check_destination(layout(), good, 1000)


@pytest.mark.parametrize(
    ("bad", "field", "value"),
    [
        (destination(0, []), "join.destination.tokens", "0"),
        (destination(20, [3, 9], prefix_tokens=-16), "join.destination.prefix_tokens", "-16"),
        (destination(20, [3], prefix_tokens=32), "join.destination.prefix_tokens", "32"),
        (destination(40, [3, 9], prefix_tokens=8), "join.destination.prefix_tokens", "8"),
        (destination(20, [3]), "join.destination.groups[kv].indices", "1"),
        (destination(20, [3, 4, 5]), "join.destination.groups[kv].indices", "3"),
        (destination(20, [3, POOL]), "join.destination.groups[kv].indices", "64"),
        (destination(20, [3, -1]), "join.destination.groups[kv].indices", "-1"),
        (destination(20, [3, 3]), "join.destination.groups[kv].indices", "3"),
        (destination(20, [3, 9], slot=8), "join.destination.groups[aux].indices", "8"),
        (offered(20, kv(3, 9), GroupIndices("aux", 0, ())), "join.destination.groups[aux].indices", "0"),
        (offered(20, kv(3, 9), GroupIndices("aux", 16, (0,))), "join.destination.groups[aux].first_token", "16"),
        (offered(40, kv(3, first=16), AUX, prefix=32), "join.destination.groups[kv].first_token", "16"),
        (offered(40, kv(3, first=40), AUX), "join.destination.groups[kv].first_token", "40"),
        (offered(20, kv(3, 9), None), "join.destination.groups", "'aux'"),
        (offered(20, kv(3, 9), GroupIndices("swa", 0, (0,))), "join.destination.groups", "'swa'"),
        (Destination(20, 0, (kv(3, 9), kv(3, 9), AUX)), "join.destination.groups", "'kv'"),
    ],
)
def test_a_bad_destination_is_refused_by_field_and_value(bad: Destination, field: str, value: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_destination(layout(), bad, 1000)
    assert (refused.value.field, refused.value.metadata["value"]) == (field, value)


def test_more_indices_than_the_limit_are_refused() -> None:
    with pytest.raises(InvalidField, match="at most 2 indices"):
        check_destination(layout(), destination(20, [3, 9]), 2)


def test_a_duplicate_in_a_long_list_is_found_at_once() -> None:
    pool = 1 << 18
    wide = part("k", 1 << 32, regions=(region(1 << 32, pool),))
    big = layout(BufferGroup("kv", paged().kind, 1, False, (replace(wide, item_bytes=4, regions=wide.regions),)))
    pages = [*range(pool - 1), pool - 2]
    with pytest.raises(InvalidField, match=f"twice, got {pool - 2}"):
        check_destination(big, Destination(pool, 0, (kv(*pages),)), pool)


# --- completions ---


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ((("kv", ((0, 2),)), ("aux", ((0, 1),))), None),
        ((("kv", ((0, 1), (1, 1))), ("aux", ((0, 1),))), None),
        ((("kv", ((0, 1),)), ("aux", ((0, 1),))), "group kv: 1 of 2"),
        ((("kv", ((0, 2),)),), "group aux: 0 of 1"),
        ((("kv", ((0, 3),)), ("aux", ((0, 1),))), "group kv: 3 of 2"),
        ((("kv", ((0, 1), (0, 1))), ("aux", ((0, 1),))), "does not continue at 1"),
        ((("kv", ((1, 1), (0, 1))), ("aux", ((0, 1),))), "does not continue at 0"),
        ((("kv", ((0, 2), (2, 0))), ("aux", ((0, 1),))), "does not continue at 2"),
        ((("kv", ((0, 2),)), ("aux", ((0, 1),)), ("swa", ((0, 1),))), "group swa was not offered"),
    ],
)
def test_a_completion_covers_each_position_once(
    groups: tuple[tuple[str, tuple[tuple[int, int], ...]], ...], problem: str | None
) -> None:
    completion = Completion(7, "p", "d", 1, 2, groups, 0)
    found = uncovered(completion, destination(20, [3, 9]), frozenset({"kv", "aux"}))
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_a_group_that_does_not_move_need_not_be_covered() -> None:
    completion = Completion(7, "p", "d", 1, 2, (("kv", ((0, 2),)),), 0)
    assert uncovered(completion, destination(20, [3, 9]), frozenset({"kv"})) is None
