"""What an engine reads of a transfer: its progress, and why it failed."""

from dataclasses import dataclass
from enum import Enum, IntEnum

from kvtransfer import v1 as pb

MAX_MESSAGE_BYTES = 1024
"""Of a failure's message as it is told: an engine or NIXL may have much to say."""


class KVPoll(IntEnum):
    """Progress of a transfer. The ranks of an engine agree by the least of theirs."""

    FAILED = pb.KV_POLL_FAILED
    BOOTSTRAPPING = pb.KV_POLL_BOOTSTRAPPING
    WAITING_FOR_INPUT = pb.KV_POLL_WAITING_FOR_INPUT
    TRANSFERRING = pb.KV_POLL_TRANSFERRING
    SUCCESS = pb.KV_POLL_SUCCESS

    @property
    def final(self) -> bool:
        """Whether it stays for ever."""
        return self in (KVPoll.FAILED, KVPoll.SUCCESS)

    def __str__(self) -> str:
        return self.name

    __format__ = Enum.__format__  # else f"{poll}" would be its number


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a room failed."""

    reason: str
    """A FailureReason such as `HANDSHAKE_TIMEOUT`, or, where the service refused the join, an ErrorReason such as
    `ROOM_REUSED`."""
    message: str
    """For people."""
    worker_id: str = ""
    """The worker it began with; empty if none."""

    @staticmethod
    def from_message(message: pb.Failure) -> "Failure":
        """From the wire."""
        reason = pb.FailureReason.Name(message.reason).removeprefix("FAILURE_REASON_")
        return Failure(reason, message.message, message.worker_id)

    def to_message(self) -> pb.Failure:
        """To the wire; what is not a FailureReason was reported by this worker."""
        name = f"FAILURE_REASON_{self.reason}"
        known = name in pb.FailureReason.keys()  # noqa: SIM118 - an enum wrapper, not a dict
        return pb.Failure(
            reason=name if known else "FAILURE_REASON_WORKER_REPORTED",
            message=self.message.encode(errors="replace")[:MAX_MESSAGE_BYTES].decode(errors="ignore"),
            worker_id=self.worker_id,
        )


@dataclass(frozen=True, slots=True)
class Released:
    """Pages and slots that the engine owns again."""

    room: int
    pages: dict[str, list[int]]
    """Page indices by paged group, as they were given."""
    slots: dict[str, int]
    """Slot by slot group, as they were given."""
    presumed: bool = False
    """True if it rests on time passed, not on proof."""
