from kvtransfer.v1 import engine_pb2 as _engine_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Completion(_message.Message):
    __slots__ = ("room", "sender", "receiver", "offer_id", "sender_join_id", "groups", "bytes")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    OFFER_ID_FIELD_NUMBER: _ClassVar[int]
    SENDER_JOIN_ID_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    room: int
    sender: str
    receiver: str
    offer_id: int
    sender_join_id: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupRanges]
    bytes: int
    def __init__(self, room: _Optional[int] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., offer_id: _Optional[int] = ..., sender_join_id: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupRanges, _Mapping]]] = ..., bytes: _Optional[int] = ...) -> None: ...

class GroupRanges(_message.Message):
    __slots__ = ("group", "ranges")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    def __init__(self, group: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "count")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    first: int
    count: int
    def __init__(self, first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class Notification(_message.Message):
    __slots__ = ("completion", "hello")
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    completion: Completion
    hello: Hello
    def __init__(self, completion: _Optional[_Union[Completion, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("sender",)
    SENDER_FIELD_NUMBER: _ClassVar[int]
    sender: _engine_pb2.Peer
    def __init__(self, sender: _Optional[_Union[_engine_pb2.Peer, _Mapping]] = ...) -> None: ...
