"""What UCX says of its choice of transports, read from its tables."""

import pytest

from scripts.gpu_check import transports
from scripts.gpu_check.transports import refusal

OWN = """\
[1795982683.521900] [vm:6105 :0]   +--------+-------------+-----------------------------------+
[1795982683.521900] [vm:6105 :0]   | 3a201b5a-0eef-4dbd-9ed1-67417b6 self cfg#0               |
[1795982683.521900] [vm:6105 :0]   | remote memory write by ucp_put* from host memory to host |
[1795982683.521900] [vm:6105 :0]   +--------+-------------+-----------------------------------+
[1795982683.521900] [vm:6105 :0]   | Range  | Description |              Config               |
[1795982683.521900] [vm:6105 :0]   +--------+-------------+-----------------------------------+
[1795982683.521900] [vm:6105 :0]   | 0..inf | zero-copy   | cma/memory                        |
[1795982683.521900] [vm:6105 :0]   +--------+-------------+-----------------------------------+
"""
NOTIFICATIONS = """\
[1795982689.603326] [vm:6283 :0]   | a593b7dd-21ab-43f6-80e5-f7f0459 intra-node cfg#1 |
[1795982689.603326] [vm:6283 :0]   | active message by ucp_am_send* from host memory  |
[1795982689.603326] [vm:6283 :0]   +------------+--------------------+----------------+
[1795982689.603326] [vm:6283 :0]   |          0 | short              | tcp/lo         |
[1795982689.603326] [vm:6283 :0]   | 16516..inf | multi-frag copy-in | tcp/lo         |
"""
PEERS = OWN.replace("self cfg#0      ", "intra-node cfg#1")
ONE_ROW = """\
[1767930429.284906] [vm:13245:0]   | ucp_context_0 intra-node cfg#1 | remote memory write by ucp_put*(fast-completion) \
from cuda/GPU0 to cuda/dev[0] |
[1767930429.284906] [vm:13245:0]   |   0..2K | short     | rc_mlx5/mlx5_0:1/path0                         |
[1767930429.284907] [vm:13245:0]   | 9384..inf | zero-copy | rc_mlx5/mlx5_0:1 50% on path0 and 50% on path1 |
"""


@pytest.mark.parametrize(
    ("log", "memory"),
    [(PEERS, "host"), (OWN + NOTIFICATIONS + PEERS, "host"), (transports.CUDA_IPC, "cuda"), (ONE_ROW, "cuda")],
)
def test_what_writes_by_itself_will_do(log: str, memory: transports.MemoryType) -> None:
    assert refusal(log, memory) == ""


@pytest.mark.parametrize(
    ("log", "memory", "why"),
    [
        (transports.TCP_ONLY, "cuda", "tcp/lo (software emulation) moves cuda memory"),
        (PEERS.replace("cma/memory", "tcp/lo    "), "host", "tcp/lo (zero-copy) moves host memory"),
        (transports.CUDA_IPC + transports.TCP_ONLY, "cuda", "tcp/lo (software emulation) moves cuda memory"),
        (
            ONE_ROW.replace("zero-copy", "software emulation"),
            "cuda",
            "rc_mlx5/mlx5_0:1 50% on path0 and 50% on path1 (",
        ),
        (PEERS.replace("cma/memory", "cuda_copy/cuda"), "host", "cuda_copy/cuda (zero-copy) moves host memory"),
        ("", "cuda", "the log shows no writes of cuda memory"),
        (PEERS, "cuda", "the log shows no writes of cuda memory"),
        (OWN, "host", "the log shows no writes of host memory"),
        (NOTIFICATIONS, "host", "the log shows no writes of host memory"),
    ],
)
def test_what_does_not_is_refused_by_name(log: str, memory: transports.MemoryType, why: str) -> None:
    assert refusal(log, memory).startswith(why)
