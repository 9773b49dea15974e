"""KVTransfer: moves KV caches between prefill and decode engines.

`Client` and `AsyncClient` are the control plane's, and need grpcio and protobuf alone. A worker's names, `KVManager`
and what goes with it, need the `worker` extra (NIXL, numpy). Each is imported on first use. Errors are in
`kvtransfer.errors`, messages in `kvtransfer.v1`.
"""

from typing import TYPE_CHECKING

from kvtransfer._version import __version__
from kvtransfer.polls import Failure, KVPoll, Released

if TYPE_CHECKING:
    from kvtransfer.aio import AsyncClient
    from kvtransfer.client import Client
    from kvtransfer.handles import KVReceiver, KVSender
    from kvtransfer.layout import PagedGroup, Part, SlotGroup
    from kvtransfer.manager import KVManager, PeerLink, Rank, Timeouts, Topology
    from kvtransfer.memory import Memory

__all__ = [
    "AsyncClient",
    "Client",
    "Failure",
    "KVManager",
    "KVPoll",
    "KVReceiver",
    "KVSender",
    "Memory",
    "PagedGroup",
    "Part",
    "PeerLink",
    "Rank",
    "Released",
    "SlotGroup",
    "Timeouts",
    "Topology",
    "__version__",
]

_LAZY = {
    "AsyncClient": "aio",
    "Client": "client",
    "KVManager": "manager",
    "KVReceiver": "handles",
    "KVSender": "handles",
    "Memory": "memory",
    "PagedGroup": "layout",
    "Part": "layout",
    "PeerLink": "manager",
    "Rank": "manager",
    "SlotGroup": "layout",
    "Timeouts": "manager",
    "Topology": "manager",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'kvtransfer' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"kvtransfer.{_LAZY[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name not in ("numpy", "nixl"):
            raise
        raise ImportError(f"kvtransfer.{name} needs pip install 'kvtransfer[worker]': {missing}") from missing
