"""Where a buffer lies: torch tensors, numpy arrays and raw addresses, seen alike.

Tensors are recognised by what they can do, so that neither torch nor a GPU is needed to describe host memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

from kvtransfer.errors import InvalidField

Kind = Literal["dram", "vram"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Raw memory. It must not move or be unmapped while a mover has it."""

    address: int
    """First byte; all 64 bits may be used."""
    nbytes: int
    kind: Kind = "dram"
    device: int = 0
    """Device ordinal of `vram`; 0 for `dram`."""
    item_bytes: int = 0
    """Bytes of one page or slot. Must be given where the memory holds a part's items."""
    item_count: int = 0
    """Items, likewise."""
    item_stride: int = 0
    """Bytes from one item to the next; `item_bytes` if 0."""


@runtime_checkable
class Tensor(Protocol):
    """What is used of `torch.Tensor`."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def device(self) -> Any: ...
    def data_ptr(self) -> int: ...
    def element_size(self) -> int: ...
    def stride(self) -> tuple[int, ...]: ...
    def untyped_storage(self) -> Any: ...


Buffer = Memory | Tensor | npt.NDArray[Any]
"""Items along the first axis; the other axes of an item lie dense in memory, in C order."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Consecutive bytes of one memory."""

    address: int
    nbytes: int
    kind: Kind
    device: int

    @property
    def end(self) -> int:
        """First address past it."""
        return self.address + self.nbytes

    def __str__(self) -> str:
        return f"[{self.address:#x}, {self.end:#x}) of {self.kind}:{self.device}"


@dataclass(frozen=True, slots=True)
class ItemArray:
    """A strided array of items, and the allocation behind it."""

    address: int
    item_count: int
    item_bytes: int
    item_stride: int
    dtype: str
    """By its ml_dtypes name; empty for raw memory."""
    allocation: Extent

    @property
    def extent(self) -> Extent:
        """From the first byte of the first item to the last byte of the last."""
        nbytes = (self.item_count - 1) * self.item_stride + self.item_bytes
        return Extent(self.address, nbytes, self.allocation.kind, self.allocation.device)


def describe(buffer: Buffer, field: str) -> ItemArray:
    """Find out where the items of `buffer` lie.

    Raises:
        InvalidField: `field` is no buffer, is empty, or its items are not dense or overlap.
    """
    if isinstance(buffer, Memory):
        items = _raw_items(buffer, field)
    elif isinstance(buffer, np.ndarray):
        strides = buffer.strides
        items = _dense_items(
            buffer.ctypes.data,
            buffer.shape,
            strides,
            buffer.itemsize,
            buffer.dtype.name,
            allocation_of(buffer, field),
            field,
        )
    elif _is_tensor(buffer):
        size = buffer.element_size()
        strides = tuple(step * size for step in buffer.stride())
        dtype = str(buffer.dtype).removeprefix("torch.")
        address = buffer.data_ptr() % 2**64
        items = _dense_items(address, tuple(buffer.shape), strides, size, dtype, allocation_of(buffer, field), field)
    else:
        raise InvalidField(field, f"not a tensor, an array or Memory: {type(buffer).__name__}")
    if items.item_stride < items.item_bytes:
        raise InvalidField(field, f"items overlap: stride of {items.item_stride} bytes, items of {items.item_bytes}")
    return items


def allocation_of(buffer: Buffer, field: str) -> Extent:
    """The allocation behind `buffer`: a tensor's storage, the array at the end of an array's bases, or itself.

    Raises:
        InvalidField: `field` is no buffer, or on a device that NIXL does not know.
    """
    if isinstance(buffer, Memory):
        if buffer.nbytes < 1 or not 0 < buffer.address < 2**64 or buffer.address + buffer.nbytes > 2**64:
            raise InvalidField(field, f"no address range: {buffer.nbytes} bytes at {buffer.address:#x}")
        if buffer.kind not in ("dram", "vram"):
            raise InvalidField(field, f"kind of memory {buffer.kind!r}, not 'dram' or 'vram'")
        return Extent(buffer.address, buffer.nbytes, buffer.kind, buffer.device)
    if isinstance(buffer, np.ndarray):
        root = buffer
        while isinstance(root.base, np.ndarray):
            root = root.base
        low, high = np.lib.array_utils.byte_bounds(root)
        return Extent(low, high - low, "dram", 0)
    if _is_tensor(buffer):
        storage = buffer.untyped_storage()
        kind, device = _place(buffer, field)
        return Extent(storage.data_ptr() % 2**64, storage.nbytes(), kind, device)
    raise InvalidField(field, f"not a tensor, an array or Memory: {type(buffer).__name__}")


def merged(extents: Iterable[Extent]) -> tuple[Extent, ...]:
    """Join extents that overlap; host memory also where they touch. Each one takes 44 bytes of NIXL's metadata."""
    result: list[Extent] = []
    for extent in sorted(extents, key=lambda e: (e.kind, e.device, e.address)):
        last = result[-1] if result else None
        # Two device allocations that touch are still two to the driver: one registration over both can be refused.
        reach = 0 if last is None else last.end + (1 if extent.kind == "dram" else 0)
        if last is not None and (last.kind, last.device) == (extent.kind, extent.device) and extent.address < reach:
            end = max(last.end, extent.end)
            result[-1] = Extent(last.address, end - last.address, last.kind, last.device)
        else:
            result.append(extent)
    return tuple(result)


def _raw_items(memory: Memory, field: str) -> ItemArray:
    allocation = allocation_of(memory, field)
    for name in ("item_bytes", "item_count"):
        if getattr(memory, name) < 1:
            raise InvalidField(f"{field}.{name}", f"must be at least 1, is {getattr(memory, name)}")
    stride = memory.item_stride or memory.item_bytes
    return ItemArray(memory.address, memory.item_count, memory.item_bytes, stride, "", allocation)


def _dense_items(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    element_bytes: int,
    dtype: str,
    allocation: Extent,
    field: str,
) -> ItemArray:
    if not shape or 0 in shape:
        raise InvalidField(field, f"no items along the first axis: shape {shape}")
    dense = element_bytes
    for size, stride in zip(shape[:0:-1], strides[:0:-1], strict=True):
        if size > 1 and stride != dense:
            raise InvalidField(field, f"items are not dense in C order: shape {shape}, strides of {strides} bytes")
        dense *= size
    stride = strides[0] if shape[0] > 1 else dense
    return ItemArray(address, shape[0], dense, stride, dtype, allocation)


def _is_tensor(buffer: object) -> TypeGuard[Tensor]:
    return isinstance(buffer, Tensor)


def _place(tensor: Tensor, field: str) -> tuple[Kind, int]:
    if tensor.device.type == "cpu":
        return "dram", 0
    if tensor.device.type == "cuda":
        return "vram", int(tensor.device.index)
    raise InvalidField(field, f"on device {tensor.device}: only cpu and cuda memory can be moved")
