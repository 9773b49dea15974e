"""From a link and item indices to indices of prepared NIXL descriptors. Pure arithmetic: no NIXL, no clock.

Both sides of a link are cut into *tracks*: strided arrays of items that move as one descriptor each. A track is what
two regions, one on either side, have in common; regions that lie side by side on both sides, as in a page-major pool,
make one track. A prepared list holds all items of all tracks, track after track, so that items that follow each other
in a dense region are neighbours in the list: NIXL merges runs that are neighbours on both sides.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvtransfer import v1 as pb
from kvtransfer.actions import Items
from kvtransfer.errors import InvalidField

PIECE_BYTES = 32 << 20
"""Most bytes of a piece. A same-host write copies inside the call that posts it; 32 MiB take about 5 ms."""
PIECE_DESCRIPTORS = 4096
"""Most descriptors of a piece: at about 4 us each, scattered, about 16 ms."""

Indices = npt.NDArray[np.int32]
Table = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Lane:
    """Tracks that share their kinds of memory, and so a prepared list on either side."""

    sender_memory: pb.MemoryKind
    receiver_memory: pb.MemoryKind
    sender_table: Table
    """One row per track: address of item 0, bytes of an item, device, bytes from item to item, items. As the next."""
    receiver_table: Table


@dataclass(frozen=True, slots=True)
class Piece:
    """Descriptors that are posted together: `sender[i]` is written to `receiver[i]`."""

    lane: int
    """Position in `LinkPlan.lanes`."""
    sender: Indices
    receiver: Indices
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Strip:
    """The tracks of one group in one lane that are equally wide, by their positions in the lane's prepared lists."""

    lane: int
    nbytes: int
    """Bytes of one item in each track."""
    sender_first: Indices
    """Where item 0 of each track stands in the sender's prepared list, as a column. As the next."""
    receiver_first: Indices
    sender_items: int
    """Items that every track has. As the next."""
    receiver_items: int


