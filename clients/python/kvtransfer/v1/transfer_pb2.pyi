import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.rpc import status_pb2 as _status_pb2
from kvtransfer.v1 import engine_pb2 as _engine_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KVPoll(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KV_POLL_UNSPECIFIED: _ClassVar[KVPoll]
    KV_POLL_FAILED: _ClassVar[KVPoll]
    KV_POLL_BOOTSTRAPPING: _ClassVar[KVPoll]
    KV_POLL_WAITING_FOR_INPUT: _ClassVar[KVPoll]
    KV_POLL_TRANSFERRING: _ClassVar[KVPoll]
    KV_POLL_SUCCESS: _ClassVar[KVPoll]

class FailureReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAILURE_REASON_UNSPECIFIED: _ClassVar[FailureReason]
    FAILURE_REASON_ABORTED: _ClassVar[FailureReason]
    FAILURE_REASON_LEASE_EXPIRED: _ClassVar[FailureReason]
    FAILURE_REASON_WORKER_REPLACED: _ClassVar[FailureReason]
    FAILURE_REASON_WORKER_DEREGISTERED: _ClassVar[FailureReason]
    FAILURE_REASON_HANDSHAKE_TIMEOUT: _ClassVar[FailureReason]
    FAILURE_REASON_INPUT_TIMEOUT: _ClassVar[FailureReason]
    FAILURE_REASON_NO_PROGRESS: _ClassVar[FailureReason]
    FAILURE_REASON_TRANSFER_TIMEOUT: _ClassVar[FailureReason]
    FAILURE_REASON_DISCONNECTED: _ClassVar[FailureReason]
    FAILURE_REASON_WORKER_REPORTED: _ClassVar[FailureReason]
    FAILURE_REASON_COMPLETION_MISMATCH: _ClassVar[FailureReason]
    FAILURE_REASON_LAYOUT_MISMATCH: _ClassVar[FailureReason]
    FAILURE_REASON_SERVICE_RESTARTED: _ClassVar[FailureReason]
    FAILURE_REASON_SESSION_LOST: _ClassVar[FailureReason]

class TransferView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSFER_VIEW_UNSPECIFIED: _ClassVar[TransferView]
    TRANSFER_VIEW_BASIC: _ClassVar[TransferView]
    TRANSFER_VIEW_FULL: _ClassVar[TransferView]
KV_POLL_UNSPECIFIED: KVPoll
KV_POLL_FAILED: KVPoll
KV_POLL_BOOTSTRAPPING: KVPoll
KV_POLL_WAITING_FOR_INPUT: KVPoll
KV_POLL_TRANSFERRING: KVPoll
KV_POLL_SUCCESS: KVPoll
FAILURE_REASON_UNSPECIFIED: FailureReason
FAILURE_REASON_ABORTED: FailureReason
FAILURE_REASON_LEASE_EXPIRED: FailureReason
FAILURE_REASON_WORKER_REPLACED: FailureReason
FAILURE_REASON_WORKER_DEREGISTERED: FailureReason
FAILURE_REASON_HANDSHAKE_TIMEOUT: FailureReason
FAILURE_REASON_INPUT_TIMEOUT: FailureReason
FAILURE_REASON_NO_PROGRESS: FailureReason
FAILURE_REASON_TRANSFER_TIMEOUT: FailureReason
FAILURE_REASON_DISCONNECTED: FailureReason
FAILURE_REASON_WORKER_REPORTED: FailureReason
FAILURE_REASON_COMPLETION_MISMATCH: FailureReason
FAILURE_REASON_LAYOUT_MISMATCH: FailureReason
FAILURE_REASON_SERVICE_RESTARTED: FailureReason
FAILURE_REASON_SESSION_LOST: FailureReason
TRANSFER_VIEW_UNSPECIFIED: TransferView
TRANSFER_VIEW_BASIC: TransferView
TRANSFER_VIEW_FULL: TransferView

class Transfer(_message.Message):
    __slots__ = ("room", "poll", "failure", "participants", "prefill", "decode", "tokens", "request_id", "traceparent", "revision", "create_time", "update_time", "recovering")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    room: int
    poll: KVPoll
    failure: Failure
    participants: _containers.RepeatedCompositeFieldContainer[Participant]
    prefill: Side
    decode: Side
    tokens: int
    request_id: str
    traceparent: str
    revision: int
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    recovering: bool
    def __init__(self, room: _Optional[int] = ..., poll: _Optional[_Union[KVPoll, str]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., participants: _Optional[_Iterable[_Union[Participant, _Mapping]]] = ..., prefill: _Optional[_Union[Side, _Mapping]] = ..., decode: _Optional[_Union[Side, _Mapping]] = ..., tokens: _Optional[int] = ..., request_id: _Optional[str] = ..., traceparent: _Optional[str] = ..., revision: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., recovering: bool = ...) -> None: ...

class Side(_message.Message):
    __slots__ = ("engine_id", "dp_rank")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    dp_rank: int
    def __init__(self, engine_id: _Optional[str] = ..., dp_rank: _Optional[int] = ...) -> None: ...

class Participant(_message.Message):
    __slots__ = ("worker", "role", "poll", "transferred_bytes", "released", "update_time")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    TRANSFERRED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    role: _engine_pb2.Role
    poll: KVPoll
    transferred_bytes: int
    released: bool
    update_time: _timestamp_pb2.Timestamp
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., role: _Optional[_Union[_engine_pb2.Role, str]] = ..., poll: _Optional[_Union[KVPoll, str]] = ..., transferred_bytes: _Optional[int] = ..., released: bool = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("reason", "message", "worker_id")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    reason: FailureReason
    message: str
    worker_id: str
    def __init__(self, reason: _Optional[_Union[FailureReason, str]] = ..., message: _Optional[str] = ..., worker_id: _Optional[str] = ...) -> None: ...

class PollRequest(_message.Message):
    __slots__ = ("rooms", "view")
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    rooms: _containers.RepeatedScalarFieldContainer[int]
    view: TransferView
    def __init__(self, rooms: _Optional[_Iterable[int]] = ..., view: _Optional[_Union[TransferView, str]] = ...) -> None: ...

class PollResponse(_message.Message):
    __slots__ = ("transfers", "unknown_rooms", "recovering")
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_ROOMS_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    transfers: _containers.RepeatedCompositeFieldContainer[Transfer]
    unknown_rooms: _containers.RepeatedScalarFieldContainer[int]
    recovering: bool
    def __init__(self, transfers: _Optional[_Iterable[_Union[Transfer, _Mapping]]] = ..., unknown_rooms: _Optional[_Iterable[int]] = ..., recovering: bool = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("rooms", "engine_id", "after_revision", "view")
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_REVISION_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    rooms: _containers.RepeatedScalarFieldContainer[int]
    engine_id: str
    after_revision: int
    view: TransferView
    def __init__(self, rooms: _Optional[_Iterable[int]] = ..., engine_id: _Optional[str] = ..., after_revision: _Optional[int] = ..., view: _Optional[_Union[TransferView, str]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("transfers", "forgotten_rooms", "revision")
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_ROOMS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    transfers: _containers.RepeatedCompositeFieldContainer[Transfer]
    forgotten_rooms: _containers.RepeatedScalarFieldContainer[int]
    revision: int
    def __init__(self, transfers: _Optional[_Iterable[_Union[Transfer, _Mapping]]] = ..., forgotten_rooms: _Optional[_Iterable[int]] = ..., revision: _Optional[int] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("rooms", "message")
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    rooms: _containers.RepeatedScalarFieldContainer[int]
    message: str
    def __init__(self, rooms: _Optional[_Iterable[int]] = ..., message: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RoomResult]
    def __init__(self, results: _Optional[_Iterable[_Union[RoomResult, _Mapping]]] = ...) -> None: ...

class ListTransfersRequest(_message.Message):
    __slots__ = ("engine_id", "polls", "request_id", "page_size", "page_token", "view")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    POLLS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    polls: _containers.RepeatedScalarFieldContainer[KVPoll]
    request_id: str
    page_size: int
    page_token: str
    view: TransferView
    def __init__(self, engine_id: _Optional[str] = ..., polls: _Optional[_Iterable[_Union[KVPoll, str]]] = ..., request_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., view: _Optional[_Union[TransferView, str]] = ...) -> None: ...

class ListTransfersResponse(_message.Message):
    __slots__ = ("transfers", "next_page_token", "revision")
    TRANSFERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    transfers: _containers.RepeatedCompositeFieldContainer[Transfer]
    next_page_token: str
    revision: int
    def __init__(self, transfers: _Optional[_Iterable[_Union[Transfer, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class RoomResult(_message.Message):
    __slots__ = ("room", "update", "error")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    room: int
    update: RoomUpdate
    error: _status_pb2.Status
    def __init__(self, room: _Optional[int] = ..., update: _Optional[_Union[RoomUpdate, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class RoomUpdate(_message.Message):
    __slots__ = ("room", "join_id", "poll", "own_poll", "failure", "senders", "revision", "confirmed")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    OWN_POLL_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SENDERS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    room: int
    join_id: int
    poll: KVPoll
    own_poll: KVPoll
    failure: Failure
    senders: _containers.RepeatedCompositeFieldContainer[_engine_pb2.Peer]
    revision: int
    confirmed: bool
    def __init__(self, room: _Optional[int] = ..., join_id: _Optional[int] = ..., poll: _Optional[_Union[KVPoll, str]] = ..., own_poll: _Optional[_Union[KVPoll, str]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., senders: _Optional[_Iterable[_Union[_engine_pb2.Peer, _Mapping]]] = ..., revision: _Optional[int] = ..., confirmed: bool = ...) -> None: ...
