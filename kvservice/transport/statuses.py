"""Errors of the domain to google.rpc.Status."""

from google.protobuf.any_pb2 import Any
from google.rpc import code_pb2, error_details_pb2, status_pb2

from kvservice.domain.errors import DomainError, InvalidField

DOMAIN = "kvtransfer.v1"

# A status travels in trailers, of which gRPC takes 8 KiB; otherwise the caller would only hear of these.
MAX_MESSAGE_BYTES = 1000
MAX_VALUE_BYTES = 250

CODES: dict[str, code_pb2.Code.ValueType] = {
    "WORKER_NOT_FOUND": code_pb2.NOT_FOUND,
    "STALE_EPOCH": code_pb2.FAILED_PRECONDITION,
    "ENGINE_MISMATCH": code_pb2.FAILED_PRECONDITION,
    "ENGINE_NOT_FOUND": code_pb2.NOT_FOUND,
    "ROOM_NOT_FOUND": code_pb2.NOT_FOUND,
    "ROOM_REUSED": code_pb2.ALREADY_EXISTS,
    "LAYOUT_MISMATCH": code_pb2.FAILED_PRECONDITION,
    "LIMIT_REACHED": code_pb2.RESOURCE_EXHAUSTED,
    "DRAINING": code_pb2.UNAVAILABLE,
    "INVALID_FIELD": code_pb2.INVALID_ARGUMENT,
    "JOIN_CONFLICT": code_pb2.ALREADY_EXISTS,
    "NOT_A_PARTICIPANT": code_pb2.FAILED_PRECONDITION,
    "SESSION_REPLACED": code_pb2.ABORTED,
}
"""By reason, as `ErrorReason` documents them."""


def status_of(error: DomainError) -> status_pb2.Status:
    """The message begins with the reason; the details carry ErrorInfo, and BadRequest for a bad field."""
    status = _status(CODES[error.reason], error.reason, error.message, error.metadata)
    if isinstance(error, InvalidField):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_cut(error.field, MAX_VALUE_BYTES), description=_cut(error.message, MAX_MESSAGE_BYTES)
        )
        status.details.append(_pack(error_details_pb2.BadRequest(field_violations=[violation])))
    return status


def internal() -> status_pb2.Status:
    """A fault of the server, or a message that cannot be decoded; says no more than that."""
    return _status(code_pb2.INTERNAL, "INTERNAL", "the server could not handle the call; its log says why", {})


def _status(code: code_pb2.Code.ValueType, reason: str, message: str, metadata: dict[str, str]) -> status_pb2.Status:
    shown = {key: _cut(value, MAX_VALUE_BYTES) for key, value in metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=shown)
    return status_pb2.Status(code=code, message=_cut(f"{reason}: {message}", MAX_MESSAGE_BYTES), details=[_pack(info)])


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode(errors="ignore")


def _pack(detail: error_details_pb2.ErrorInfo | error_details_pb2.BadRequest) -> Any:
    packed = Any()
    packed.Pack(detail)
    return packed
