import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from kvtransfer.v1 import layout_pb2 as _layout_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_PREFILL: _ClassVar[Role]
    ROLE_DECODE: _ClassVar[Role]

class EngineState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENGINE_STATE_UNSPECIFIED: _ClassVar[EngineState]
    ENGINE_STATE_INCOMPLETE: _ClassVar[EngineState]
    ENGINE_STATE_READY: _ClassVar[EngineState]
    ENGINE_STATE_DRAINING: _ClassVar[EngineState]

class WorkerView(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_VIEW_UNSPECIFIED: _ClassVar[WorkerView]
    WORKER_VIEW_BASIC: _ClassVar[WorkerView]
    WORKER_VIEW_FULL: _ClassVar[WorkerView]
ROLE_UNSPECIFIED: Role
ROLE_PREFILL: Role
ROLE_DECODE: Role
ENGINE_STATE_UNSPECIFIED: EngineState
ENGINE_STATE_INCOMPLETE: EngineState
ENGINE_STATE_READY: EngineState
ENGINE_STATE_DRAINING: EngineState
WORKER_VIEW_UNSPECIFIED: WorkerView
WORKER_VIEW_BASIC: WorkerView
WORKER_VIEW_FULL: WorkerView

class Topology(_message.Message):
    __slots__ = ("tp_size", "pp_size", "dp_size")
    TP_SIZE_FIELD_NUMBER: _ClassVar[int]
    PP_SIZE_FIELD_NUMBER: _ClassVar[int]
    DP_SIZE_FIELD_NUMBER: _ClassVar[int]
    tp_size: int
    pp_size: int
    dp_size: int
    def __init__(self, tp_size: _Optional[int] = ..., pp_size: _Optional[int] = ..., dp_size: _Optional[int] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("tp_rank", "pp_rank", "dp_rank")
    TP_RANK_FIELD_NUMBER: _ClassVar[int]
    PP_RANK_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    tp_rank: int
    pp_rank: int
    dp_rank: int
    def __init__(self, tp_rank: _Optional[int] = ..., pp_rank: _Optional[int] = ..., dp_rank: _Optional[int] = ...) -> None: ...

class WorkerRef(_message.Message):
    __slots__ = ("worker_id", "epoch")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    epoch: int
    def __init__(self, worker_id: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("worker_id", "instance_id")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    instance_id: str
    def __init__(self, worker_id: _Optional[str] = ..., instance_id: _Optional[str] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("ref", "rank", "layout", "nixl_metadata", "lease_left", "instance_id", "draining", "endpoint", "labels", "user_agent", "open_rooms")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REF_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NIXL_METADATA_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    USER_AGENT_FIELD_NUMBER: _ClassVar[int]
    OPEN_ROOMS_FIELD_NUMBER: _ClassVar[int]
    ref: WorkerRef
    rank: Rank
    layout: _layout_pb2.Layout
    nixl_metadata: bytes
    lease_left: _duration_pb2.Duration
    instance_id: str
    draining: bool
    endpoint: str
    labels: _containers.ScalarMap[str, str]
    user_agent: str
    open_rooms: int
    def __init__(self, ref: _Optional[_Union[WorkerRef, _Mapping]] = ..., rank: _Optional[_Union[Rank, _Mapping]] = ..., layout: _Optional[_Union[_layout_pb2.Layout, _Mapping]] = ..., nixl_metadata: _Optional[bytes] = ..., lease_left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., instance_id: _Optional[str] = ..., draining: bool = ..., endpoint: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., user_agent: _Optional[str] = ..., open_rooms: _Optional[int] = ...) -> None: ...

class Engine(_message.Message):
    __slots__ = ("engine_id", "role", "topology", "workers", "state", "model")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    role: Role
    topology: Topology
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    state: EngineState
    model: str
    def __init__(self, engine_id: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., topology: _Optional[_Union[Topology, _Mapping]] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., state: _Optional[_Union[EngineState, str]] = ..., model: _Optional[str] = ...) -> None: ...

class GetEngineRequest(_message.Message):
    __slots__ = ("engine_id", "view")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    view: WorkerView
    def __init__(self, engine_id: _Optional[str] = ..., view: _Optional[_Union[WorkerView, str]] = ...) -> None: ...

class GetEngineResponse(_message.Message):
    __slots__ = ("engine",)
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    engine: Engine
    def __init__(self, engine: _Optional[_Union[Engine, _Mapping]] = ...) -> None: ...

class ListEnginesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "role", "model")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    role: Role
    model: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., model: _Optional[str] = ...) -> None: ...

class ListEnginesResponse(_message.Message):
    __slots__ = ("engines", "next_page_token")
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    engines: _containers.RepeatedCompositeFieldContainer[Engine]
    next_page_token: str
    def __init__(self, engines: _Optional[_Iterable[_Union[Engine, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
