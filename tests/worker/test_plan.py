"""A plan's descriptors move the same bytes as a copy token by token, head by head and layer by layer."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvtransfer import v1 as pb
from kvtransfer.actions import Items
from kvtransfer.errors import InvalidField
from kvtransfer.plan import PIECE_BYTES, PIECE_DESCRIPTORS, LinkPlan, Table

from .pools import GroupSpec, PartSpec, Pool, build, copy_by_token, describe, link

ARRANGEMENTS = ("separate", "gapped", "layer_pairs", "page_major", "page_major_gapped")


def expand(table: Table) -> list[tuple[int, int]]:
    """(address, bytes) of each descriptor of a prepared list, as NIXL reads a strided table."""
    return [
        (int(address + item * stride), int(nbytes))
        for address, nbytes, _, stride, count in table.tolist()
        for item in range(count)
    ]


def move(plan: LinkPlan, items: list[Items]) -> int:
    """Carry a plan out in this process; returns the bytes moved."""
    lists = [(expand(lane.sender_table), expand(lane.receiver_table)) for lane in plan.lanes]
    moved = 0
    for piece in plan.pieces(items):
        assert len(piece.sender) <= PIECE_DESCRIPTORS
        assert piece.nbytes <= PIECE_BYTES
        before = moved
        for s, r in zip(piece.sender.tolist(), piece.receiver.tolist(), strict=True):
            (source, nbytes), (target, room) = lists[piece.lane][0][s], lists[piece.lane][1][r]
            assert nbytes == room
            ctypes.memmove(target, source, nbytes)
            moved += nbytes
        assert moved - before == piece.nbytes
    return moved


@st.composite
def group_pairs(draw: st.DrawFn, name: str) -> tuple[GroupSpec, GroupSpec]:
    """The same group on two sides, which differ in arrangement and in the number of items."""
    page_tokens = draw(st.sampled_from([0, 1, 3, 16]))
    orders = ["token_head", "head_token", "whole"] if page_tokens else ["whole"]
    parts = []
    for part in draw(st.lists(st.sampled_from(["k", "v", "scale"]), min_size=1, max_size=3, unique=True)):
        order = draw(st.sampled_from(orders))
        heads = 0 if order == "whole" else draw(st.integers(1, 3))
        parts.append(PartSpec(part, order, heads, draw(st.integers(1, 5))))
    layers = tuple(sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=3))))
    sender, receiver = (
        GroupSpec(
            name, page_tokens, tuple(parts), layers, draw(st.integers(1, 12)), draw(st.sampled_from(ARRANGEMENTS))
        )
        for _ in range(2)
    )
    return sender, receiver


@settings(max_examples=150, deadline=None)
@given(pairs=st.tuples(group_pairs("kv"), group_pairs("aux")), data=st.data())
def test_a_plan_moves_what_a_copy_by_token_moves(
    pairs: tuple[tuple[GroupSpec, GroupSpec], ...], data: st.DataObject
) -> None:
    senders = [build(sender, seed) for seed, (sender, _) in enumerate(pairs)]
    receivers = [build(receiver, 100 + seed) for seed, (_, receiver) in enumerate(pairs)]
    expected = [build(receiver, 100 + seed) for seed, (_, receiver) in enumerate(pairs)]
    source, target = describe(senders), describe(receivers)
    plan = LinkPlan(link("a", "b", source.layout), source.layout, target.layout)
    items = []
    for sender, want in zip(senders, expected, strict=True):
        count = data.draw(st.integers(0, min(sender.spec.items, want.spec.items)))
        from_items = data.draw(st.permutations(range(sender.spec.items)))[:count]
        to_items = data.draw(st.permutations(range(want.spec.items)))[:count]
        items.append(Items(sender.spec.name, np.array(from_items, np.int64), np.array(to_items, np.int32)))
        copy_by_token(sender.views, want, zip(from_items, to_items, strict=True))

    plan.check(items)
    moved = move(plan, items)

    assert moved == plan.nbytes(items) == sum(len(i.sender) * source.item_bytes(i.group) for i in items)
    for got, want in zip(receivers, expected, strict=True):
        for got_array, want_array in zip(got.backing, want.backing, strict=True):
            np.testing.assert_array_equal(got_array, want_array)


KV = GroupSpec("kv", 16, (PartSpec("k", "token_head", 2, 8), PartSpec("v", "token_head", 2, 8)), (0, 1, 2), 40)


def plan_of(sender: GroupSpec, receiver: GroupSpec) -> tuple[LinkPlan, tuple[Pool, Pool]]:
    pools = build(sender, 1), build(receiver, 2)
    source, target = describe(pools[:1]), describe(pools[1:])
    return LinkPlan(link("a", "b", source.layout), source.layout, target.layout), pools


@pytest.mark.parametrize(
    ("sender", "receiver", "descriptors"),
    [
        ("separate", "separate", 6),
        ("page_major", "page_major", 1),
        ("page_major", "page_major_gapped", 1),
        ("layer_pairs", "layer_pairs", 3),
        ("layer_pairs", "page_major", 3),
        ("page_major", "separate", 6),
    ],
)
def test_regions_that_lie_side_by_side_on_both_sides_make_one_descriptor(
    sender: str, receiver: str, descriptors: int
) -> None:
    plan, pools = plan_of(replace(KV, arrangement=sender), replace(KV, arrangement=receiver))
    assert plan.descriptors == {"kv": descriptors}
    assert sum(len(piece.sender) for piece in plan.pieces([some_items(5)])) == 5 * descriptors
    assert len(pools) == 2


def some_items(count: int) -> Items:
    return Items("kv", np.arange(count), np.arange(count))


def test_pages_in_any_order_leave_contiguous_runs_contiguous() -> None:
    plan, _pools = plan_of(KV, KV)
    order = np.random.default_rng(0).permutation(20)
    shuffled = list(plan.pieces([Items("kv", order, order + 3)]))
    ordered = list(plan.pieces([Items("kv", np.arange(20), np.arange(20) + 3)]))
    for got, want in zip(shuffled, ordered, strict=True):
        np.testing.assert_array_equal(got.sender, want.sender)
        np.testing.assert_array_equal(got.receiver, want.receiver)


def test_pieces_are_bounded_and_even() -> None:
    page = 1 << 20
    wide = GroupSpec("kv", 1, (PartSpec("kv", "whole", 0, page),), (0, 1), 70)
    plan, _pools = plan_of(wide, wide)
    pieces = list(plan.pieces([some_items(70)]))
    assert [piece.nbytes // page for piece in pieces] == [24, 24, 22] * 2

    narrow = GroupSpec("kv", 1, (PartSpec("kv", "whole", 0, 8),), tuple(range(3)), 2 * PIECE_DESCRIPTORS + 2)
    plan, _pools = plan_of(narrow, narrow)
    third = (2 * PIECE_DESCRIPTORS + 2) // 3
    assert [len(piece.sender) for piece in plan.pieces([some_items(3 * third)])] == [third] * 9
    assert [len(piece.sender) for piece in plan.pieces([some_items(PIECE_DESCRIPTORS // 3)])] == [
        PIECE_DESCRIPTORS // 3 * 3
    ]


def test_an_item_larger_than_a_piece_goes_alone() -> None:
    layout = pb.Layout(
        groups=[pb.BufferGroup(name="kv", kind=pb.BufferGroup.KIND_SLOT, parts=[whole_part(PIECE_BYTES + 1)])]
    )
    plan = LinkPlan(link("a", "b", layout), layout, layout)
    assert [piece.nbytes for piece in plan.pieces([some_items(2)])] == [PIECE_BYTES + 1] * 2


def whole_part(item_bytes: int, memory: pb.MemoryKind = pb.MEMORY_KIND_DRAM, device: int = 0) -> pb.Part:
    # Bit 63 of an address may be set.
    region = pb.Region(address=2**63 + 4096, item_count=4, item_stride=item_bytes, memory=memory, device=device)
    return pb.Part(name="kv", dtype="uint8", order=pb.Part.ORDER_WHOLE, item_bytes=item_bytes, regions=[region])


def test_kinds_of_memory_get_lists_of_their_own() -> None:
    def layout(kv_memory: pb.MemoryKind, device: int) -> pb.Layout:
        return pb.Layout(
            groups=[
                pb.BufferGroup(
                    name="kv", kind=pb.BufferGroup.KIND_PAGED, page_tokens=1, parts=[whole_part(64, kv_memory, device)]
                ),
                pb.BufferGroup(name="aux", kind=pb.BufferGroup.KIND_SLOT, parts=[whole_part(8)]),
            ]
        )

    sender, receiver = layout(pb.MEMORY_KIND_VRAM, 0), layout(pb.MEMORY_KIND_VRAM, 3)
    plan = LinkPlan(link("a", "b", sender), sender, receiver)
    kinds = {(lane.sender_memory, lane.receiver_memory) for lane in plan.lanes}
    assert kinds == {(pb.MEMORY_KIND_VRAM,) * 2, (pb.MEMORY_KIND_DRAM,) * 2}
    vram = next(lane for lane in plan.lanes if lane.sender_memory == pb.MEMORY_KIND_VRAM)
    assert vram.receiver_table.tolist() == [[2**63 + 4096, 64, 3, 64, 4]]
    items = [some_items(2), Items("aux", np.array([1]), np.array([3]))]
    assert sorted(piece.nbytes for piece in plan.pieces(items)) == [8, 128]


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (Items("kv", np.array([0, 40]), np.array([0, 1])), r"items\[kv\].sender\[1\]: index 40"),
        (Items("kv", np.array([0, 1]), np.array([-1, 1])), r"items\[kv\].receiver\[0\]: index -1"),
        (Items("kv", np.array([0, 1]), np.array([1])), r"items\[kv\]: shapes \(2,\) of sender"),
        (Items("swa", np.array([0]), np.array([0])), r"items\[swa\]: the link has no such group, only kv"),
    ],
)
def test_items_outside_the_link_are_refused_by_name(items: Items, words: str) -> None:
    plan, _pools = plan_of(KV, KV)
    with pytest.raises(InvalidField, match=words):
        plan.check([items])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sender_first_head": 1}, "head_count: only whole items"),
        ({"head_count": 1}, "head_count: only whole items"),
        ({"part": "q"}, "no such part"),
        ({"layers": [7]}, "layer 7 is missing"),
    ],
)
def test_a_span_that_is_not_supported_is_refused_by_name(change: dict[str, object], words: str) -> None:
    pool = build(KV, 1)
    memory = describe([pool])
    one = link("a", "b", memory.layout)
    one.spans[0].MergeFrom(pb.Span(**change)) if "layers" not in change else one.spans[0].layers.append(7)
    with pytest.raises(InvalidField, match=words):
        LinkPlan(one, memory.layout, memory.layout)


def test_pages_of_unequal_size_are_refused_by_name() -> None:
    with pytest.raises(InvalidField, match="page_tokens: pages of unequal size: 16 and 8 tokens"):
        plan_of(KV, replace(KV, page_tokens=8))
