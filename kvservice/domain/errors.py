"""One error class per reason of a refused call. The transport turns each into a status.

DomainError
├── WorkerNotFound      ├── RoomReused           ├── JoinConflict
├── StaleEpoch          ├── LayoutMismatch       ├── NotAParticipant
├── EngineMismatch      ├── LimitReached         └── SessionReplaced
├── EngineNotFound      ├── Draining
└── RoomNotFound        └── InvalidField
"""

from typing import ClassVar


class DomainError(Exception):
    """A refused call. `reason` is the wire's ErrorReason without its prefix; `metadata` names what it is about."""

    reason: ClassVar[str]

    def __init__(self, message: str, **metadata: str | int) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = {key: str(value) for key, value in metadata.items()}


class WorkerNotFound(DomainError):
    """Never registered, deregistered, or its lease has ended."""

    reason = "WORKER_NOT_FOUND"


class StaleEpoch(DomainError):
    """The caller's registration was superseded."""

    reason = "STALE_EPOCH"


class EngineMismatch(DomainError):
    """Role, topology or layout differ from the engine's."""

    reason = "ENGINE_MISMATCH"


class EngineNotFound(DomainError):
    """No such engine."""

    reason = "ENGINE_NOT_FOUND"


class RoomNotFound(DomainError):
    """No such room."""

    reason = "ROOM_NOT_FOUND"


class RoomReused(DomainError):
    """The room is in use, or was a short while ago, by another join or by other engines."""

    reason = "ROOM_REUSED"


class LayoutMismatch(DomainError):
    """Two layouts or roles do not fit."""

    reason = "LAYOUT_MISMATCH"


class LimitReached(DomainError):
    """A limit of the server is reached."""

    reason = "LIMIT_REACHED"


class Draining(DomainError):
    """The server is shutting down."""

    reason = "DRAINING"


class InvalidField(DomainError):
    """A field of the request is bad; `field` is its path in the request, `value` what it held."""

    reason = "INVALID_FIELD"

    def __init__(self, field: str, problem: str, value: object = None) -> None:
        shown = "" if value is None else f", got {value!r:.100}"
        super().__init__(
            f"{field} {problem}{shown}", field=field, **({} if value is None else {"value": f"{value!r:.100}"})
        )
        self.field = field


class JoinConflict(DomainError):
    """The worker joined with another destination or peer before."""

    reason = "JOIN_CONFLICT"


class NotAParticipant(DomainError):
    """The worker is not in the room."""

    reason = "NOT_A_PARTICIPANT"


class SessionReplaced(DomainError):
    """A newer session of the same worker is open."""

    reason = "SESSION_REPLACED"
