"""Which worker sends what to which: a pure function of layouts and ranks.

Today both sides must have equal tensor and pipeline sizes, page sizes and head ranges; every other pair is refused by
name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kvservice.domain.errors import LayoutMismatch
from kvservice.domain.types import BufferGroup, Layout, Part, Rank, Topology


@dataclass(frozen=True, slots=True)
class Span:
    """What moves of one part along a link; `head_count` is 0 for parts not split by head."""

    group: str
    part: str
    layers: tuple[int, ...]
    sender_first_head: int
    receiver_first_head: int
    head_count: int


@dataclass(frozen=True, slots=True)
class End:
    """One side of a pair of engines: its shape and, by rank, its workers' ids and layouts (of the replica meant)."""

    topology: Topology
    workers: Mapping[Rank, tuple[str, Layout]]


@dataclass(frozen=True, slots=True)
class Link:
    """What one prefill worker sends to one decode worker."""

    sender: str
    receiver: str
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Wiring:
    """Links as rooms look them up: by worker, and by sender and receiver the groups that move."""

    senders_of: Mapping[str, Sequence[str]]
    receivers_of: Mapping[str, Sequence[str]]
    moved: Mapping[tuple[str, str], frozenset[str]]


def wiring_of(links: Iterable[Link]) -> Wiring:
    """The same for every room between two replicas."""
    senders_of: dict[str, list[str]] = {}
    receivers_of: dict[str, list[str]] = {}
    moved = {}
    for link in links:
        senders_of.setdefault(link.receiver, []).append(link.sender)
        receivers_of.setdefault(link.sender, []).append(link.receiver)
        moved[link.sender, link.receiver] = frozenset(span.group for span in link.spans)
    return Wiring(senders_of, receivers_of, moved)


def links_between(prefill: End, decode: End) -> tuple[Link, ...]:
    """The links of a prefill replica to a decode replica, ordered by sender.

    Raises LayoutMismatch that names the field and both values.
    """
    _must_equal("topology.tp_size", prefill.topology.tp_size, decode.topology.tp_size)
    _must_equal("topology.pp_size", prefill.topology.pp_size, decode.topology.pp_size)
    receivers = {(rank.pp_rank, rank.tp_rank): worker for rank, worker in decode.workers.items()}
    links = []
    for rank, (sender, layout) in sorted(prefill.workers.items()):
        receiver, other = receivers[rank.pp_rank, rank.tp_rank]
        links.append(Link(sender, receiver, spans_between(layout, other)))
    return tuple(links)


def spans_between(prefill: Layout, decode: Layout) -> tuple[Span, ...]:
    """What moves from one layout to another. Raises LayoutMismatch."""
    _must_equal("layout.model", prefill.model, decode.model)
    spans: list[Span] = []
    for name in sorted({group.name for group in (*prefill.groups, *decode.groups)}):
        ours, theirs = prefill.group(name), decode.group(name)
        if ours is None or theirs is None:
            present = ours or theirs
            assert present is not None
            if not present.allow_missing:
                side = "decode" if theirs is None else "prefill"
                raise _mismatch(
                    f"layout.groups[{name}]",
                    "absent" if ours is None else "present",
                    "absent" if theirs is None else "present",
                    f"the {side} side lacks it and it is not marked allow_missing",
                )
            continue
        spans.extend(_group_spans(ours, theirs))
    return tuple(spans)


def _group_spans(ours: BufferGroup, theirs: BufferGroup) -> list[Span]:
    at = f"layout.groups[{ours.name}]"
    _must_equal(f"{at}.kind", ours.kind.name, theirs.kind.name)
    _must_equal(f"{at}.page_tokens", ours.page_tokens, theirs.page_tokens)
    our_parts, their_parts = ({part.name: part for part in group.parts} for group in (ours, theirs))
    _must_equal(f"{at}.parts", sorted(our_parts), sorted(their_parts))
    return [_span(f"{at}.parts[{name}]", ours.name, our_parts[name], their_parts[name]) for name in sorted(our_parts)]


def _span(at: str, group: str, ours: Part, theirs: Part) -> Span:
    for name in ("dtype", "order", "total_heads", "first_head", "head_count", "item_bytes"):
        _must_equal(f"{at}.{name}", getattr(ours, name), getattr(theirs, name))
    layers = [sorted(region.layer for region in part.regions if region.layer is not None) for part in (ours, theirs)]
    _must_equal(f"{at}.layers", *layers)
    _must_equal(f"{at}.regions", len(ours.regions), len(theirs.regions))
    return Span(group, ours.name, tuple(layers[0]), 0, 0, ours.head_count)


def _must_equal(field: str, prefill: object, decode: object) -> None:
    if prefill != decode:
        raise _mismatch(field, prefill, decode, "this pair is not supported")


def _mismatch(field: str, prefill: object, decode: object, why: str) -> LayoutMismatch:
    prefill, decode = (getattr(value, "name", value) for value in (prefill, decode))
    return LayoutMismatch(
        f"{field}: prefill has {prefill}, decode has {decode}; {why}",
        field=field,
        prefill=f"{prefill}",
        decode=f"{decode}",
    )
