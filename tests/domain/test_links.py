"""Which worker sends what to which, and pairs that are refused by name."""

from dataclasses import replace

import pytest

from domain.plane import layout, paged, part, region, slots
from kvservice.domain.errors import LayoutMismatch
from kvservice.domain.links import End, links_between, spans_between
from kvservice.domain.types import Layout, Rank, Topology


def end(tp: int, side: str, pp: int = 1) -> End:
    workers = {Rank(0, stage, rank): (f"{side}{stage}{rank}", layout()) for stage in range(pp) for rank in range(tp)}
    return End(Topology(tp, pp, 1), workers)


def test_equal_sizes_pair_rank_by_rank_with_every_part() -> None:
    links = links_between(end(3, "p"), end(3, "d"))
    assert [(link.sender, link.receiver) for link in links] == [("p00", "d00"), ("p01", "d01"), ("p02", "d02")]
    assert [(span.group, span.part, span.layers, span.head_count) for span in links[1].spans] == [
        ("aux", "row", (), 0),
        ("kv", "k", (0, 1), 4),
        ("kv", "v", (0, 1), 4),
    ]


@pytest.mark.parametrize(("prefill", "decode"), [((2, 1), (1, 1)), ((1, 1), (2, 1)), ((1, 2), (1, 1))])
def test_unequal_sizes_are_refused(prefill: tuple[int, int], decode: tuple[int, int]) -> None:
    with pytest.raises(LayoutMismatch, match=r"topology\.(tp|pp)_size: prefill has \d, decode has \d"):
        links_between(end(prefill[0], "p", prefill[1]), end(decode[0], "d", decode[1]))


def group_of(**said: object) -> Layout:
    return layout(replace(paged(), **said), slots())


def part_of(**said: object) -> Layout:
    group = paged()
    return layout(replace(group, parts=(part("k", 1 << 32, **said), group.parts[1])), slots())


@pytest.mark.parametrize(
    ("other", "field", "ours", "theirs"),
    [
        (layout(model="n"), "layout.model", "m", "n"),
        (group_of(page_tokens=32), "layout.groups[kv].page_tokens", "16", "32"),
        (part_of(dtype="bfloat16"), "layout.groups[kv].parts[k].dtype", "float16", "bfloat16"),
        (part_of(total_heads=8), "layout.groups[kv].parts[k].total_heads", "4", "8"),
        (part_of(total_heads=4, head_count=2), "layout.groups[kv].parts[k].head_count", "4", "2"),
        (part_of(item_bytes=8192), "layout.groups[kv].parts[k].item_bytes", "4096", "8192"),
        (
            part_of(regions=(region(1, layer=0), region(2, layer=2))),
            "layout.groups[kv].parts[k].layers",
            "[0, 1]",
            "[0, 2]",
        ),
        (layout(paged()), "layout.groups[aux]", "present", "absent"),
        (layout(paged(), slots(), paged("swa")), "layout.groups[swa]", "absent", "present"),
    ],
)
def test_layouts_that_differ_are_refused_by_field_and_both_values(
    other: Layout, field: str, ours: str, theirs: str
) -> None:
    with pytest.raises(LayoutMismatch) as refused:
        spans_between(layout(), other)
    assert refused.value.metadata == {"field": field, "prefill": ours, "decode": theirs}
    assert refused.value.message.startswith(f"{field}: prefill has {ours}, decode has {theirs}")


def test_a_group_that_may_be_missing_is_not_sent() -> None:
    spans = spans_between(layout(), layout(paged(), slots(), paged("swa", allow_missing=True)))
    assert {span.group for span in spans} == {"kv", "aux"}


def test_addresses_and_pool_sizes_may_differ() -> None:
    moved = part_of(regions=(region(1 << 50, 7, layer=0), region(1 << 51, 7, layer=1)))
    assert spans_between(layout(), moved) == spans_between(layout(), layout())
