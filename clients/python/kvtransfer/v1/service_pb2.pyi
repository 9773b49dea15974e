import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from kvtransfer.v1 import engine_pb2 as _engine_pb2
from kvtransfer.v1 import link_pb2 as _link_pb2
from kvtransfer.v1 import registration_pb2 as _registration_pb2
from kvtransfer.v1 import room_pb2 as _room_pb2
from kvtransfer.v1 import session_pb2 as _session_pb2
from kvtransfer.v1 import transfer_pb2 as _transfer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "server_id", "start_time", "revision", "features", "limits")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    version: str
    server_id: str
    start_time: _timestamp_pb2.Timestamp
    revision: int
    features: _containers.RepeatedScalarFieldContainer[str]
    limits: Limits
    def __init__(self, version: _Optional[str] = ..., server_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revision: _Optional[int] = ..., features: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("open_rooms", "room_indices", "message_bytes", "max_lease_ttl", "timeouts", "quarantine", "retention", "vote", "reconnect_grace", "recovery")
    OPEN_ROOMS_FIELD_NUMBER: _ClassVar[int]
    ROOM_INDICES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    RECONNECT_GRACE_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_FIELD_NUMBER: _ClassVar[int]
    open_rooms: int
    room_indices: int
    message_bytes: int
    max_lease_ttl: _duration_pb2.Duration
    timeouts: _room_pb2.Timeouts
    quarantine: _duration_pb2.Duration
    retention: _duration_pb2.Duration
    vote: _duration_pb2.Duration
    reconnect_grace: _duration_pb2.Duration
    recovery: _duration_pb2.Duration
    def __init__(self, open_rooms: _Optional[int] = ..., room_indices: _Optional[int] = ..., message_bytes: _Optional[int] = ..., max_lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., timeouts: _Optional[_Union[_room_pb2.Timeouts, _Mapping]] = ..., quarantine: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retention: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., vote: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., reconnect_grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., recovery: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
