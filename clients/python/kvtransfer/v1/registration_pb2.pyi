import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from kvtransfer.v1 import completion_pb2 as _completion_pb2
from kvtransfer.v1 import engine_pb2 as _engine_pb2
from kvtransfer.v1 import layout_pb2 as _layout_pb2
from kvtransfer.v1 import transfer_pb2 as _transfer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterWorkerRequest(_message.Message):
    __slots__ = ("engine_id", "role", "topology", "rank", "instance_id", "layout", "nixl_metadata", "lease_ttl", "birth_epoch", "rooms", "exited_instances", "endpoint", "labels", "user_agent")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NIXL_METADATA_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    BIRTH_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    EXITED_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    USER_AGENT_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    role: _engine_pb2.Role
    topology: _engine_pb2.Topology
    rank: _engine_pb2.Rank
    instance_id: str
    layout: _layout_pb2.Layout
    nixl_metadata: bytes
    lease_ttl: _duration_pb2.Duration
    birth_epoch: int
    rooms: _containers.RepeatedCompositeFieldContainer[RoomState]
    exited_instances: _containers.RepeatedScalarFieldContainer[str]
    endpoint: str
    labels: _containers.ScalarMap[str, str]
    user_agent: str
    def __init__(self, engine_id: _Optional[str] = ..., role: _Optional[_Union[_engine_pb2.Role, str]] = ..., topology: _Optional[_Union[_engine_pb2.Topology, _Mapping]] = ..., rank: _Optional[_Union[_engine_pb2.Rank, _Mapping]] = ..., instance_id: _Optional[str] = ..., layout: _Optional[_Union[_layout_pb2.Layout, _Mapping]] = ..., nixl_metadata: _Optional[bytes] = ..., lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., birth_epoch: _Optional[int] = ..., rooms: _Optional[_Iterable[_Union[RoomState, _Mapping]]] = ..., exited_instances: _Optional[_Iterable[str]] = ..., endpoint: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., user_agent: _Optional[str] = ...) -> None: ...

class RoomState(_message.Message):
    __slots__ = ("room", "join_id", "poll", "verdict", "failure", "peers", "completions", "time_left")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_FIELD_NUMBER: _ClassVar[int]
    room: int
    join_id: int
    poll: _transfer_pb2.KVPoll
    verdict: _transfer_pb2.KVPoll
    failure: _transfer_pb2.Failure
    peers: _containers.RepeatedCompositeFieldContainer[_engine_pb2.Peer]
    completions: _containers.RepeatedCompositeFieldContainer[_completion_pb2.Completion]
    time_left: _duration_pb2.Duration
    def __init__(self, room: _Optional[int] = ..., join_id: _Optional[int] = ..., poll: _Optional[_Union[_transfer_pb2.KVPoll, str]] = ..., verdict: _Optional[_Union[_transfer_pb2.KVPoll, str]] = ..., failure: _Optional[_Union[_transfer_pb2.Failure, _Mapping]] = ..., peers: _Optional[_Iterable[_Union[_engine_pb2.Peer, _Mapping]]] = ..., completions: _Optional[_Iterable[_Union[_completion_pb2.Completion, _Mapping]]] = ..., time_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class RegisterWorkerResponse(_message.Message):
    __slots__ = ("worker", "lease_ttl", "birth_epoch")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    BIRTH_EPOCH_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    lease_ttl: _duration_pb2.Duration
    birth_epoch: int
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., birth_epoch: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker", "draining")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    draining: bool
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., draining: bool = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("lease_ttl",)
    LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    lease_ttl: _duration_pb2.Duration
    def __init__(self, lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DeregisterWorkerRequest(_message.Message):
    __slots__ = ("worker", "drained")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    drained: bool
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., drained: bool = ...) -> None: ...

class DeregisterWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
