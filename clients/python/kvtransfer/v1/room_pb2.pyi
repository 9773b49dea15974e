import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.rpc import status_pb2 as _status_pb2
from kvtransfer.v1 import completion_pb2 as _completion_pb2
from kvtransfer.v1 import engine_pb2 as _engine_pb2
from kvtransfer.v1 import transfer_pb2 as _transfer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Join(_message.Message):
    __slots__ = ("room", "join_id", "peer_engine_id", "peer_dp_rank", "destination", "timeouts", "request_id", "traceparent")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_DP_RANK_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    room: int
    join_id: int
    peer_engine_id: str
    peer_dp_rank: int
    destination: Destination
    timeouts: Timeouts
    request_id: str
    traceparent: str
    def __init__(self, room: _Optional[int] = ..., join_id: _Optional[int] = ..., peer_engine_id: _Optional[str] = ..., peer_dp_rank: _Optional[int] = ..., destination: _Optional[_Union[Destination, _Mapping]] = ..., timeouts: _Optional[_Union[Timeouts, _Mapping]] = ..., request_id: _Optional[str] = ..., traceparent: _Optional[str] = ...) -> None: ...

class Destination(_message.Message):
    __slots__ = ("tokens", "prefix_tokens", "groups")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    prefix_tokens: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupIndices]
    def __init__(self, tokens: _Optional[int] = ..., prefix_tokens: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupIndices, _Mapping]]] = ...) -> None: ...

class GroupIndices(_message.Message):
    __slots__ = ("group", "first_token", "indices")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    group: str
    first_token: int
    indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., first_token: _Optional[int] = ..., indices: _Optional[_Iterable[int]] = ...) -> None: ...

class Timeouts(_message.Message):
    __slots__ = ("bootstrapping", "waiting_for_input", "no_progress", "total")
    BOOTSTRAPPING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_INPUT_FIELD_NUMBER: _ClassVar[int]
    NO_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    bootstrapping: _duration_pb2.Duration
    waiting_for_input: _duration_pb2.Duration
    no_progress: _duration_pb2.Duration
    total: _duration_pb2.Duration
    def __init__(self, bootstrapping: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., waiting_for_input: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., no_progress: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., total: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("receivers", "destination")
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    receivers: _containers.RepeatedCompositeFieldContainer[Offerer]
    destination: Destination
    def __init__(self, receivers: _Optional[_Iterable[_Union[Offerer, _Mapping]]] = ..., destination: _Optional[_Union[Destination, _Mapping]] = ...) -> None: ...

class Offerer(_message.Message):
    __slots__ = ("receiver", "offer_id")
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    OFFER_ID_FIELD_NUMBER: _ClassVar[int]
    receiver: _engine_pb2.Peer
    offer_id: int
    def __init__(self, receiver: _Optional[_Union[_engine_pb2.Peer, _Mapping]] = ..., offer_id: _Optional[int] = ...) -> None: ...

class HandshakeRequest(_message.Message):
    __slots__ = ("worker", "join")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    join: Join
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., join: _Optional[_Union[Join, _Mapping]] = ...) -> None: ...

class HandshakeResponse(_message.Message):
    __slots__ = ("transfer", "offers", "completions")
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    transfer: _transfer_pb2.Transfer
    offers: _containers.RepeatedCompositeFieldContainer[Offer]
    completions: _containers.RepeatedCompositeFieldContainer[_completion_pb2.Completion]
    def __init__(self, transfer: _Optional[_Union[_transfer_pb2.Transfer, _Mapping]] = ..., offers: _Optional[_Iterable[_Union[Offer, _Mapping]]] = ..., completions: _Optional[_Iterable[_Union[_completion_pb2.Completion, _Mapping]]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("room", "join_id", "poll", "transferred_bytes", "failure", "completions")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    TRANSFERRED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    room: int
    join_id: int
    poll: _transfer_pb2.KVPoll
    transferred_bytes: int
    failure: _transfer_pb2.Failure
    completions: _containers.RepeatedCompositeFieldContainer[_completion_pb2.Completion]
    def __init__(self, room: _Optional[int] = ..., join_id: _Optional[int] = ..., poll: _Optional[_Union[_transfer_pb2.KVPoll, str]] = ..., transferred_bytes: _Optional[int] = ..., failure: _Optional[_Union[_transfer_pb2.Failure, _Mapping]] = ..., completions: _Optional[_Iterable[_Union[_completion_pb2.Completion, _Mapping]]] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("worker", "progress")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_transfer_pb2.RoomResult]
    def __init__(self, results: _Optional[_Iterable[_Union[_transfer_pb2.RoomResult, _Mapping]]] = ...) -> None: ...

class CleanupItem(_message.Message):
    __slots__ = ("room", "join_id", "last", "drained")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    room: int
    join_id: int
    last: Progress
    drained: bool
    def __init__(self, room: _Optional[int] = ..., join_id: _Optional[int] = ..., last: _Optional[_Union[Progress, _Mapping]] = ..., drained: bool = ...) -> None: ...

class CleanupRequest(_message.Message):
    __slots__ = ("worker", "items")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    items: _containers.RepeatedCompositeFieldContainer[CleanupItem]
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., items: _Optional[_Iterable[_Union[CleanupItem, _Mapping]]] = ...) -> None: ...

class CleanupResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[CleanupResult]
    def __init__(self, results: _Optional[_Iterable[_Union[CleanupResult, _Mapping]]] = ...) -> None: ...

class CleanupResult(_message.Message):
    __slots__ = ("room", "release", "error")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    room: int
    release: Release
    error: _status_pb2.Status
    def __init__(self, room: _Optional[int] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("room", "join_id", "state", "waiting_for", "quarantine_left", "presumed")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Release.State]
        STATE_FREE: _ClassVar[Release.State]
        STATE_WAITING: _ClassVar[Release.State]
        STATE_QUARANTINED: _ClassVar[Release.State]
        STATE_UNKNOWN: _ClassVar[Release.State]
    STATE_UNSPECIFIED: Release.State
    STATE_FREE: Release.State
    STATE_WAITING: Release.State
    STATE_QUARANTINED: Release.State
    STATE_UNKNOWN: Release.State
    ROOM_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_LEFT_FIELD_NUMBER: _ClassVar[int]
    PRESUMED_FIELD_NUMBER: _ClassVar[int]
    room: int
    join_id: int
    state: Release.State
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    quarantine_left: _duration_pb2.Duration
    presumed: bool
    def __init__(self, room: _Optional[int] = ..., join_id: _Optional[int] = ..., state: _Optional[_Union[Release.State, str]] = ..., waiting_for: _Optional[_Iterable[str]] = ..., quarantine_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., presumed: bool = ...) -> None: ...
