"""A receiver's side of a room: an offer out, a Completion in from each sender."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kvtransfer import v1 as pb
from kvtransfer.errors import InvalidField
from kvtransfer.layout import LocalMemory
from kvtransfer.polls import KVPoll
from kvtransfer.room import WorkerRoom
from kvtransfer.sending import check_names, check_slots, slot_groups

log = logging.getLogger("kvtransfer")

MAX_INDICES = 262_144
"""Pages and slots of a room, over all its groups."""


@dataclass(slots=True, kw_only=True)
class ReceiverRoom(WorkerRoom):
    """A join of a decode worker."""

    destination: pb.Destination | None = None
    senders: dict[str, str] = field(default_factory=dict)
    """Instance by worker, once all are known."""
    completions: dict[str, pb.Completion] = field(default_factory=dict)
    """By sender; from whom is checked once the senders are known."""
    draining: bool = False
    """Asked to end: what has arrived is being consumed."""
    free_at: float | None = None
    """When the pages go back to the engine: their release is known, the settle time is running."""
    presumed: bool = False
    held: bool = False
    """The engine was told that its pages wait for proof."""

    def offer(
        self,
        memory: LocalMemory,
        tokens: int,
        pages: Mapping[str, Sequence[int]],
        slots: Mapping[str, int],
        prefix_tokens: int,
    ) -> None:
        """Names the pages to write to. Raises InvalidField, and then takes nothing."""
        if self.destination is not None:
            raise InvalidField("offer", f"room {self.room} has its offer already")
        if tokens < 1:
            raise InvalidField("tokens", f"must be at least 1, got {tokens}")
        if not 0 <= prefix_tokens <= tokens:
            raise InvalidField("prefix_tokens", f"must be in [0, {tokens}], got {prefix_tokens}")
        check_names(pages, memory, pb.BufferGroup.KIND_PAGED, "pages")
        destination = pb.Destination(tokens=tokens, prefix_tokens=prefix_tokens)
        checked: dict[str, list[int]] = {}
        for name, group in memory.groups.items():
            if group.kind != pb.BufferGroup.KIND_PAGED or (group.allow_missing and name not in pages):
                continue
            page = group.page_tokens
            if prefix_tokens % page and prefix_tokens != tokens:
                raise InvalidField(
                    "prefix_tokens",
                    f"must be a multiple of {page} (page_tokens of {name}) or all {tokens} tokens, got {prefix_tokens}",
                )
            expected = 0 if prefix_tokens == tokens else -(-tokens // page) - prefix_tokens // page
            given = memory.check_indices(name, pages.get(name, ()), f"pages[{name}]")
            if len(given) != expected:
                raise InvalidField(
                    f"pages[{name}]",
                    f"{tokens - prefix_tokens} tokens take {expected} pages of {page}, got {len(given)}",
                )
            first = 0 if prefix_tokens == tokens else prefix_tokens
            checked[name] = given.tolist()
            destination.groups.append(pb.GroupIndices(group=name, first_token=first, indices=checked[name]))
        checked_slots = check_slots(memory, slots)
        for name in sorted(slot_groups(memory)):
            if name not in checked_slots:
                raise InvalidField(f"slots[{name}]", "must be given with the offer")
            destination.groups.append(pb.GroupIndices(group=name, indices=[checked_slots[name]]))
        listed = sum(len(group.indices) for group in destination.groups)
        if listed > MAX_INDICES:
            raise InvalidField("pages", f"must be at most {MAX_INDICES} with the slots, got {listed}")
        self.destination, self.pages, self.slots = destination, checked, checked_slots

    def join_message(self) -> pb.Join:
        join = super(ReceiverRoom, self).join_message()  # slots: a class cell would name the class before
        if self.destination is not None:
            join.destination.CopyFrom(self.destination)
        return join

    def progress_message(self) -> pb.Progress | None:
        if self.poll is KVPoll.TRANSFERRING:
            return None  # the service knows it from the senders
        progress = super(ReceiverRoom, self).progress_message()
        if progress is not None and self.poll is KVPoll.SUCCESS:
            progress.completions.extend(self.completions.values())
        return progress

    def state_message(self, now: float) -> pb.RoomState:
        state = super(ReceiverRoom, self).state_message(now)
        state.peers.extend(pb.Peer(worker_id=name, instance_id=instance) for name, instance in self.senders.items())
        state.completions.extend(self.completions.values())
        return state

    def take(self, completion: pb.Completion, worker_id: str) -> bool:
        """Keeps a completion of this join. False if it is of another offer or room, or no news."""
        ours = (completion.room, completion.receiver, completion.offer_id) == (self.room, worker_id, self.join_id)
        if not ours or self.poll.final or completion.sender in self.completions:
            return False
        self.completions[completion.sender] = completion
        return True

    def take_release(self, release: pb.Release, now: float, settle: float) -> bool:
        """What the service says of the pages. True if it is now known when they go back, see `free_at`."""
        # A join that a restarted service does not know is free all the same if its senders have completed it.
        proven = release.state == pb.Release.STATE_UNKNOWN and self.poll is KVPoll.SUCCESS
        if self.free_at is None and (release.state == pb.Release.STATE_FREE or proven):
            # Any end but a Completion may leave bytes in sockets: the mover keeps reading for the settle time.
            quiet = self.poll is KVPoll.SUCCESS or self.destination is None
            self.free_at = now if quiet else now + settle
            self.presumed = release.presumed
            return True
        if self.free_at is None and release.state == pb.Release.STATE_QUARANTINED and not self.held:
            self.held = True
            log.warning(
                "room %d: its pages stay held: %s went without proof that its writes are over; name its process in "
                "exited_instances of its successor once it has exited",
                self.room,
                ", ".join(release.waiting_for),
            )
        return False

    def holds_all(self) -> bool:
        """A completion of each sender is there."""
        return bool(self.senders) and self.senders.keys() <= self.completions.keys()

    def uncovered(self, moved: Mapping[str, Collection[str]]) -> tuple[str, str] | None:
        """The sender whose completion does not cover the offer, and why. `moved`: groups that each sender moves."""
        assert self.destination is not None
        for sender in self.senders:
            ranges = {group.group: group.ranges for group in self.completions[sender].groups}
            for group in self.destination.groups:
                if group.group not in moved[sender]:
                    continue
                position = 0
                for span in ranges.get(group.group, ()):
                    position = position + span.count if span.first == position and span.count > 0 else -1
                    if position < 0:
                        break
                if position != len(group.indices):
                    return (
                        sender,
                        f"group {group.group}: what was written does not cover the {len(group.indices)} items",
                    )
        return None
