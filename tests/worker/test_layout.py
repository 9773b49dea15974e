"""What is described of tensors, arrays and raw memory, and what is refused, by field and value."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from kvtransfer import v1 as pb
from kvtransfer.errors import InvalidField
from kvtransfer.layout import SCRATCH_BYTES, Group, LocalMemory, PagedGroup, Part, SlotGroup
from kvtransfer.memory import Memory

PAGES, TOKENS, HEADS, DIM = 10, 16, 4, 8


def kv_pool(dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros((2, PAGES, TOKENS, HEADS, DIM), dtype=dtype)


def paged(*parts: Part, **changes: object) -> PagedGroup:
    return PagedGroup(**{"name": "kv", "page_tokens": TOKENS, "parts": parts, **changes})


def heads(name: str, memory: object, **changes: object) -> Part:
    return Part(
        name, memory, **{"order": "token_head", "total_heads": 8, "first_head": 4, "head_count": HEADS, **changes}
    )


def test_tensors_are_described_by_region() -> None:
    pools = {layer: kv_pool() for layer in (3, 1)}
    memory = LocalMemory(
        "m",
        [paged(*(heads(name, {layer: pool[i] for layer, pool in pools.items()}) for i, name in enumerate(("k", "v"))))],
    )
    (group,) = memory.layout.groups
    assert (group.name, group.kind, group.page_tokens, group.allow_missing) == (
        "kv",
        pb.BufferGroup.KIND_PAGED,
        16,
        False,
    )
    assert [part.name for part in group.parts] == ["k", "v"]
    v = group.parts[1]
    assert (v.dtype, v.order, v.item_bytes) == ("bfloat16", pb.Part.ORDER_TOKEN_HEAD, TOKENS * HEADS * DIM * 2)
    assert (v.total_heads, v.first_head, v.head_count) == (8, 4, 4)
    assert [region.layer for region in v.regions] == [1, 3]
    region = v.regions[0]
    assert region.address == pools[1][1].data_ptr()
    assert (region.item_count, region.item_stride) == (PAGES, v.item_bytes)
    assert (region.memory, region.device) == (pb.MEMORY_KIND_DRAM, 0)
    assert memory.item_count("kv") == PAGES
    assert memory.item_bytes("kv") == 4 * v.item_bytes
    assert memory.page_tokens("kv") == TOKENS


def test_the_storage_behind_views_is_registered_once() -> None:
    pool = torch.zeros((PAGES, 6, TOKENS * DIM), dtype=torch.float16)
    parts = [Part(name, {layer: pool[:, 2 * layer + i] for layer in range(3)}) for i, name in enumerate(("k", "v"))]
    memory = LocalMemory("m", [paged(*parts)])
    assert [(e.address, e.nbytes) for e in memory.allocations[:-1]] == [(pool.data_ptr(), pool.numel() * 2)]
    strides = {region.item_stride for part in memory.layout.groups[0].parts for region in part.regions}
    assert strides == {6 * TOKENS * DIM * 2}


def test_the_scratch_region_is_registered_outside_all_groups() -> None:
    memory = LocalMemory("m", [paged(Part("kv", np.zeros((PAGES, 64), np.uint8)))])
    scratch = memory.layout.scratch
    assert scratch.item_count * scratch.item_stride == SCRATCH_BYTES == 1 << 20
    assert scratch.address % 4096 == 0
    pool, last = memory.allocations
    assert (last.address, last.nbytes) == (scratch.address, SCRATCH_BYTES)
    assert not pool.address <= scratch.address < pool.end


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.bfloat16, "bfloat16"),
        (torch.float8_e4m3fn, "float8_e4m3fn"),
        (torch.half, "float16"),
        (torch.int8, "int8"),
    ],
)
def test_torch_dtypes_have_their_ml_dtypes_names(dtype: torch.dtype, name: str) -> None:
    memory = LocalMemory("m", [paged(heads("k", {0: torch.zeros((4, TOKENS, HEADS, DIM)).to(dtype)}))])
    assert memory.layout.groups[0].parts[0].dtype == name


def test_a_dtype_that_is_stored_as_another_can_be_named() -> None:
    memory = LocalMemory("m", [paged(Part("kv", np.zeros((4, 64), np.uint8), dtype="float8_e4m3fn"))])
    assert memory.layout.groups[0].parts[0].dtype == "float8_e4m3fn"


def test_arrays_without_layers_and_slots() -> None:
    tokens, logits = np.zeros((12, 4), np.int32), np.zeros((9, 100), np.float32)
    memory = LocalMemory("m", [SlotGroup("aux", [Part("token", tokens), Part("logits", logits)])])
    (group,) = memory.layout.groups
    assert (group.kind, group.page_tokens) == (pb.BufferGroup.KIND_SLOT, 0)
    assert [(part.dtype, part.item_bytes) for part in group.parts] == [("int32", 16), ("float32", 400)]
    assert not group.parts[0].regions[0].HasField("layer")
    # Every slot has a row in each part.
    assert memory.item_count("aux") == 9


def test_raw_memory_may_lie_anywhere() -> None:
    address = 2**63 + 4096
    raw = Memory(address, nbytes=1 << 20, kind="dram", item_bytes=100, item_count=10, item_stride=128)
    memory = LocalMemory("m", [paged(Part("kv", {7: raw}, dtype="uint8"))])
    region = memory.layout.groups[0].parts[0].regions[0]
    assert (region.address, region.item_count, region.item_stride, region.layer) == (address, 10, 128, 7)
    assert [(e.address, e.nbytes) for e in memory.allocations[:-1]] == [(address, 1 << 20)]


def test_allocations_that_overlap_or_touch_are_one_registration() -> None:
    def at(address: int, nbytes: int) -> Part:
        return Part(f"p{address}", Memory(address, nbytes, item_bytes=8, item_count=1), dtype="uint8")

    parts = [at(0x30000, 0x1000), at(0x10000, 0x1000), at(0x10800, 0x1800), at(0x12000, 0x100)]
    memory = LocalMemory("m", [SlotGroup("aux", parts)])
    assert [(e.address, e.nbytes) for e in memory.allocations[:-1]] == [(0x10000, 0x2100), (0x30000, 0x1000)]


def array(shape: tuple[int, ...] = (PAGES, TOKENS, HEADS, DIM)) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (paged(heads("k", {0: array()}, head_count=3)), r"parts\[k\]: pages of 2048 bytes cannot hold 16 tokens of 3"),
        (paged(heads("k", {0: array()}, first_head=5)), r"head_count: heads \[5, 9\) are not among the 8"),
        (paged(heads("k", {0: array()}, order="dim_head")), r"order: must be one of .*'dim_head'"),
        (paged(Part("k", {0: array()}, head_count=2)), r"head_count: a part of order 'whole' has no heads, this has 2"),
        (paged(Part("k", {0: array()}), page_tokens=0), r"groups\[kv\].page_tokens: must be at least 1, is 0"),
        (paged(), r"groups\[kv\].parts: there must be at least one"),
        (paged(Part("k", {})), r"parts\[k\].layers: there must be at least one"),
        (paged(Part("k", {-1: array()})), r"layers\[-1\]: layers are counted from 0"),
        (paged(Part("k", {0: array((0, 4))})), r"layers\[0\]: no items along the first axis: shape \(0, 4\)"),
        (paged(Part("k", {0: array().transpose(0, 2, 1, 3)})), r"layers\[0\]: items are not dense in C order"),
        (paged(Part("k", {0: np.broadcast_to(array()[:1], (5, TOKENS, HEADS, DIM))})), r"layers\[0\]: items overlap"),
        (paged(Part("k", {0: [1, 2, 3]})), r"layers\[0\]: not a tensor, an array or Memory: list"),
        (
            paged(Part("k", {0: array(), 1: array((PAGES, 4))})),
            r"layers\[1\]: items of 16 bytes of float32, layers before",
        ),
        (paged(Part("k", {0: array()}), Part("k", {0: array()})), r"groups\[kv\].parts\[k\]: named twice"),
        (paged(Part("", {0: array()})), r"name: must not be empty, is ''"),
        (paged(Part("k", {0: torch.zeros(4, device="meta")})), r"layers\[0\]: on device meta"),
        (paged(Part("k", Memory(4096, 64, item_bytes=8, item_count=1))), r"dtype: must not be empty for raw memory"),
        (paged(Part("k", Memory(4096, 64), dtype="int8")), r"parts\[k\].memory.item_bytes: must be at least 1, is 0"),
        (
            paged(Part("k", Memory(0, 64, item_bytes=8, item_count=1), dtype="int8")),
            r"no address range: 64 bytes at 0x0",
        ),
        (
            paged(Part("k", Memory(4096, 64, item_bytes=8, item_count=9), dtype="int8")),
            r"parts\[k\].memory: \[0x1000, 0x1048\) of dram:0 goes past its allocation \[0x1000, 0x1040\)",
        ),
        (
            paged(Part("k", Memory(4096, 64, kind="hbm", item_bytes=8, item_count=1), dtype="int8")),
            "kind of memory 'hbm'",
        ),
        (SlotGroup("aux", [heads("k", array())]), r"order: must be 'whole' in a slot group"),
    ],
)
def test_bad_groups_are_refused_by_field_and_value(group: Group, words: str) -> None:
    with pytest.raises(InvalidField, match=words):
        LocalMemory("m", [group])


def test_bad_layouts_are_refused() -> None:
    with pytest.raises(InvalidField, match="model: must not be empty"):
        LocalMemory("", [paged(Part("k", array()))])
    with pytest.raises(InvalidField, match="groups: there must be at least one"):
        LocalMemory("m", [])
    with pytest.raises(InvalidField, match=r"groups\[kv\]: named twice"):
        LocalMemory("m", [paged(Part("k", array())), paged(Part("k", array()))])


def test_memory_outside_the_allocations_named_is_refused() -> None:
    inside, outside = array(), array()
    groups = [paged(Part("k", {0: inside}), Part("v", {0: outside}))]
    with pytest.raises(InvalidField, match=r"groups\[kv\].parts\[v\].layers\[0\]: .* is outside every allocation"):
        LocalMemory("m", groups, [inside])
    short = Memory(inside.ctypes.data, inside.nbytes - 1)
    with pytest.raises(InvalidField, match=r"layers\[0\]: .* goes past its allocation"):
        LocalMemory("m", [paged(Part("k", {0: inside}))], [short])
    memory = LocalMemory("m", groups, [inside, outside])
    assert sum(extent.nbytes for extent in memory.allocations[:-1]) == inside.nbytes + outside.nbytes


def small() -> LocalMemory:
    return LocalMemory("m", [paged(Part("k", {0: array()}))])


def test_indices_are_returned_as_an_array() -> None:
    for given in ([0, 9, 3], np.array([0, 9, 3], np.int64), (0, 9, 3)):
        checked = small().check_indices("kv", given, "pages")
        assert checked.dtype == np.int32
        assert checked.tolist() == [0, 9, 3]
    assert small().check_indices("kv", [], "pages").tolist() == []
    assert small().check_indices("kv", [2, 2], "pages", distinct=False).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("group", "indices", "words"),
    [
        ("kv", [1, 10], r"pages\[1\]: index 10 is outside the 10 items of group 'kv'"),
        ("kv", [-1], r"pages\[0\]: index -1 is outside"),
        ("kv", [2**40], r"pages\[0\]: index 1099511627776 is outside"),
        ("kv", [3, 1, 3], r"pages: index 3 of group 'kv' is there twice"),
        ("kv", [[1]], r"pages: not a list of whole numbers: int64 of shape \(1, 1\)"),
        ("kv", [1.0], "pages: not a list of whole numbers: float64"),
        ("swa", [1], "pages: no group 'swa' in the layout: it has kv"),
    ],
)
def test_bad_indices_are_refused_by_field_and_value(group: str, indices: object, words: str) -> None:
    with pytest.raises(InvalidField, match=words):
        small().check_indices(group, indices, "pages")


def test_describing_host_memory_loads_neither_torch_nor_nixl() -> None:
    script = (
        "import sys, numpy as np\n"
        "from kvtransfer.layout import *\n"
        "LocalMemory('m', [SlotGroup('aux', [Part('t', np.zeros((2, 4)))])])\n"
        "assert not {'torch', 'nixl', 'grpc'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