class LinkPlan:
    """How items move along one link.

    Attributes:
        lanes: what to prepare, both sides.
        descriptors: group -> descriptors that one item takes.
        item_bytes: group -> bytes of one item.
    """

    lanes: tuple[Lane, ...]
    descriptors: dict[str, int]
    item_bytes: dict[str, int]

    def __init__(self, link: pb.Link, sender: pb.Layout, receiver: pb.Layout) -> None:
        """Plan `link` between two layouts.

        Raises:
            InvalidField: a span names what a layout lacks, or moves only some of an item's heads or bytes: this is not
                supported yet.
        """
        tracks = [track for span in link.spans for track in _span_tracks(span, sender, receiver)]
        by_lane: dict[tuple[pb.MemoryKind, pb.MemoryKind], list[_Track]] = {}
        for track in _fused(tracks):
            by_lane.setdefault((track.sender.memory, track.receiver.memory), []).append(track)
        self.lanes = tuple(
            Lane(
                *kinds,
                _table([(t.sender, t.nbytes) for t in members]),
                _table([(t.receiver, t.nbytes) for t in members]),
            )
            for kinds, members in by_lane.items()
        )
        self._strips: dict[str, list[_Strip]] = {span.group: [] for span in link.spans}
        for lane, members in enumerate(by_lane.values()):
            for group, strip in _strips(lane, members):
                self._strips[group].append(strip)
        self.descriptors = {group: sum(len(s.sender_first) for s in strips) for group, strips in self._strips.items()}
        self.item_bytes = {
            group: sum(s.nbytes * len(s.sender_first) for s in strips) for group, strips in self._strips.items()
        }

    def nbytes(self, items: Iterable[Items]) -> int:
        """Bytes that `items` take."""
        return sum(len(each.sender) * self.item_bytes[each.group] for each in items)

    def check(self, items: Iterable[Items]) -> None:
        """Check that `items` can move.

        Raises:
            InvalidField: a group outside the link, lists of unequal length, or an index outside a region.
        """
        for each in items:
            field = f"items[{each.group}]"
            if each.group not in self._strips:
                raise InvalidField(field, f"the link has no such group, only {', '.join(self._strips)}")
            if each.sender.shape != each.receiver.shape or each.sender.ndim != 1:
                raise InvalidField(field, f"shapes {each.sender.shape} of sender, {each.receiver.shape} of receiver")
            for strip in self._strips[each.group]:
                _check_range(f"{field}.sender", each.sender, strip.sender_items)
                _check_range(f"{field}.receiver", each.receiver, strip.receiver_items)

    def pieces(self, items: Sequence[Items]) -> Iterator[Piece]:
        """Cut checked `items` into pieces of at most `PIECE_BYTES`, or one item's track, and `PIECE_DESCRIPTORS`.

        Pieces are made one by one: a post of a million descriptors takes the memory of a few thousand.
        """
        waiting: list[Piece] = []
        for block in self._blocks(items):
            descriptors = sum(len(piece.sender) for piece in waiting) + len(block.sender)
            nbytes = sum(piece.nbytes for piece in waiting) + block.nbytes
            full = descriptors > PIECE_DESCRIPTORS or nbytes > PIECE_BYTES
            if waiting and (full or waiting[0].lane != block.lane):
                yield _joined(waiting)
                waiting = []
            waiting.append(block)
        if waiting:
            yield _joined(waiting)

    def _blocks(self, items: Sequence[Items]) -> Iterator[Piece]:
        """Rectangles of tracks by items, none larger than a piece may be, ordered by lane."""
        for lane in range(len(self.lanes)):
            for each in items:
                for strip in self._strips[each.group]:
                    if strip.lane == lane and len(each.sender):
                        yield from _rectangles(strip, *_ascending(each))


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a track."""

    address: int
    item_stride: int
    item_count: int
    memory: pb.MemoryKind
    device: int

    def continues(self, before: "_Side", nbytes: int) -> bool:
        """Whether each item lies right behind the same item of `before`, which has `nbytes`."""
        return self == _Side(
            before.address + nbytes, before.item_stride, before.item_count, before.memory, before.device
        )


@dataclass(frozen=True, slots=True)
class _Track:
    group: str
    nbytes: int
    """Bytes of one item."""
    sender: _Side
    receiver: _Side


def _span_tracks(span: pb.Span, sender: pb.Layout, receiver: pb.Layout) -> Iterator[_Track]:
    field = f"spans[{span.group}/{span.part}]"
    from_group, from_part = _find_part(span, sender, f"{field} of the sender")
    to_group, to_part = _find_part(span, receiver, f"{field} of the receiver")
    heads = (span.sender_first_head, span.receiver_first_head, from_part.head_count, to_part.head_count)
    if heads != (0, 0, span.head_count, span.head_count):
        raise InvalidField(
            f"{field}.head_count", f"only whole items can be moved, not {span.head_count} of their heads"
        )
    if from_group.page_tokens != to_group.page_tokens:
        raise InvalidField(
            f"{field}.page_tokens", f"pages of unequal size: {from_group.page_tokens} and {to_group.page_tokens} tokens"
        )
    for name in ("order", "item_bytes"):
        if getattr(from_part, name) != getattr(to_part, name):
            raise InvalidField(f"{field}.{name}", f"differs: {getattr(from_part, name)} and {getattr(to_part, name)}")
    from_regions, to_regions = _by_layer(from_part), _by_layer(to_part)
    for layer in span.layers or (None,):
        if layer not in from_regions or layer not in to_regions:
            raise InvalidField(f"{field}.layers", f"layer {layer} is missing on one side")
        yield _Track(span.group, from_part.item_bytes, _side(from_regions[layer]), _side(to_regions[layer]))


def _find_part(span: pb.Span, layout: pb.Layout, field: str) -> tuple[pb.BufferGroup, pb.Part]:
    for group in layout.groups:
        for part in group.parts:
            if (group.name, part.name) == (span.group, span.part):
                return group, part
    raise InvalidField(field, "no such part in the layout")


def _by_layer(part: pb.Part) -> dict[int | None, pb.Region]:
    return {region.layer if region.HasField("layer") else None: region for region in part.regions}


def _side(region: pb.Region) -> _Side:
    return _Side(region.address, region.item_stride, region.item_count, region.memory, region.device)


def _fused(tracks: list[_Track]) -> Iterator[_Track]:
    """Join tracks that lie side by side on both sides; ordered by the sender's addresses, group by group."""
    last: _Track | None = None
    for track in sorted(tracks, key=lambda t: (t.group, t.sender.memory, t.sender.device, t.sender.address)):
        if last is None:
            last = track
        elif (
            track.group == last.group
            and track.sender.continues(last.sender, last.nbytes)
            and track.receiver.continues(last.receiver, last.nbytes)
        ):
            last = _Track(last.group, last.nbytes + track.nbytes, last.sender, last.receiver)
        else:
            yield last
            last = track
    if last is not None:
        yield last


