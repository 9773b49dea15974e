"""What can go wrong. One class per ErrorReason of the service, and what befalls a call on its way.

KVTransferError
├── WorkerNotFound      ├── RoomReused           ├── JoinConflict        ├── PermissionDenied
├── StaleEpoch          ├── LayoutMismatch       ├── NotAParticipant     ├── InternalError
├── EngineMismatch      ├── LimitReached         ├── SessionReplaced     ├── ServiceUnavailable
├── EngineNotFound      ├── Draining             ├── Unauthenticated     └── DeadlineExceeded
└── RoomNotFound        └── InvalidField (also a ValueError)
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "kvtransfer.v1"
"""`domain` of the service's ErrorInfo."""


class KVTransferError(Exception):
    """Root of all errors of this package."""

    reason: ClassVar[str] = ""
    """ErrorReason without its prefix; empty where the service gave none."""

    def __init__(self, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.metadata: Mapping[str, str] = metadata or {}
        """What the service's ErrorInfo says besides, such as `room` or `worker`."""


class WorkerNotFound(KVTransferError):
    """Never registered, deregistered, or its lease has ended: register again."""

    reason = "WORKER_NOT_FOUND"


class StaleEpoch(KVTransferError):
    """The caller's registration was superseded."""

    reason = "STALE_EPOCH"


class EngineMismatch(KVTransferError):
    """Role, topology or layout differ from the engine's."""

    reason = "ENGINE_MISMATCH"


class EngineNotFound(KVTransferError):
    """No such engine."""

    reason = "ENGINE_NOT_FOUND"


class RoomNotFound(KVTransferError):
    """No such room."""

    reason = "ROOM_NOT_FOUND"


class RoomReused(KVTransferError):
    """The room is in use, or was a short while ago, by another join or by other engines."""

    reason = "ROOM_REUSED"


class LayoutMismatch(KVTransferError):
    """The two engines' layouts or roles do not fit."""

    reason = "LAYOUT_MISMATCH"


class LimitReached(KVTransferError):
    """A limit of the service or of this worker is reached."""

    reason = "LIMIT_REACHED"


class Draining(KVTransferError):
    """The service is shutting down."""

    reason = "DRAINING"


class InvalidField(KVTransferError, ValueError):
    """An argument is not acceptable. The message begins with the field's name and quotes its value."""

    reason = "INVALID_FIELD"

    def __init__(self, field: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{field}: {message}", metadata)
        self.field = field


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


class InternalError(KVTransferError):
    """A fault of the service."""

    reason = "INTERNAL"


class ServiceUnavailable(KVTransferError):
    """The service cannot be reached, or broke the call off."""


class DeadlineExceeded(KVTransferError):
    """The service did not answer in time."""


BY_REASON: Mapping[str, type[KVTransferError]] = {
    kind.reason: kind for kind in KVTransferError.__subclasses__() if kind.reason
}
"""Class by ErrorReason, without its prefix."""


def from_rpc_error(error: grpc.RpcError) -> KVTransferError:
    """The typed error of a failed call."""
    status = status_pb2.Status()
    metadata: Iterable[tuple[str, bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment] # what it is
    for key, value in metadata:
        if key == "grpc-status-details-bin":
            try:
                status.ParseFromString(value)
            except DecodeError:
                break  # not ours: the code and the text have to do
    return from_status(status) or _from_code(error)


def from_status(status: status_pb2.Status) -> KVTransferError | None:
    """The typed error of a google.rpc.Status, such as a batch answers an item with; None if it is not ours."""
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if not detail.Unpack(info) or info.domain != DOMAIN:
            continue
        kind = BY_REASON.get(info.reason, KVTransferError)
        message = status.message.removeprefix(f"{info.reason}: ")
        metadata = dict(info.metadata)
        if kind is InvalidField:
            field = metadata.get("field", "")
            return InvalidField(field, message.removeprefix(field).lstrip(": "), metadata)
        return kind(message, metadata)
    return None


def _from_code(error: grpc.RpcError) -> KVTransferError:
    text = f"{error.code().name}: {error.details()}"
    kinds = {
        grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
        grpc.StatusCode.UNAVAILABLE: ServiceUnavailable,
        grpc.StatusCode.CANCELLED: ServiceUnavailable,
        grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
        grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
        grpc.StatusCode.INTERNAL: InternalError,
    }
    return kinds.get(error.code(), KVTransferError)(text)
