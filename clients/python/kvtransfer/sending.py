"""A sender's side of a room: chunks in, posts out, one Completion to each receiver."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvtransfer import v1 as pb
from kvtransfer.actions import ItemIndices, Items
from kvtransfer.errors import InvalidField
from kvtransfer.layout import LocalMemory
from kvtransfer.room import WorkerRoom


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages that one `send` brought: positions [first, first + count) of each group's list."""

    positions: dict[str, tuple[int, int]]
    ready: object | None
    last: bool


@dataclass(slots=True)
class Target:
    """One receiver's offer, and how much of it is served."""

    receiver: pb.Peer
    offer_id: int
    tokens: int
    first_token: dict[str, int]
    indices: dict[str, ItemIndices]
    todo: deque[int] = field(default_factory=deque)
    """Chunks to post."""
    done: int = 0
    """Chunks written."""
    moved: int = 0
    """Bytes written."""
    completion: pb.Completion | None = None
    """Goes along with the last post, so that the receiver hears of it without a detour."""


@dataclass(slots=True, kw_only=True)
class SenderRoom(WorkerRoom):
    """A join of a prefill worker."""

    tokens: int
    sent_tokens: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    targets: dict[str, Target] = field(default_factory=dict)
    """By receiver."""
    posts: dict[int, tuple[Target, int]] = field(default_factory=dict)
    """Posts that have not ended: target and chunk."""
    confirmed_epoch: int = 0
    """Registration under which the service confirmed the room."""
    drained: bool = True
    """No post ended otherwise than with nothing in flight."""
    completions: list[pb.Completion] = field(default_factory=list)
    partial: dict[int, int] = field(default_factory=dict)
    """Bytes written so far by posts that have not ended."""
    handed_back: bool = False

    @property
    def complete(self) -> bool:
        """The engine has sent its last chunk."""
        return bool(self.chunks) and self.chunks[-1].last

    @property
    def moved(self) -> int:
        """Bytes written so far."""
        return sum(target.moved for target in self.targets.values()) + sum(self.partial.values())

    def add_chunk(
        self,
        memory: LocalMemory,
        pages: Mapping[str, Sequence[int]],
        tokens: int | None,
        slots: Mapping[str, int],
        ready: object | None,
        last: bool,
    ) -> None:
        """Takes a chunk of the engine's. Raises InvalidField, and then takes nothing."""
        if self.complete:
            raise InvalidField("last", f"room {self.room} has had its last chunk")
        tokens = self._chunk_tokens(memory, pages, tokens, last)
        positions, checked = {}, {}
        for name, group in memory.groups.items():
            if group.kind != pb.BufferGroup.KIND_PAGED:
                continue
            first = len(self.pages.get(name, ()))
            count = _pages(self.sent_tokens + tokens, group.page_tokens) - first
            given = memory.check_indices(name, pages.get(name, ()), f"pages[{name}]", distinct=False)
            if len(given) != count:
                raise InvalidField(
                    f"pages[{name}]",
                    f"{tokens} tokens after {self.sent_tokens} take {count} pages of {group.page_tokens}, "
                    f"got {len(given)}",
                )
            positions[name], checked[name] = (first, count), given.tolist()
        check_names(pages, memory, pb.BufferGroup.KIND_PAGED, "pages")
        checked_slots = check_slots(memory, slots)
        missing = slot_groups(memory) - self.slots.keys() - checked_slots.keys()
        if last and missing:
            raise InvalidField(f"slots[{min(missing)}]", "must be given with or before the last chunk")
        for name, given in checked.items():
            self.pages.setdefault(name, []).extend(given)
        self.slots.update(checked_slots)
        self.sent_tokens += tokens
        self.chunks.append(Chunk(positions, ready, last))
        for target in self.targets.values():
            target.todo.append(len(self.chunks) - 1)

    def _chunk_tokens(
        self, memory: LocalMemory, pages: Mapping[str, Sequence[int]], tokens: int | None, last: bool
    ) -> int:
        left = self.tokens - self.sent_tokens
        if tokens is None:
            whole = (len(given) * memory.page_tokens(name) for name, given in pages.items() if name in memory.groups)
            tokens = left if last else next(whole, 0)
        if not 0 <= tokens <= left:
            raise InvalidField("tokens", f"must be in [0, {left}], the rest of {self.tokens}, got {tokens}")
        if last and tokens != left:
            raise InvalidField("tokens", f"the last chunk must bring the rest, {left} of {self.tokens}, got {tokens}")
        if not last:
            for name, group in memory.groups.items():
                if group.page_tokens and tokens % group.page_tokens:
                    raise InvalidField(
                        "tokens",
                        f"a chunk before the last must be a multiple of {group.page_tokens} "
                        f"(page_tokens of {name}), got {tokens}",
                    )
        return tokens

    def take_offers(self, offers: pb.RoomOffers) -> str | None:
        """Keeps each receiver's offer. Returns what does not fit, if anything."""
        for offer in offers.offers:
            wanted = offer.destination
            if wanted.tokens != self.tokens:
                receivers = ", ".join(offerer.receiver.worker_id for offerer in offer.receivers)
                return f"{receivers} offered {wanted.tokens} tokens, the sender has {self.tokens}"
            for offerer in offer.receivers:
                if offerer.receiver.worker_id not in self.targets:
                    self.targets[offerer.receiver.worker_id] = Target(
                        offerer.receiver,
                        offerer.offer_id,
                        wanted.tokens,
                        {group.group: group.first_token for group in wanted.groups},
                        {group.group: _array(group.indices) for group in wanted.groups},
                        deque(range(len(self.chunks))),
                    )
        return None

    def items(self, target: Target, number: int, memory: LocalMemory) -> tuple[Items, ...]:
        """What a chunk brings to a target."""
        chunk, items = self.chunks[number], []
        for name, (start, count) in chunk.positions.items():
            wanted = target.indices.get(name)
            if wanted is None or not wanted.size:
                continue
            first = target.first_token[name] // memory.page_tokens(name)
            begin, end = max(start, first), start + count
            if begin < end:
                sources = np.array(self.pages[name][begin:end], np.int32)
                items.append(Items(name, sources, wanted[begin - first : end - first]))
        if chunk.last:
            for name, slot in self.slots.items():
                if name in target.indices:
                    items.append(Items(name, np.array([slot], np.int32), target.indices[name]))
        return tuple(items)

    def progress_message(self) -> pb.Progress | None:
        progress = super(SenderRoom, self).progress_message()  # slots: a class cell would name the class before
        if progress is not None:
            progress.transferred_bytes = self.moved
            progress.completions.extend(self.completions)
        return progress

    def cleanup_message(self, untold: bool) -> pb.CleanupItem:
        item = super(SenderRoom, self).cleanup_message(untold)
        item.drained = self.drained
        return item

    def state_message(self, now: float) -> pb.RoomState:
        state = super(SenderRoom, self).state_message(now)
        state.peers.extend(target.receiver for target in self.targets.values())
        state.completions.extend(self.completions)
        return state

    def served(self, target: Target) -> bool:
        """Everything is written to a target."""
        return self.complete and target.done == len(self.chunks)

    def ends_with(self, target: Target, number: int) -> bool:
        """Whether nothing is left to write, to any target, once a chunk is written to this one."""
        alone = len(self.targets) == 1 and not self.posts
        return alone and self.complete and number == len(self.chunks) - 1 and target.done == number

    def completion(self, target: Target, worker_id: str, memory: LocalMemory) -> pb.Completion:
        """What was written to a target, which is its whole offer."""
        groups = [
            pb.GroupRanges(group=name, ranges=[pb.Range(first=0, count=len(indices))])
            for name, indices in target.indices.items()
            if len(indices) and name in memory.groups
        ]
        return pb.Completion(
            room=self.room,
            sender=worker_id,
            receiver=target.receiver.worker_id,
            offer_id=target.offer_id,
            sender_join_id=self.join_id,
            groups=groups,
            bytes=target.moved,
        )


def _array(indices: Sequence[int]) -> ItemIndices:
    return np.fromiter(indices, np.int32, len(indices))  # np.array looks at a message's list for 30 us first


def _pages(tokens: int, page_tokens: int) -> int:
    return -(-tokens // page_tokens)


def slot_groups(memory: LocalMemory) -> set[str]:
    """Names of the slot groups."""
    return {name for name, group in memory.groups.items() if group.kind == pb.BufferGroup.KIND_SLOT}


def check_names(given: Mapping[str, object], memory: LocalMemory, kind: pb.BufferGroup.Kind, field: str) -> None:
    """Raises InvalidField for a name that is not a group of that kind."""
    for name in given:
        if name not in memory.groups or memory.groups[name].kind != kind:
            names = [group for group, held in memory.groups.items() if held.kind == kind]
            raise InvalidField(f"{field}[{name}]", f"must be one of the layout's groups {names}, got {name!r}")


def check_slots(memory: LocalMemory, slots: Mapping[str, int]) -> dict[str, int]:
    """Slots by group. Raises InvalidField."""
    check_names(slots, memory, pb.BufferGroup.KIND_SLOT, "slots")
    return {name: int(memory.check_indices(name, [slot], f"slots[{name}]")[0]) for name, slot in slots.items()}
