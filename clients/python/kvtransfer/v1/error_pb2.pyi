from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from typing import ClassVar as _ClassVar

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_WORKER_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_STALE_EPOCH: _ClassVar[ErrorReason]
    ERROR_REASON_ENGINE_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_ENGINE_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_ROOM_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_ROOM_REUSED: _ClassVar[ErrorReason]
    ERROR_REASON_LAYOUT_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_LIMIT_REACHED: _ClassVar[ErrorReason]
    ERROR_REASON_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_JOIN_CONFLICT: _ClassVar[ErrorReason]
    ERROR_REASON_NOT_A_PARTICIPANT: _ClassVar[ErrorReason]
    ERROR_REASON_SESSION_REPLACED: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_WORKER_NOT_FOUND: ErrorReason
ERROR_REASON_STALE_EPOCH: ErrorReason
ERROR_REASON_ENGINE_MISMATCH: ErrorReason
ERROR_REASON_ENGINE_NOT_FOUND: ErrorReason
ERROR_REASON_ROOM_NOT_FOUND: ErrorReason
ERROR_REASON_ROOM_REUSED: ErrorReason
ERROR_REASON_LAYOUT_MISMATCH: ErrorReason
ERROR_REASON_LIMIT_REACHED: ErrorReason
ERROR_REASON_DRAINING: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_JOIN_CONFLICT: ErrorReason
ERROR_REASON_NOT_A_PARTICIPANT: ErrorReason
ERROR_REASON_SESSION_REPLACED: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
