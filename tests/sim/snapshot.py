"""What the service's state looks like from outside, as plain values that can be compared."""

from typing import NamedTuple

from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.participant import Participant
from kvservice.domain.transfer import Room
from kvservice.domain.types import Failure, Poll


class ParticipantShot(NamedTuple):
    """What anybody may know of a participant."""

    join_id: int
    epoch: int
    poll: Poll
    transferred_bytes: int
    released: bool
    offered: bool
    completions: int


class RoomShot(NamedTuple):
    """What anybody may know of a room, less its revision and instants."""

    poll: Poll
    failure: Failure | None
    sides: tuple[object, ...]
    tokens: int
    request_id: str
    linked: bool
    """Whether it is known who sends to whom: receivers are told."""
    closed_at: float | None
    participants: dict[str, ParticipantShot]


def room_shot(room: Room) -> RoomShot:
    return RoomShot(
        room.poll,
        room.failure,
        tuple(room.sides.items()),
        room.tokens,
        room.request_id,
        room.linked,
        room.closed_at,
        {name: _participant_shot(participant) for name, participant in room.participants.items()},
    )


def _participant_shot(participant: Participant) -> ParticipantShot:
    return ParticipantShot(
        participant.join_id,
        participant.epoch,
        participant.poll,
        participant.transferred_bytes,
        participant.released,
        participant.destination is not None,
        len(participant.completions),
    )


def rooms_shot(control: ControlPlane) -> dict[int, RoomShot]:
    """All transfers."""
    return {number: room_shot(room) for number, room in control.rooms.items()}


def everything(control: ControlPlane) -> tuple[object, ...]:
    """All that a call could change."""
    workers = {
        name: (worker.ref.epoch, worker.lease_until, worker.draining, worker.session, tuple(worker.absent))
        for name, worker in control.registry.workers.items()
    }
    instances = {
        name: (dict(instance.joins), instance.gone_at, instance.birth_epoch)
        for name, instance in control.registry.instances.items()
    }
    return rooms_shot(control), workers, instances, repr(vars(control.ledger)), control.changes.revision
