"""Many rooms at once between the same workers, in any order of arrival, never mixed."""

import random

import numpy as np
from kvtransfer import KVPoll

from tests.e2e.server import Running, serving
from tests.e2e.workers import Setup, engines
from tests.waiting import wait_for
from tests.worker.pools import GroupSpec, PartSpec

ROOMS = 200
KV = GroupSpec("kv", 16, (PartSpec("k", "token_head", 2, 64), PartSpec("v", "token_head", 2, 64)), (0, 1), 4 * ROOMS)
AUX = GroupSpec("aux", 0, (PartSpec("first", "whole", 0, 64),), (0,), ROOMS)


def test_rooms_do_not_mix(server: Running) -> None:
    rng = random.Random(5)
    with engines(
        Setup(server.target, "p-many", "prefill", specs=(KV, AUX), seed=1),
        Setup(server.target, "d-many", "decode", specs=(KV, AUX), seed=9),
    ) as (sender, receiver):
        rooms = list(range(1, ROOMS + 1))
        tokens = {room: rng.randint(1, 64) for room in rooms}
        sources, targets = rng.sample(range(KV.items), KV.items), rng.sample(range(KV.items), KV.items)
        slots, rows = rng.sample(range(ROOMS), ROOMS), rng.sample(range(ROOMS), ROOMS)
        expected = receiver.original()
        sent = sender.original()

        def pages(pool: list[int], room: int) -> list[int]:
            return pool[4 * (room - 1) :][: -(-tokens[room] // 16)]

        def send(room: int) -> None:
            sender.call("sender", room, tokens[room])
            sender.call("send", room, {"kv": pages(sources, room)}, slots={"aux": slots[room - 1]}, last=True)

        def offer(room: int) -> None:
            receiver.call("receiver", room, "p-many")
            receiver.call("offer", room, tokens[room], {"kv": pages(targets, room)}, slots={"aux": rows[room - 1]})

        steps = [(act, room) for room in rooms for act in (send, offer)]
        rng.shuffle(steps)
        for act, room in steps:
            act(room)
        for room in rooms:
            receiver.wait_poll(room, KVPoll.SUCCESS, 30)
            sender.wait_poll(room, KVPoll.SUCCESS)
            for array, source in zip(expected[0], sent[0], strict=True):
                array[pages(targets, room)] = source[pages(sources, room)]
            expected[1][0][rows[room - 1]] = sent[1][0][slots[room - 1]]
        found = receiver.call("snapshot")
        assert all(np.array_equal(a, b) for a, b in zip(found[0] + found[1], expected[0] + expected[1], strict=True))
        for worker in (sender, receiver):
            for room in rooms:
                worker.call("close_room", room)
            assert sorted(released.room for released in worker.wait_released(ROOMS)) == rooms
            assert wait_for(lambda worker=worker: worker.call("open_rooms"), lambda left: left == 0) == 0  # type: ignore[misc]
        wait_for(server.sizes, lambda sizes: sizes.rooms == 0)


def test_one_engine_serves_two(server: Running) -> None:
    """Two decode engines and one prefill engine: each gets its own."""
    with engines(
        Setup(server.target, "p-two", "prefill", specs=(KV, AUX), seed=1),
        Setup(server.target, "d-one", "decode", specs=(KV, AUX), seed=9),
        Setup(server.target, "d-two", "decode", specs=(KV, AUX), seed=20),
    ) as (sender, *receivers):
        for number, receiver in enumerate(receivers):
            room = 1001 + number
            receiver.call("receiver", room, "p-two")
            receiver.call("offer", room, 40, {"kv": [3, 1, 2]}, slots={"aux": 0})
            sender.call("sender", room, 40)
            page = 10 * number
            sender.call("send", room, {"kv": [page, page + 1, page + 2]}, slots={"aux": number}, last=True)
        sent = sender.original()
        for number, receiver in enumerate(receivers):
            receiver.wait_poll(1001 + number, KVPoll.SUCCESS)
            expected = receiver.original()
            page = 10 * number
            for array, source in zip(expected[0], sent[0], strict=True):
                array[[3, 1, 2]] = source[[page, page + 1, page + 2]]
            expected[1][0][0] = sent[1][0][number]
            found = receiver.call("snapshot")
            assert all(
                np.array_equal(a, b) for a, b in zip(found[0] + found[1], expected[0] + expected[1], strict=True)
            )


def test_limit_on_open_rooms_fails_one_room_only() -> None:
    with (
        serving(max_open_rooms=2) as server,
        engines(Setup(server.target, "p", "prefill"), Setup(server.target, "d", "decode")) as (sender, _),
    ):
        for room in (1, 2, 3):
            sender.call("sender", room, 16)
            if room < 3:
                wait_for(server.sizes, lambda sizes, room=room: sizes.open_rooms == room)  # type: ignore[misc]
        sender.wait_poll(3, KVPoll.FAILED)
        failure = sender.call("failure", 3)
        assert (failure.reason, failure.message) == ("LIMIT_REACHED", "2 rooms are open")
        assert sender.call("poll", 1) is KVPoll.BOOTSTRAPPING
        sender.call("close_room", 3)
        (released,) = sender.wait_released()
        assert released.room == 3
