"""An engine that is to be sent no new rooms: routers see it, and what it has goes on."""

import numpy as np
from kvtransfer import Client, KVPoll
from kvtransfer import v1 as pb

from tests.e2e.server import Running, serving
from tests.e2e.workers import Setup, Worker, engines, met
from tests.waiting import wait_for


def test_draining_is_seen_by_routers_and_outlives_a_registration() -> None:
    with (
        serving() as server,
        engines(Setup(server.target, "p", "prefill", lease_ttl=3.0), Setup(server.target, "d", "decode", seed=9)) as (
            sender,
            receiver,
        ),
    ):
        receiver.call("receiver", 1, "p")
        receiver.call("offer", 1, 40, {"kv": [3, 4, 5]}, slots={"aux": 2})
        sender.call("drain")
        _wait_state(server, pb.ENGINE_STATE_DRAINING)
        sender.call("sender", 1, 40)
        sender.call("send", 1, {"kv": [0, 1, 2]}, slots={"aux": 1}, last=True)
        receiver.wait_poll(1, KVPoll.SUCCESS)
        _check_bytes(sender, receiver)

        sender.stop()
        _wait_state(server, None)  # its lease has ended
        sender.go_on()
        _wait_state(server, pb.ENGINE_STATE_DRAINING)
        sender.call("drain", False)
        _wait_state(server, pb.ENGINE_STATE_READY)


def test_a_worker_that_comes_while_its_peer_drains_sends_to_it() -> None:
    with serving() as server:
        receiver = Worker(Setup(server.target, "d", "decode", seed=9))
        receiver.call("drain")
        _wait_state(server, pb.ENGINE_STATE_DRAINING, pb.ROLE_DECODE)
        with met([receiver, Worker(Setup(server.target, "p", "prefill"))]) as (_, sender):
            receiver.call("receiver", 1, "p")
            receiver.call("offer", 1, 40, {"kv": [3, 4, 5]}, slots={"aux": 2})
            sender.call("sender", 1, 40)
            sender.call("send", 1, {"kv": [0, 1, 2]}, slots={"aux": 1}, last=True)
            receiver.wait_poll(1, KVPoll.SUCCESS)
            _check_bytes(sender, receiver)


def _wait_state(server: Running, wanted: pb.EngineState | None, role: pb.Role = pb.ROLE_PREFILL) -> None:
    """Waits until ListEngines shows the engine of a role so; None: not at all."""
    with Client(server.target) as client:
        wait_for(
            lambda: [engine.state for engine in client.list_engines(role=role)],
            lambda states: states == ([] if wanted is None else [wanted]),
        )


def _check_bytes(sender: Worker, receiver: Worker) -> None:
    """Pages 0 to 2 went to 3 to 5, row 1 to row 2, and nothing else was touched."""
    sent, before, after = sender.original(), receiver.original(), receiver.call("snapshot")
    for name, (sources, targets) in {"kv": ([0, 1, 2], [3, 4, 5]), "aux": ([1], [2])}.items():
        group = [spec.name for spec in receiver.setup.specs].index(name)
        for of_sender, was, now in zip(sent[group], before[group], after[group], strict=True):
            assert np.array_equal(now[targets], of_sender[sources])
            others = np.setdiff1d(np.arange(len(now)), targets)
            assert np.array_equal(now[others], was[others])
