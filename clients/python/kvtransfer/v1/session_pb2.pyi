import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.rpc import status_pb2 as _status_pb2
from kvtransfer.v1 import completion_pb2 as _completion_pb2
from kvtransfer.v1 import engine_pb2 as _engine_pb2
from kvtransfer.v1 import room_pb2 as _room_pb2
from kvtransfer.v1 import transfer_pb2 as _transfer_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionRequest(_message.Message):
    __slots__ = ("worker", "batch", "joins", "progress", "cleanups", "draining")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CLEANUPS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    worker: _engine_pb2.WorkerRef
    batch: int
    joins: _containers.RepeatedCompositeFieldContainer[_room_pb2.Join]
    progress: _containers.RepeatedCompositeFieldContainer[_room_pb2.Progress]
    cleanups: _containers.RepeatedCompositeFieldContainer[_room_pb2.CleanupItem]
    draining: bool
    def __init__(self, worker: _Optional[_Union[_engine_pb2.WorkerRef, _Mapping]] = ..., batch: _Optional[int] = ..., joins: _Optional[_Iterable[_Union[_room_pb2.Join, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[_room_pb2.Progress, _Mapping]]] = ..., cleanups: _Optional[_Iterable[_Union[_room_pb2.CleanupItem, _Mapping]]] = ..., draining: bool = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("applied_batch", "lease_ttl", "rooms", "offers", "completions", "releases", "errors", "peers")
    APPLIED_BATCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    applied_batch: int
    lease_ttl: _duration_pb2.Duration
    rooms: _containers.RepeatedCompositeFieldContainer[_transfer_pb2.RoomUpdate]
    offers: _containers.RepeatedCompositeFieldContainer[RoomOffers]
    completions: _containers.RepeatedCompositeFieldContainer[_completion_pb2.Completion]
    releases: _containers.RepeatedCompositeFieldContainer[_room_pb2.Release]
    errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    peers: _containers.RepeatedCompositeFieldContainer[PeerChange]
    def __init__(self, applied_batch: _Optional[int] = ..., lease_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rooms: _Optional[_Iterable[_Union[_transfer_pb2.RoomUpdate, _Mapping]]] = ..., offers: _Optional[_Iterable[_Union[RoomOffers, _Mapping]]] = ..., completions: _Optional[_Iterable[_Union[_completion_pb2.Completion, _Mapping]]] = ..., releases: _Optional[_Iterable[_Union[_room_pb2.Release, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., peers: _Optional[_Iterable[_Union[PeerChange, _Mapping]]] = ...) -> None: ...

class ItemError(_message.Message):
    __slots__ = ("batch", "kind", "room", "error")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ItemError.Kind]
        KIND_JOIN: _ClassVar[ItemError.Kind]
        KIND_PROGRESS: _ClassVar[ItemError.Kind]
        KIND_CLEANUP: _ClassVar[ItemError.Kind]
    KIND_UNSPECIFIED: ItemError.Kind
    KIND_JOIN: ItemError.Kind
    KIND_PROGRESS: ItemError.Kind
    KIND_CLEANUP: ItemError.Kind
    BATCH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    batch: int
    kind: ItemError.Kind
    room: int
    error: _status_pb2.Status
    def __init__(self, batch: _Optional[int] = ..., kind: _Optional[_Union[ItemError.Kind, str]] = ..., room: _Optional[int] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class PeerChange(_message.Message):
    __slots__ = ("peer", "kind", "engine_id", "dp_rank", "message")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[PeerChange.Kind]
        KIND_READY: _ClassVar[PeerChange.Kind]
        KIND_DRAINING: _ClassVar[PeerChange.Kind]
        KIND_GONE: _ClassVar[PeerChange.Kind]
        KIND_UNFIT: _ClassVar[PeerChange.Kind]
    KIND_UNSPECIFIED: PeerChange.Kind
    KIND_READY: PeerChange.Kind
    KIND_DRAINING: PeerChange.Kind
    KIND_GONE: PeerChange.Kind
    KIND_UNFIT: PeerChange.Kind
    PEER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    peer: _engine_pb2.Peer
    kind: PeerChange.Kind
    engine_id: str
    dp_rank: int
    message: str
    def __init__(self, peer: _Optional[_Union[_engine_pb2.Peer, _Mapping]] = ..., kind: _Optional[_Union[PeerChange.Kind, str]] = ..., engine_id: _Optional[str] = ..., dp_rank: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class RoomOffers(_message.Message):
    __slots__ = ("room", "offers")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    room: int
    offers: _containers.RepeatedCompositeFieldContainer[_room_pb2.Offer]
    def __init__(self, room: _Optional[int] = ..., offers: _Optional[_Iterable[_Union[_room_pb2.Offer, _Mapping]]] = ...) -> None: ...
