"""KVTransfer: moves KV caches between prefill and decode engines.

The names here are the control-plane client's, and need grpcio and protobuf alone. A worker's, `KVManager` and what goes
with it, need the `worker` extra (NIXL, numpy) and are imported on first use.
"""

from typing import TYPE_CHECKING

from kvtransfer._version import __version__
from kvtransfer.polls import Failure, KVPoll, Released

if TYPE_CHECKING:
    from kvtransfer.handles import KVReceiver, KVSender
    from kvtransfer.layout import PagedGroup, Part, SlotGroup
    from kvtransfer.manager import KVManager, PeerLink, Rank, Timeouts, Topology
    from kvtransfer.memory import Memory

__all__ = [
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

_WORKER = {
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
    if name not in _WORKER:
        raise AttributeError(f"module 'kvtransfer' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"kvtransfer.{_WORKER[name]}"), name)
