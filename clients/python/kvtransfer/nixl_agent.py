"""The calls of NIXL that a mover makes, with what their safe use demands. For one thread at a time.

NIXL cannot cancel a write: whatever is released or removed, bytes go on landing. So a transfer's handle is released
only after it ended, and a remote agent is removed only when no handle to it is open: asked about a handle of an agent
that was removed, NIXL answers with an error while the write still runs.
"""

import ctypes
import logging
import os
from collections.abc import Iterable
from typing import Any

from kvtransfer import v1 as pb
from kvtransfer.memory import Extent
from kvtransfer.plan import Indices, Table

_log = logging.getLogger(__name__)

ENVIRONMENT = {
    # Notice a dead peer or a cut link within 5 to 6 s (measured): by default a transfer to it hangs for minutes.
    "UCX_TCP_USER_TIMEOUT": "5s",
    "UCX_TCP_SYN_CNT": "2",
    "UCX_TCP_KEEPIDLE": "2s",
    "UCX_TCP_KEEPINTVL": "1s",
    "UCX_KEEPALIVE_INTERVAL": "2s",
    # NIXL's Python package logs to stdout, which is the engine's.
    "NIXL_LOG_LEVEL": "WARN",
}
"""Set before NIXL is loaded, where the process has no value of its own."""

_MEMORY_NAMES = {pb.MEMORY_KIND_DRAM: "DRAM", pb.MEMORY_KIND_VRAM: "VRAM"}
_LOCAL = "NIXL_INIT_AGENT"

Handle = Any
"""Of a transfer, or of a prepared list: NIXL has no types for them."""


class NixlAgent:
    """One NIXL agent on UCX, named by the process, and the memory registered with it."""

    def __init__(self, name: str, extents: Iterable[Extent]) -> None:
        """Create the agent and register `extents`.

        Raises:
            Exception: whatever NIXL raises where it cannot.
        """
        for variable, value in ENVIRONMENT.items():
            os.environ.setdefault(variable, value)
        # Only now: NIXL and UCX read the environment when they are loaded.
        from nixl._api import nixl_agent, nixl_agent_config, nixl_thread_sync_t  # type: ignore[import-untyped]  # has no types

        config = nixl_agent_config(
            # A progress thread burns a whole core while idle; the owner polls instead.
            enable_prog_thread=False,
            backends=["UCX"],
            # Without a lock of NIXL's own, crashes and corruption were seen.
            sync_mode=nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT,
        )
        self._nixl: Any = nixl_agent(name, config)
        if "UCX" not in self._nixl.backends:
            raise RuntimeError(f"NIXL has no UCX backend, only {self._nixl.plugin_list}")
        self._remotes: set[str] = set()
        self._registered: list[Any] = []
        by_kind: dict[str, list[tuple[int, int, int, str]]] = {}
        for extent in extents:
            by_kind.setdefault(extent.kind.upper(), []).append((extent.address, extent.nbytes, extent.device, ""))
        for memory, rows in by_kind.items():
            self._registered.append(self._nixl.register_memory(rows, memory))

    def metadata(self) -> bytes:
        """What a peer needs to write into the registered memory."""
        return bytes(self._nixl.get_agent_metadata())

    def add_remote(self, metadata: bytes, name: str) -> None:
        """Load a peer's metadata.

        Raises:
            ValueError: it is another agent's than `name`.
            Exception: whatever NIXL raises.
        """
        found = self._nixl.add_remote_agent(metadata).decode()
        if found != name:
            if found not in self._remotes:
                self._nixl.remove_remote_agent(found)
            raise ValueError(f"NIXL metadata of agent {found!r}, not of {name!r}")
        self._remotes.add(name)

    def remove_remote(self, name: str) -> None:
        """Forget a peer. No handle to it may be open. A refusal is only logged."""
        self._remotes.discard(name)
        try:
            self._nixl.remove_remote_agent(name)
        except Exception:  # noqa: BLE001  NIXL's exceptions have no root of their own
            _log.warning("NIXL refused to remove agent %s", name, exc_info=True)

    def prepare_local(self, table: Table, memory: pb.MemoryKind) -> Handle:
        """Prepare a strided list (see `Lane`) of our own memory."""
        return self._nixl.prep_xfer_dlist(_LOCAL, table, _MEMORY_NAMES[memory])

    def prepare_remote(self, name: str, table: Table, memory: pb.MemoryKind) -> Handle:
        """Prepare a strided list of a peer's memory."""
        return self._nixl.prep_xfer_dlist(name, table, _MEMORY_NAMES[memory])

    def make_write(self, local: Handle, sources: Indices, remote: Handle, targets: Indices) -> Handle:
        """Make a write between prepared lists; neighbours on both sides are merged."""
        return self._nixl.make_prepped_xfer("WRITE", local, sources, remote, targets)

    def post(self, handle: Handle) -> bool:
        """Begin a write; True if it ended within the call, as a same-host copy does.

        Raises:
            Exception: whatever NIXL raises. The write may have begun.
        """
        return _ended(self._nixl.transfer(handle))

    def check(self, handle: Handle) -> bool:
        """Whether a posted write has ended well.

        Raises:
            Exception: it ended otherwise. Bytes may still be landing.
        """
        return _ended(self._nixl.check_xfer_state(handle))

    def notify(self, name: str, payload: bytes) -> None:
        """Send a notification to a peer."""
        self._nixl.send_notif(name, payload)

    def notifications(self) -> dict[str, list[bytes]]:
        """Make progress, and take what arrived: sender -> payloads, in order."""
        try:
            found: dict[str, list[bytes]] = self._nixl.get_new_notifs()
        except UnicodeDecodeError:  # an agent's name; a completion that came with it is told by the service too
            _log.warning("notifications were lost: one is of an agent whose name is no text", exc_info=True)
            return {}
        return found

    def release(self, handle: Handle) -> None:
        """Release a write that ended or was never posted, or a prepared list. A refusal is only logged."""
        try:
            handle.release()
        except Exception:  # noqa: BLE001  NIXL's exceptions have no root of their own
            _log.warning("NIXL refused to release %r", handle, exc_info=True)

    def close(self) -> None:
        """Deregister all memory and delete the agent: no write of ours goes on after this."""
        for descriptors in self._registered:
            self._nixl.deregister_memory(descriptors)
        self._registered.clear()
        del self._nixl


def is_disconnect(error: Exception) -> bool:
    """Whether NIXL lost the peer."""
    return type(error).__name__ == "nixlRemoteDisconnectError"


def make_sleeps_short() -> None:
    """Let this thread's sleeps overrun by 1 us; Linux's default is 50 us, which pacing would feel."""
    set_timer_slack = 29  # PR_SET_TIMERSLACK of linux/prctl.h, in ns
    ctypes.CDLL(None).prctl(set_timer_slack, ctypes.c_ulong(1000), 0, 0, 0)


def _ended(state: str) -> bool:
    if state not in ("DONE", "PROC"):
        raise RuntimeError(f"NIXL reports state {state!r} of a write")
    return state == "DONE"
