from kvtransfer.v1 import engine_pb2 as _engine_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Link(_message.Message):
    __slots__ = ("sender", "receiver", "spans")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    sender: _engine_pb2.Peer
    receiver: _engine_pb2.Peer
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    def __init__(self, sender: _Optional[_Union[_engine_pb2.Peer, _Mapping]] = ..., receiver: _Optional[_Union[_engine_pb2.Peer, _Mapping]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("group", "part", "layers", "sender_first_head", "receiver_first_head", "head_count")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIRST_HEAD_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIRST_HEAD_FIELD_NUMBER: _ClassVar[int]
    HEAD_COUNT_FIELD_NUMBER: _ClassVar[int]
    group: str
    part: str
    layers: _containers.RepeatedScalarFieldContainer[int]
    sender_first_head: int
    receiver_first_head: int
    head_count: int
    def __init__(self, group: _Optional[str] = ..., part: _Optional[str] = ..., layers: _Optional[_Iterable[int]] = ..., sender_first_head: _Optional[int] = ..., receiver_first_head: _Optional[int] = ..., head_count: _Optional[int] = ...) -> None: ...

class GetLinksRequest(_message.Message):
    __slots__ = ("engine_id", "dp_rank", "peer_engine_id", "peer_dp_rank", "worker_id")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    PEER_ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_DP_RANK_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    dp_rank: int
    peer_engine_id: str
    peer_dp_rank: int
    worker_id: str
    def __init__(self, engine_id: _Optional[str] = ..., dp_rank: _Optional[int] = ..., peer_engine_id: _Optional[str] = ..., peer_dp_rank: _Optional[int] = ..., worker_id: _Optional[str] = ...) -> None: ...

class GetLinksResponse(_message.Message):
    __slots__ = ("links", "peers")
    LINKS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    links: _containers.RepeatedCompositeFieldContainer[Link]
    peers: _containers.RepeatedCompositeFieldContainer[_engine_pb2.Worker]
    def __init__(self, links: _Optional[_Iterable[_Union[Link, _Mapping]]] = ..., peers: _Optional[_Iterable[_Union[_engine_pb2.Worker, _Mapping]]] = ...) -> None: ...
