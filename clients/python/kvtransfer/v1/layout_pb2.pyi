from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MemoryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MEMORY_KIND_UNSPECIFIED: _ClassVar[MemoryKind]
    MEMORY_KIND_DRAM: _ClassVar[MemoryKind]
    MEMORY_KIND_VRAM: _ClassVar[MemoryKind]
MEMORY_KIND_UNSPECIFIED: MemoryKind
MEMORY_KIND_DRAM: MemoryKind
MEMORY_KIND_VRAM: MemoryKind

class Layout(_message.Message):
    __slots__ = ("model", "groups", "scratch")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SCRATCH_FIELD_NUMBER: _ClassVar[int]
    model: str
    groups: _containers.RepeatedCompositeFieldContainer[BufferGroup]
    scratch: Region
    def __init__(self, model: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[BufferGroup, _Mapping]]] = ..., scratch: _Optional[_Union[Region, _Mapping]] = ...) -> None: ...

class BufferGroup(_message.Message):
    __slots__ = ("name", "kind", "page_tokens", "allow_missing", "parts")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[BufferGroup.Kind]
        KIND_PAGED: _ClassVar[BufferGroup.Kind]
        KIND_SLOT: _ClassVar[BufferGroup.Kind]
    KIND_UNSPECIFIED: BufferGroup.Kind
    KIND_PAGED: BufferGroup.Kind
    KIND_SLOT: BufferGroup.Kind
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: BufferGroup.Kind
    page_tokens: int
    allow_missing: bool
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[BufferGroup.Kind, str]] = ..., page_tokens: _Optional[int] = ..., allow_missing: bool = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("name", "dtype", "order", "total_heads", "first_head", "head_count", "item_bytes", "regions")
    class Order(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ORDER_UNSPECIFIED: _ClassVar[Part.Order]
        ORDER_WHOLE: _ClassVar[Part.Order]
        ORDER_TOKEN_HEAD: _ClassVar[Part.Order]
        ORDER_HEAD_TOKEN: _ClassVar[Part.Order]
    ORDER_UNSPECIFIED: Part.Order
    ORDER_WHOLE: Part.Order
    ORDER_TOKEN_HEAD: Part.Order
    ORDER_HEAD_TOKEN: Part.Order
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_HEADS_FIELD_NUMBER: _ClassVar[int]
    FIRST_HEAD_FIELD_NUMBER: _ClassVar[int]
    HEAD_COUNT_FIELD_NUMBER: _ClassVar[int]
    ITEM_BYTES_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    order: Part.Order
    total_heads: int
    first_head: int
    head_count: int
    item_bytes: int
    regions: _containers.RepeatedCompositeFieldContainer[Region]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., order: _Optional[_Union[Part.Order, str]] = ..., total_heads: _Optional[int] = ..., first_head: _Optional[int] = ..., head_count: _Optional[int] = ..., item_bytes: _Optional[int] = ..., regions: _Optional[_Iterable[_Union[Region, _Mapping]]] = ...) -> None: ...

class Region(_message.Message):
    __slots__ = ("layer", "address", "item_count", "item_stride", "memory", "device")
    LAYER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    ITEM_STRIDE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    layer: int
    address: int
    item_count: int
    item_stride: int
    memory: MemoryKind
    device: int
    def __init__(self, layer: _Optional[int] = ..., address: _Optional[int] = ..., item_count: _Optional[int] = ..., item_stride: _Optional[int] = ..., memory: _Optional[_Union[MemoryKind, str]] = ..., device: _Optional[int] = ...) -> None: ...
