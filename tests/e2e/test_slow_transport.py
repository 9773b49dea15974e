"""Workers that one host's fast way is denied to: CMA copies only into a process that the kernel would let us trace."""

import ctypes
import logging
import os
from typing import Any, ClassVar

import pytest
from kvtransfer import PeerLink
from kvtransfer.nixl_agent import NixlAgent

from tests.e2e.server import Running
from tests.e2e.workers import InProcess, Setup, Worker, met

SENDER_UID, RECEIVER_UID = 65533, 65534
PR_SET_DUMPABLE = 4

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can start processes of other users")


class Kept(logging.Handler):
    """What was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelname, record.getMessage()))


class Unprivileged(InProcess):
    """A worker of a plain user, whom that user's processes may trace."""

    uid: ClassVar[int] = SENDER_UID
    dumpable: ClassVar[bool] = True

    def __init__(self, setup: Setup) -> None:
        NixlAgent("loads-libraries", ()).close()  # they may be readable to root alone
        os.setgroups([])
        os.setgid(self.uid)
        os.setuid(self.uid)  # root may trace everybody
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, int(self.dumpable), 0, 0, 0)
        self.kept = Kept()
        logging.getLogger("kvtransfer").addHandler(self.kept)
        logging.getLogger("kvtransfer").setLevel(logging.INFO)
        super().__init__(setup)

    def said(self) -> list[tuple[str, str]]:
        """Level and text of what was logged of links."""
        return [(level, text) for level, text in self.kept.said if text.startswith("writes to ")]


class Hidden(Unprivileged):
    """A worker of another user, not dumpable either: nobody without privileges may trace it."""

    uid = RECEIVER_UID
    dumpable = False


class UnprivilegedWorker(Worker):
    kind: ClassVar[type[Any]] = Unprivileged


class HiddenWorker(Worker):
    kind: ClassVar[type[Any]] = Hidden


def meet(server: Running, receiver: type[Worker], name: str) -> tuple[PeerLink, list[tuple[str, str]]]:
    """The sender's link to a receiver of this kind, and what it logged of it."""
    setups = [Setup(server.target, f"{name}-{role}", role, model=name) for role in ("prefill", "decode")]
    with met([UnprivilegedWorker(setups[0]), receiver(setups[1])]) as (prefill, _):
        (link,) = [link for link in prefill.call("links") if link.ready]
        return link, prefill.call("said")


def test_a_worker_that_cannot_be_traced_is_reached_by_tcp_and_that_is_told(server: Running) -> None:
    link, said = meet(server, HiddenWorker, "hidden")
    assert link.transport == "tcp"
    assert 0 < link.bandwidth_bytes_s < 20e9
    ((level, text),) = said
    assert level == "WARNING"
    assert text.startswith(f"writes to {link.worker_id} go over tcp, {link.bandwidth_bytes_s / 1e9:.1f} GB/s: ")
    for remedy in ("same user", "one PID", "one IPC", "CAP_SYS_PTRACE"):
        assert remedy in text


def test_a_worker_that_may_be_traced_is_reached_by_a_copy_and_nobody_is_warned(server: Running) -> None:
    link, said = meet(server, UnprivilegedWorker, "visible")
    assert link.transport == "cma"
    ((level, text),) = said
    assert level == "INFO"
    assert text == f"writes to {link.worker_id} go over cma, {link.bandwidth_bytes_s / 1e9:.1f} GB/s"