def _table(sides: list[tuple[_Side, int]]) -> Table:
    # Only a track of a single item can have been fused past its stride.
    rows = [(s.address, nbytes, s.device, max(s.item_stride, nbytes), s.item_count) for s, nbytes in sides]
    return np.array(rows, dtype=np.uint64)


def _strips(lane: int, tracks: list[_Track]) -> Iterator[tuple[str, _Strip]]:
    sender_first = _starts([track.sender.item_count for track in tracks])
    receiver_first = _starts([track.receiver.item_count for track in tracks])
    for group, nbytes in dict.fromkeys((track.group, track.nbytes) for track in tracks):
        members = [i for i, track in enumerate(tracks) if (track.group, track.nbytes) == (group, nbytes)]
        yield (
            group,
            _Strip(
                lane,
                nbytes,
                sender_first[members, None],
                receiver_first[members, None],
                min(tracks[i].sender.item_count for i in members),
                min(tracks[i].receiver.item_count for i in members),
            ),
        )


def _starts(counts: list[int]) -> Indices:
    if sum(counts) >= 2**31:
        raise InvalidField("layout", f"{sum(counts)} descriptors: NIXL takes indices below 2^31")
    return np.cumsum([0, *counts[:-1]], dtype=np.int32)


def _check_range(field: str, indices: npt.NDArray[np.integer], count: int) -> None:
    if not len(indices) or indices.view(f"u{indices.itemsize}").max() < count:  # a negative one is a very large one
        return
    at = int(np.flatnonzero((indices < 0) | (indices >= count))[0])
    raise InvalidField(f"{field}[{at}]", f"index {indices[at]} is outside the {count} items of the region")


def _ascending(items: Items) -> tuple[Indices, Indices]:
    """By the sender's index: what is contiguous on both sides then stands side by side, however it was listed."""
    sender, receiver = items.sender, items.receiver
    if len(sender) > 1 and np.any(sender[1:] < sender[:-1]):
        order = np.argsort(sender, kind="stable")
        sender, receiver = sender[order], receiver[order]
    return sender.astype(np.int32, copy=False), receiver.astype(np.int32, copy=False)


def _rectangles(strip: _Strip, sender: Indices, receiver: Indices) -> Iterator[Piece]:
    most = max(1, min(PIECE_DESCRIPTORS, PIECE_BYTES // strip.nbytes))
    tracks = len(strip.sender_first)
    # As many tracks together as a piece can take; if not even one, each is cut into parts of equal size.
    together = max(1, most // len(sender))
    parts = -(-len(sender) // most)
    size = -(-len(sender) // parts)
    for track in range(0, tracks, together):
        sender_first = strip.sender_first[track : track + together]
        receiver_first = strip.receiver_first[track : track + together]
        for item in range(0, len(sender), size):
            sources = (sender_first + sender[item : item + size]).ravel()
            targets = (receiver_first + receiver[item : item + size]).ravel()
            yield Piece(strip.lane, sources, targets, strip.nbytes * len(sources))


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return Piece(
        pieces[0].lane,
        np.concatenate([piece.sender for piece in pieces]),
        np.concatenate([piece.receiver for piece in pieces]),
        sum(piece.nbytes for piece in pieces),
    )
