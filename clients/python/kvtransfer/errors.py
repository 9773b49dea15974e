"""What can go wrong.

KVTransferError
├── InvalidField (also ValueError)   an argument, named, is not acceptable
├── WorkerNotFound                   never registered, deregistered, or lease ended
├── StaleEpoch                       superseded by a newer registration
├── EngineMismatch                   role, topology or layout differ from the engine's
├── EngineNotFound
├── RoomNotFound
├── RoomReused                       the room is, or was a short while ago, another's
├── LayoutMismatch                   two engines do not fit
├── LimitReached                     of the service, or of a message
├── Draining                         the service is shutting down
├── JoinConflict                     joined before with another destination or peer
├── NotAParticipant                  the worker is not in the room
├── SessionReplaced                  a newer session of the same worker is open
├── Unauthenticated
├── PermissionDenied
├── Internal                         a fault of the service; its log says more
├── ServiceUnavailable               nobody answers there
├── DeadlineExceeded                 no answer in time
└── FeatureMissing                   the service is too old for what was asked of it

All up to Internal have the name of an `ErrorReason`, which is what the service calls them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    import grpc

DOMAIN = "kvtransfer.v1"


class KVTransferError(Exception):
    """Root of all errors of this package."""

    reason: ClassVar[str] = ""
    """Name of the `ErrorReason`, without its prefix; empty where there is none."""

    def __init__(self, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.metadata: Mapping[str, str] = metadata or {}
        """What the service said it is about, such as `worker`, `room`, `limit`."""


class InvalidField(KVTransferError, ValueError):
    """An argument is not acceptable. The message begins with the field's name and quotes its value."""

    reason = "INVALID_FIELD"

    def __init__(self, field: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{field}: {message}", metadata)
        self.field = field


class WorkerNotFound(KVTransferError):
    """The worker never registered, deregistered, or its lease has ended: register again."""

    reason = "WORKER_NOT_FOUND"


class StaleEpoch(KVTransferError):
    """The registration was superseded: fence, drain, register again. From registering: a later process has the rank."""

    reason = "STALE_EPOCH"


class EngineMismatch(KVTransferError):
    """Role, topology or layout differ from the engine's."""

    reason = "ENGINE_MISMATCH"


class EngineNotFound(KVTransferError):
    """No such engine, or one of its ranks has no live worker."""

    reason = "ENGINE_NOT_FOUND"


class RoomNotFound(KVTransferError):
    """The room was never opened, or was forgotten."""

    reason = "ROOM_NOT_FOUND"


class RoomReused(KVTransferError):
    """The room is in use, or was a short while ago, by another join of this worker or by other engines."""

    reason = "ROOM_REUSED"


class LayoutMismatch(KVTransferError):
    """Two engines' layouts or roles do not fit."""

    reason = "LAYOUT_MISMATCH"


class LimitReached(KVTransferError):
    """A limit is reached."""

    reason = "LIMIT_REACHED"


class Draining(KVTransferError):
    """The service is shutting down."""

    reason = "DRAINING"


class JoinConflict(KVTransferError):
    """The worker joined with another destination or peer before."""

    reason = "JOIN_CONFLICT"


class NotAParticipant(KVTransferError):
    """The worker is not in the room."""

    reason = "NOT_A_PARTICIPANT"


class SessionReplaced(KVTransferError):
    """A newer session of the same worker is open."""

    reason = "SESSION_REPLACED"


class Unauthenticated(KVTransferError):
    """No valid credentials."""

    reason = "UNAUTHENTICATED"


class PermissionDenied(KVTransferError):
    """The credentials do not reach so far."""

    reason = "PERMISSION_DENIED"


class Internal(KVTransferError):
    """A fault of the service."""

    reason = "INTERNAL"


class ServiceUnavailable(KVTransferError):
    """Nobody answers at the target, or the connection broke."""


class DeadlineExceeded(KVTransferError):
    """The call got no answer in time. What it asked for may have happened all the same; it may be repeated."""


class FeatureMissing(KVTransferError):
    """The service does not have what was required of it: it is older than who asks."""

    def __init__(self, features: Sequence[str], service_version: str, client_version: str) -> None:
        names = ", ".join(map(repr, features))
        super().__init__(
            f"the service, version {service_version}, does not have {names}; this client is version {client_version}",
            {"service_version": service_version, "client_version": client_version},
        )
        self.features = tuple(features)
        """Names of what is missing."""


_BY_REASON: Mapping[str, type[KVTransferError]] = {
    kind.reason: kind for kind in KVTransferError.__subclasses__() if kind.reason
}

# Of gRPC itself, where the service had no say.
_BY_CODE: Mapping[str, type[KVTransferError]] = {
    "UNAVAILABLE": ServiceUnavailable,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "RESOURCE_EXHAUSTED": LimitReached,  # a message too large
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": PermissionDenied,
}


def from_status(status: status_pb2.Status) -> KVTransferError:
    """The error of one item of a batch, or of a whole call. A reason newer than this client gives the root."""
    info, violation = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        _ = detail.Unpack(info) or detail.Unpack(violation)
    kind = _BY_REASON.get(info.reason) if info.domain == DOMAIN else None
    if kind is None:
        return KVTransferError(status.message)
    message = status.message.removeprefix(f"{info.reason}: ")
    metadata = dict(info.metadata)
    if kind is InvalidField:
        field = violation.field_violations[0].field if violation.field_violations else metadata.get("field", "")
        return InvalidField(field, message.removeprefix(f"{field} "), metadata)
    return kind(message, metadata)


def from_rpc_error(error: "grpc.RpcError") -> KVTransferError:
    """What a failed call means. `error` is also the status of its call, as all that grpc raises for calls are."""
    call: grpc.Call = error  # type: ignore[assignment] # see above
    for key, value in call.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            return from_status(status_pb2.Status.FromString(value))
    code, details = call.code(), call.details()
    return _BY_CODE.get(code.name, KVTransferError)(f"{code.name}: {details}")
