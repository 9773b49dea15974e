"""One room's state machine.

Polls only move forward. Whatever ends a room early only *asks* it to end: each joined receiver then consumes what has
arrived and answers once, so that a sender killed after its last write loses nothing and no verdict ever flips.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kvservice.domain.errors import JoinConflict, RoomReused
from kvservice.domain.lateness import timeout
from kvservice.domain.layout import uncovered
from kvservice.domain.links import Wiring, wiring_of
from kvservice.domain.participant import Participant
from kvservice.domain.types import (
    Completion,
    Destination,
    Failure,
    FailureReason,
    Join,
    Offer,
    Peer,
    Poll,
    Progress,
    Role,
    Side,
    Timeouts,
)

UNLINKED = wiring_of(())


class Room:
    """A transfer, from its first join until it is forgotten."""

    def __init__(self, room: int, sequence: int, now: float, timeouts: Timeouts, vote: float) -> None:
        self.room = room
        self.sequence = sequence  # order of opening, for listing
        self.opened = self.updated = now
        self.revision = 0
        self.changed = True  # since the control plane last looked
        self.poll = Poll.BOOTSTRAPPING
        self.failure: Failure | None = None
        self.prefill: Side | None = None
        self.decode: Side | None = None
        self.participants: dict[str, Participant] = {}
        self.tokens = 0
        self.request_id = ""
        self.traceparent = ""
        self.linked = False
        self.closed_at: float | None = None
        self.dropped = 0  # reports, completions and cleanups of other joins
        self._wiring = UNLINKED  # who feeds whom: shared with all rooms between the same replicas
        self._ungranted = False  # some sender may have become free to write
        self._timeouts = timeouts
        self._vote = vote
        self._phase_since = now
        self._vote_due = 0.0

    # --- joining ---

    def join(self, peer: Peer, epoch: int, role: Role, join: Join, now: float) -> None:
        """Enters a worker, or repeats its entry; to be settled then. Raises RoomReused, JoinConflict."""
        participant = self._participant(peer, role, now)
        if participant.joined:
            self._repeat(participant, peer, join)
        else:
            self._enter(participant, peer, join, now)
        self.registered(participant, epoch, now)
        if participant.destination is None and join.destination is not None and not participant.poll.final:
            participant.destination = join.destination
            self.tokens = self.tokens or join.destination.tokens
            self._mark(participant, now)
            self._touch(self.senders_of(peer.worker_id))
            self._ungranted = True

    def _participant(self, peer: Peer, role: Role, now: float) -> Participant:
        participant = self.participants.get(peer.worker_id)
        if participant is None:
            participant = self.participants[peer.worker_id] = Participant(peer, role, now)
        return participant

    def registered(self, participant: Participant, epoch: int, now: float) -> None:
        """A participant's worker speaks under a registration, perhaps a new one."""
        participant.gone = False
        if participant.epoch != epoch:
            participant.epoch = epoch
            self._mark(participant, now)

    def _enter(self, participant: Participant, peer: Peer, join: Join, now: float) -> None:
        participant.join_id = join.join_id
        participant.peer = peer
        participant.peer_engine_id = join.peer_engine_id
        if join.timeouts is not None:
            self._timeouts = self._timeouts.least(join.timeouts)
        self.request_id = self.request_id or join.request_id
        self.traceparent = self.traceparent or join.traceparent
        if participant.role is Role.DECODE and self.ending:
            participant.poll = Poll.FAILED
        self._mark(participant, now)
        self._touch(self.receivers_of(peer.worker_id))
        self._ungranted = True

    def _repeat(self, participant: Participant, peer: Peer, join: Join) -> None:
        if (participant.join_id, participant.instance_id) != (join.join_id, peer.instance_id):
            raise RoomReused(
                f"room {self.room} has another join of worker {peer.worker_id}", room=self.room, worker=peer.worker_id
            )
        if participant.released:
            return
        if join.peer_engine_id != participant.peer_engine_id:
            raise JoinConflict(
                f"room {self.room} was joined with peer engine {participant.peer_engine_id!r} before, "
                f"got {join.peer_engine_id!r}",
                room=self.room,
            )
        held = participant.destination
        if held is not None and join.destination is not None and held != join.destination:
            raise JoinConflict(f"room {self.room} was joined with another destination before", room=self.room)

    def turn_away(self, peer: Peer, role: Role, join: Join, now: float) -> bool:
        """Answers a join of a closed room. True if it is the first, which is told FAILED. Raises RoomReused."""
        participant = self.participants.get(peer.worker_id)
        if participant is not None and participant.joined:
            self._repeat(participant, peer, join)
            return False
        if self.poll is not Poll.FAILED:
            raise RoomReused(f"room {self.room} ended a short while ago", room=self.room)
        # No write can land in a room that has closed: the join counts as released, so that Cleanup says FREE.
        self._enter_ended(peer, 0, role, join.join_id, now)
        return True

    def bury(self, peer: Peer, epoch: int, role: Role, join_id: int, now: float) -> None:
        """A worker that is not in the room gives its join up: it counts as joined, failed and released."""
        if self.closed_at is not None and self.poll is not Poll.FAILED:
            return  # who joins now is refused
        self._enter_ended(peer, epoch, role, join_id, now)
        self.ask(Failure(FailureReason.ABORTED, "given up before it joined", peer.worker_id), now)

    def _enter_ended(self, peer: Peer, epoch: int, role: Role, join_id: int, now: float) -> None:
        participant = self._participant(peer, role, now)
        participant.peer, participant.epoch, participant.join_id = peer, epoch, join_id
        participant.poll, participant.released = Poll.FAILED, True
        self.changed = True

    def link(self, wiring: Wiring, now: float) -> None:
        """The pairs are known: each worker named is awaited. To be settled then."""
        for role, names in ((Role.PREFILL, wiring.receivers_of), (Role.DECODE, wiring.senders_of)):
            for name in names:
                if name not in self.participants:
                    self.participants[name] = Participant(Peer(name, ""), role, now)
        self._wiring = wiring
        self.linked = self._ungranted = True
        self._touch_all()

    # --- what is known ---

    def side(self, role: Role) -> Side | None:
        """One side; None until known."""
        return self.prefill if role is Role.PREFILL else self.decode

    def settle_side(self, role: Role, side: Side) -> None:
        """A side is known, or known better."""
        if role is Role.PREFILL:
            self.prefill = side
        else:
            self.decode = side

    @property
    def sides(self) -> dict[Role, Side]:
        """The sides that are known."""
        return {role: side for role in Role if (side := self.side(role)) is not None}

    @property
    def engines(self) -> tuple[str, ...]:
        """Ids of the engines that are known."""
        return tuple(side.engine_id for side in self.sides.values())

    @property
    def ending(self) -> bool:
        """Asked to end, or ended."""
        return self.failure is not None or self.poll.final

    @property
    def awaits_release(self) -> bool:
        """Whether a live participant has not released; one that came back counts again, even in a closed room."""
        return any(p.joined and not p.released and not p.gone for p in self.participants.values())

    def receivers(self) -> Iterator[Participant]:
        return (participant for participant in self.participants.values() if participant.role is Role.DECODE)

    def senders_of(self, receiver: str) -> list[Participant]:
        """Senders that feed a receiver; empty until linked."""
        return [self.participants[name] for name in self._wiring.senders_of.get(receiver, ())]

    def receivers_of(self, sender: str) -> list[Participant]:
        """Receivers that a sender feeds; empty until linked."""
        return [self.participants[name] for name in self._wiring.receivers_of.get(sender, ())]

    def offers_to(self, sender: Participant) -> list[Offer]:
        """Offers that a joined sender may serve; none once the room is asked to end."""
        if self.ending or not sender.join_id:
            return []
        offering = [
            (receiver.destination, (receiver.peer, receiver.join_id))
            for receiver in self.receivers_of(sender.worker_id)
            if receiver.destination is not None and not receiver.released
        ]
        if len(offering) == 1:  # most often; to hash a long destination takes a while
            return [Offer((receiver,), destination) for destination, receiver in offering]
        offers: dict[Destination, list[tuple[Peer, int]]] = {}
        for destination, receiver in offering:
            offers.setdefault(destination, []).append(receiver)
        return [Offer(tuple(receivers), destination) for destination, receivers in offers.items()]

    def take_grants(self) -> list[tuple[Participant, Participant]]:
        """Pairs (receiver, sender) in which the sender may from now on write; each once."""
        if not self._ungranted or not self.linked or self.ending:
            return []
        self._ungranted = False
        grants = []
        for receiver in self.receivers():
            if receiver.destination is None or receiver.released:
                continue
            for sender in self.senders_of(receiver.worker_id):
                if sender.joined and not sender.released and sender.worker_id not in receiver.granted:
                    receiver.granted |= {sender.worker_id}
                    grants.append((receiver, sender))
        return grants

    def take_touched(self) -> list[Participant]:
        """Whom to tell what may have changed for them since the last call; senders first, they have work to do."""
        senders: list[Participant] = []
        receivers: list[Participant] = []
        for participant in self.participants.values():
            if participant.touched:
                participant.touched = False
                if participant.join_id and not participant.released:
                    (senders if participant.role is Role.PREFILL else receivers).append(participant)
        return senders + receivers

    # --- progress ---

    def report(self, participant: Participant, progress: Progress, now: float) -> list[Completion]:
        """Applies a participant's progress. Returns completions that are newly known to match their offers."""
        if progress.join_id != participant.join_id:
            self.dropped += 1
            return []
        if self.closed_at is not None:
            return []
        matched: list[Completion] = []
        if progress.poll is Poll.SUCCESS:
            matched = [held for held in progress.completions if self._accept(participant, held, now)]
            self._succeed(participant, now)
        elif progress.poll is Poll.FAILED:
            self._fail(participant, progress.failure, now)
        elif not participant.poll.final:
            self._move(participant, progress, now)
        self.settle(now)
        return matched

    def _move(self, participant: Participant, progress: Progress, now: float) -> None:
        if participant.poll is Poll.WAITING_FOR_INPUT:
            participant.poll = Poll.TRANSFERRING
            self._phase_since = now
            self._mark(participant, now)
            self._begun(self.receivers_of(participant.worker_id), now)
        if progress.transferred_bytes > participant.transferred_bytes:
            participant.transferred_bytes = progress.transferred_bytes
            self._phase_since = now
            self._mark(participant, now)

    def _accept(self, reporter: Participant, completion: Completion, now: float) -> bool:
        """Keeps a completion that serves a receiver's present offer. True if it was news."""
        receiver = self.participants.get(completion.receiver)
        sender = self.participants.get(completion.sender)
        moved = self._wiring.moved.get((completion.sender, completion.receiver))
        if receiver is None or sender is None or moved is None:
            self.dropped += 1
            return False
        if (completion.room, completion.offer_id, completion.sender_join_id) != (
            self.room,
            receiver.join_id,
            sender.join_id,
        ) or reporter not in (receiver, sender):
            self.dropped += 1
            return False
        held = receiver.completions.get(sender.worker_id)
        if held == completion or receiver.poll.final:
            return False
        if receiver.destination is None:
            problem: str | None = "nothing was offered"
        elif held is not None:
            problem = "it differs from an earlier one"
        else:
            problem = uncovered(completion, receiver.destination, moved)
        if problem is not None:
            message = f"completion of {sender.worker_id} for {receiver.worker_id}: {problem}"
            self.ask(Failure(FailureReason.COMPLETION_MISMATCH, message, sender.worker_id), now)
            return False
        receiver.completions = {**receiver.completions, sender.worker_id: completion}
        self._mark(receiver, now)
        return True

    def _succeed(self, participant: Participant, now: float) -> None:
        if participant.role is Role.PREFILL:
            self._sent(participant, now)
            return
        senders = self.senders_of(participant.worker_id)
        if not participant.poll.final and senders and len(participant.completions) == len(senders):
            self._finish(participant, participant.completions.values(), now)
        if participant.poll is Poll.SUCCESS:
            for sender in senders:
                self._sent(sender, now)

    def _sent(self, sender: Participant, now: float) -> None:
        """Moves a sender to SUCCESS if each receiver that it feeds holds its completion."""
        if sender.poll.final:
            return
        receivers = self.receivers_of(sender.worker_id)
        held = [each.completions[sender.worker_id] for each in receivers if sender.worker_id in each.completions]
        if held and len(held) == len(receivers):
            self._finish(sender, held, now)
            self._begun(receivers, now)

    def _finish(self, participant: Participant, held: Iterable[Completion], now: float) -> None:
        participant.poll = Poll.SUCCESS
        participant.transferred_bytes = sum([completion.bytes for completion in held])
        self._phase_since = now
        self._mark(participant, now)

    def _begun(self, receivers: Iterable[Participant], now: float) -> None:
        """A sender moves pages, or has moved them all: its receivers are Transferring."""
        for receiver in receivers:
            if receiver.poll is Poll.WAITING_FOR_INPUT and not self.ending:
                receiver.poll = Poll.TRANSFERRING
                self._mark(receiver, now)

    def _fail(self, participant: Participant, failure: Failure | None, now: float) -> None:
        if participant.poll.final:
            return
        participant.poll = Poll.FAILED
        self._mark(participant, now)
        if failure is None:
            failure = Failure(FailureReason.WORKER_REPORTED, "the worker gave no cause")
        if not failure.worker_id:
            failure = replace(failure, worker_id=participant.worker_id)
        self.ask(failure, now)

    # --- ending ---

    def ask(self, failure: Failure, now: float) -> None:
        """Asks the room to end. The first failure stays; receivers that are gone or never joined count as FAILED."""
        if self.poll.final:
            return
        if self.failure is None:
            self.failure = failure
            self._vote_due = now + self._vote
            self._touch_all()
        receivers = list(self.receivers())
        for receiver in receivers:
            if (receiver.gone or not receiver.joined) and not receiver.poll.final:
                receiver.poll = Poll.FAILED
                self._mark(receiver, now)
        if not any(receiver.joined for receiver in receivers):
            self._pass_on(Poll.FAILED, now)
        self.settle(now)

    def worker_gone(self, participant: Participant, failure: Failure, now: float) -> None:
        """The process behind a participant is gone, silent or replaced."""
        participant.gone = True
        self.ask(failure, now)

    def release(self, participant: Participant, now: float) -> None:
        """A participant cleans up; without a final poll that asks the room to end."""
        if participant.released:
            return
        if not participant.poll.final and not self.poll.final and self.closed_at is None:
            cause = Failure(FailureReason.ABORTED, "cleaned up before the end", participant.worker_id)
            self._fail(participant, cause, now)
        participant.released = True
        self._mark(participant, now)
        self.settle(now)

    def close_if_over(self, now: float) -> bool:
        """Closes the room once its live participants have released; what is left is its tombstone."""
        if self.closed_at is not None or not self.poll.final:
            return False
        if self.awaits_release:
            return False
        self.closed_at = now
        self.changed = True
        for participant in self.participants.values():
            participant.over()
        return True

    def due(self) -> float | None:
        """When the present state's time is over."""
        if self.poll.final:
            return None
        if self.failure is not None:
            return self._vote_due
        if self.poll is Poll.BOOTSTRAPPING:
            limit = self._timeouts.bootstrapping
        elif self.poll is Poll.WAITING_FOR_INPUT:
            limit = self._timeouts.waiting_for_input
        else:
            limit = self._timeouts.no_progress
        return min(self._phase_since + limit, self.opened + self._timeouts.total)

    def expire(self, now: float) -> None:
        """The present state's time is over."""
        due = self.due()
        if due is None or due > now:
            return
        if self.failure is not None:
            for receiver in self.receivers():
                if not receiver.poll.final:
                    receiver.poll = Poll.FAILED
                    self._mark(receiver, now)
            self.settle(now)
        else:
            self.ask(timeout(self, self._timeouts, now), now)

    # --- settling ---

    def settle(self, now: float) -> None:
        """Moves polls as far as what is known allows, and gives the verdict once there is one."""
        if self.closed_at is not None:
            return
        if self.poll is Poll.BOOTSTRAPPING and self.linked and not self.ending:
            self._advance(now)
        if self.poll.final:
            return
        least, failed, received = Poll.SUCCESS, False, self.linked
        for participant in self.participants.values():
            poll = participant.poll
            if participant.role is Role.DECODE:
                failed = failed or poll is Poll.FAILED
                received = received and poll is Poll.SUCCESS
            elif poll is Poll.FAILED:
                continue
            if poll < least:
                least = poll
        if failed:
            self._pass_on(Poll.FAILED, now)
        elif received:
            self._pass_on(Poll.SUCCESS, now)
        elif self.poll < least < Poll.SUCCESS:
            self._pass_on(least, now)

    def _advance(self, now: float) -> None:
        """Nobody is Bootstrapping once the room is not."""
        for participant in self.participants.values():
            if not participant.join_id or participant.poll is not Poll.BOOTSTRAPPING:
                continue
            if participant.role is Role.PREFILL:
                receivers = self.receivers_of(participant.worker_id)
                if None not in [receiver.destination for receiver in receivers]:
                    participant.poll = Poll.WAITING_FOR_INPUT
                    self._mark(participant, now)
            else:
                senders = self.senders_of(participant.worker_id)
                if 0 not in [sender.join_id for sender in senders]:
                    begun = any(sender.poll in (Poll.TRANSFERRING, Poll.SUCCESS) for sender in senders)
                    participant.poll = Poll.TRANSFERRING if begun else Poll.WAITING_FOR_INPUT
                    self._mark(participant, now)

    def _pass_on(self, poll: Poll, now: float) -> None:
        self.poll = poll
        self._phase_since = now
        self._touch_all()

    def _mark(self, participant: Participant, now: float) -> None:
        participant.updated = now
        participant.touched = True
        self.changed = True

    @staticmethod
    def _touch(participants: Iterable[Participant]) -> None:
        for participant in participants:
            participant.touched = True

    def _touch_all(self) -> None:
        self._touch(self.participants.values())
        self.changed = True
