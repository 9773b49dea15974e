"""Invariants of the service: looked at around every call and every expiry."""

from collections.abc import Callable

from kvtransfer import v1 as pb

from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.types import Failure, FailureReason, Poll, Role

from .snapshot import ParticipantShot, RoomShot, everything, rooms_shot
from .world import Violation, World

CHANGES_NOTHING = ("Poll", "GetLinks")
MOSTLY_TELLS = "answers"
"""Too frequent to be looked at closely each time: a change without a revision is noticed at the next call."""
SOMEBODY_IS_TO_BLAME = (
    FailureReason.LEASE_EXPIRED,
    FailureReason.WORKER_REPLACED,
    FailureReason.WORKER_DEREGISTERED,
    FailureReason.DISCONNECTED,
    FailureReason.WORKER_REPORTED,
    FailureReason.COMPLETION_MISMATCH,
    FailureReason.SESSION_LOST,
)


class ServiceChecks:
    """Compares the service before and after each thing that reaches it."""

    def __init__(self, world: World, control: Callable[[], ControlPlane], ended: Callable[[int], None]) -> None:
        self._world = world
        self._control = control
        self._ended = ended
        self._rooms: dict[int, RoomShot] = {}
        self._revisions: dict[int, int] = {}
        self._revision = -1

    def observe(self, ref: pb.WorkerRef | None, what: str, call: Callable[[], None]) -> None:
        """Makes a call of `ref` (None: no worker's) and checks what it did."""
        control = self._control()
        superseded = ref is not None and _superseded(control, ref)
        before = everything(control) if superseded or what in CHANGES_NOTHING else None
        call()
        if what == MOSTLY_TELLS and control.changes.revision == self._revision:
            return
        if superseded:
            self._world.seen["call of a superseded epoch"] += 1
            if everything(control) != before:
                raise Violation(3, f"{what} of {ref} changed something, though its epoch is superseded")
        elif before is not None and everything(control) != before:
            raise Violation(1, f"{what} changed something")
        self._compare(control)

    def _compare(self, control: ControlPlane) -> None:
        rooms, before = rooms_shot(control), self._rooms
        changed = rooms != before
        revision = control.changes.revision
        if self._revision >= 0 and changed != (revision > self._revision):
            what = {number: (before.get(number), rooms.get(number)) for number in _different(before, rooms)}
            raise Violation(4, f"the revision went from {self._revision} to {revision}, what changed is {what}")
        if changed:
            for number in _different(before, rooms):
                self._compare_room(control, number, before.get(number), rooms.get(number))
        self._rooms, self._revision = rooms, revision
        self._revisions = {number: room.revision for number, room in control.rooms.items()}

    def _compare_room(self, control: ControlPlane, number: int, old: RoomShot | None, new: RoomShot | None) -> None:
        if new is None:
            assert old is not None
            self._check_forgotten(control, number, old)
            return
        revision = control.rooms[number].revision
        if revision <= self._revisions.get(number, -1):
            raise Violation(4, f"room {number} changed from {old} to {new} under revision {revision}")
        self._check_asked(number, new)
        if new.closed_at == self._world.now:
            self._check_released(control, number, new, "closes")
        if old is None:
            self._world.note("room {} opens", number)
        elif old.poll is not new.poll:
            self._world.note("room {} is {}", number, new.poll.name)
        if old is not None:
            _check_forward(f"room {number}", old.poll, new.poll)
            if old.failure is not None and new.failure != old.failure:
                raise Violation(2, f"the failure of room {number} went from {old.failure} to {new.failure}")
            for name, participant in old.participants.items():
                _check_participant(f"{name} in room {number}", participant, new.participants.get(name))
        if new.failure is not None and (old is None or old.failure is None):
            self._world.note("room {} is asked to end: {}", number, new.failure)
        if new.poll.final and (old is None or not old.poll.final):
            self._verdict(control, number, new)

    def _check_forgotten(self, control: ControlPlane, number: int, old: RoomShot) -> None:
        if old.closed_at is None or self._world.now < old.closed_at + control.policy.retention:
            raise Violation(1, f"room {number} is forgotten too early: {old}")
        self._check_released(control, number, old, "is forgotten")
        self._world.note("room {} is forgotten", number)

    def _check_released(self, control: ControlPlane, number: int, room: RoomShot, what: str) -> None:
        """Nobody live still has a part in a room that goes."""
        for name, participant in room.participants.items():
            worker = control.registry.workers.get(name)
            joined = participant.join_id and not participant.released
            if joined and worker is not None and worker.ref.epoch == participant.epoch:
                raise Violation(1, f"room {number} {what} though {name} lives and has not released it")

    def _check_asked(self, number: int, room: RoomShot) -> None:
        failure = room.failure
        if room.poll is Poll.FAILED and failure is None:
            raise Violation(2, f"room {number} is FAILED and nobody knows why")
        if failure is not None:
            _check_failure(f"room {number}", failure)

    def _verdict(self, control: ControlPlane, number: int, room: RoomShot) -> None:
        receivers = [p for p in control.rooms[number].participants.values() if p.role is Role.DECODE]
        seen = self._world.seen
        if room.poll is Poll.SUCCESS:
            seen["SUCCESS"] += 1
            seen["SUCCESS though asked to end"] += room.failure is not None
            if not receivers or any(receiver.poll is not Poll.SUCCESS for receiver in receivers):
                raise Violation(1, f"room {number} is SUCCESS with {room}")
        elif room.failure is not None:
            seen[f"FAILED {room.failure.reason.name}"] += 1
        self._ended(number)


def _superseded(control: ControlPlane, ref: pb.WorkerRef) -> bool:
    worker = control.registry.workers.get(ref.worker_id)
    return worker is None or worker.ref.epoch != ref.epoch


def _different(before: dict[int, RoomShot], after: dict[int, RoomShot]) -> list[int]:
    return [number for number in before | after if before.get(number) != after.get(number)]


def _check_forward(whose: str, old: Poll, new: Poll) -> None:
    if new is not old and (old.final or (new is not Poll.FAILED and new < old)):
        raise Violation(1, f"the poll of {whose} went from {old.name} to {new.name}")


def _check_participant(whose: str, old: ParticipantShot, new: ParticipantShot | None) -> None:
    if new is None:
        raise Violation(1, f"{whose} is not there any more")
    _check_forward(whose, old.poll, new.poll)
    if old.join_id and new.join_id != old.join_id:
        raise Violation(1, f"the join of {whose} went from {old.join_id:x} to {new.join_id:x}")
    if old.released and not new.released:
        raise Violation(1, f"{whose} had released it")


def _check_failure(whose: str, failure: Failure) -> None:
    if not failure.message or (failure.reason in SOMEBODY_IS_TO_BLAME and not failure.worker_id):
        raise Violation(2, f"{whose} was asked to end, and does not say why and by whom: {failure}")
