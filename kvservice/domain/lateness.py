"""What ran out of time in a room, and whom it waited for."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvservice.domain.types import Failure, FailureReason, Poll, Role, Timeouts

if TYPE_CHECKING:
    from kvservice.domain.transfer import Room


def timeout(room: "Room", timeouts: Timeouts, now: float) -> Failure:
    """Why a room that has all the time of its present state behind it ends."""
    if now >= room.opened + timeouts.total:
        reason, what = FailureReason.TRANSFER_TIMEOUT, f"not ended {timeouts.total:g} s after its opening"
    elif room.poll is Poll.BOOTSTRAPPING:
        reason, what = FailureReason.HANDSHAKE_TIMEOUT, f"not all joined within {timeouts.bootstrapping:g} s"
    elif room.poll is Poll.WAITING_FOR_INPUT:
        reason, what = FailureReason.INPUT_TIMEOUT, f"nothing sent within {timeouts.waiting_for_input:g} s"
    else:
        reason, what = FailureReason.NO_PROGRESS, f"no progress within {timeouts.no_progress:g} s"
    late = sorted(_late(room))
    if late:
        what += ", waiting for " + ", ".join(late)
    elif not room.linked:  # who takes part is not known before both sides are
        joined = {participant.role for participant in room.participants.values()}
        absent = [role.name.lower() for role in Role if role not in joined]
        what += f", no {absent[0]} worker has joined" if absent else ", an engine is incomplete"
    return Failure(reason, what, late[0] if late else "")


def _late(room: "Room") -> Iterator[str]:
    """Workers that keep a room from going on."""
    for participant in room.participants.values():
        if not participant.joined:
            yield participant.worker_id
        elif room.poll is Poll.BOOTSTRAPPING:
            if participant.role is Role.DECODE and participant.destination is None:
                yield participant.worker_id
        elif participant.role is Role.PREFILL and not participant.poll.final:
            yield participant.worker_id
