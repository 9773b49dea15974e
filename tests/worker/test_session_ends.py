"""The session's thread may be held, in NIXL or in an event: who closes waits no longer than said."""

import threading

import pytest
from kvtransfer import session
from kvtransfer import v1 as pb
from kvtransfer.core import Core
from kvtransfer.policy import Policy
from kvtransfer.rooms import Rooms

from .pools import GroupSpec, PartSpec, build, describe

KV = GroupSpec("kv", 1, (PartSpec("kv", "whole", 0, 1024),), (0,), 4)


def test_close_does_not_wait_for_ever_for_a_thread_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "END_TIMEOUT", 0.1)
    core = Core(Rooms(describe([build(KV, 0)]), Policy()))
    held = session.Session(core, "127.0.0.1:1", pb.RegisterWorkerRequest(), None)
    closing = threading.Thread(target=held.close, args=(True,), daemon=True)
    with core.step():
        held.start()
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
