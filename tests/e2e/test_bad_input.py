"""What an engine hands over wrongly raises in the call that brings it, names it, and changes nothing."""

import itertools
from collections.abc import Iterator

import pytest
from kvtransfer import KVPoll, Timeouts

from tests.e2e.server import Running
from tests.e2e.workers import Refused, Setup, Worker, engines

GOOD = {"kv": [0, 1, 2]}
ROOMS = itertools.count(100)


@pytest.fixture(scope="module")
def pair(server: Running) -> Iterator[list[Worker]]:
    with engines(Setup(server.target, "p-bad", "prefill"), Setup(server.target, "d-bad", "decode", seed=9)) as workers:
        yield workers


def refusal(worker: Worker, command: str, *args: object, **options: object) -> tuple[str, str]:
    with pytest.raises(Refused) as refused:
        worker.call(command, *args, **options)
    return refused.value.kind, refused.value.text


@pytest.mark.parametrize("room", [0, -1, 2**63])
def test_room_numbers(pair: list[Worker], room: int) -> None:
    for worker, command, argument in ((pair[0], "sender", 40), (pair[1], "receiver", "p-bad")):
        kind, text = refusal(worker, command, room, argument)
        assert kind == "InvalidField"
        assert text.startswith("room")
        assert str(room) in text


def test_roles(pair: list[Worker]) -> None:
    assert refusal(pair[0], "receiver", 1, "d-bad") == (
        "InvalidField",
        "role: a receiver takes a decode worker, this one is prefill",
    )
    assert refusal(pair[1], "sender", 1, 40)[1].endswith("this one is decode")


def test_join_twice(pair: list[Worker]) -> None:
    pair[0].call("sender", 5, 40)
    assert refusal(pair[0], "sender", 5, 40) == ("RoomReused", "room 5 is open in this worker")
    pair[0].call("close_room", 5)
    assert pair[0].wait_released()[0].pages == {}


@pytest.mark.parametrize(
    ("tokens", "pages", "options", "names"),
    [
        (0, {}, {}, ("tokens", "0")),
        (40, {"kv": [0, 1, 64]}, {"slots": {"aux": 0}}, ("pages[kv]", "64")),
        (40, {"kv": [0, 1, -1]}, {"slots": {"aux": 0}}, ("pages[kv]", "-1")),
        (40, {"kv": [7, 1, 7]}, {"slots": {"aux": 0}}, ("pages[kv]", "7")),
        (40, {"kv": [0, 1]}, {"slots": {"aux": 0}}, ("pages[kv]", "2")),
        (40, {"kv": [0, 1, 2, 3]}, {"slots": {"aux": 0}}, ("pages[kv]", "4")),
        (40, {}, {"slots": {"aux": 0}}, ("pages[kv]", "0")),
        (40, GOOD | {"other": [1]}, {"slots": {"aux": 0}}, ("pages[other]", "other")),
        (40, GOOD | {"aux": [1]}, {"slots": {"aux": 0}}, ("pages[aux]", "aux")),
        (40, GOOD, {}, ("slots[aux]", "")),
        (40, GOOD, {"slots": {"aux": 16}}, ("slots[aux]", "16")),
        (40, GOOD, {"slots": {"kv": 1}}, ("slots[kv]", "kv")),
        (40, GOOD, {"slots": {"aux": 0}, "prefix_tokens": 8}, ("prefix_tokens", "8")),
        (40, GOOD, {"slots": {"aux": 0}, "prefix_tokens": 41}, ("prefix_tokens", "41")),
    ],
)
def test_offers(
    pair: list[Worker], tokens: int, pages: dict[str, list[int]], options: dict[str, object], names: tuple[str, str]
) -> None:
    room = next(ROOMS)
    pair[1].call("receiver", room, "p-bad")
    kind, text = refusal(pair[1], "offer", room, tokens, pages, **options)
    assert kind == "InvalidField"
    assert text.startswith(names[0])
    assert names[1] in text
    pair[1].call("offer", room, 40, GOOD, slots={"aux": 0})  # the room is as good as before
    assert refusal(pair[1], "offer", room, 40, GOOD, slots={"aux": 0})[0] == "InvalidField"
    pair[1].call("close_room", room)
    assert pair[1].wait_released()[0].pages == GOOD


@pytest.mark.parametrize(
    ("pages", "options", "names"),
    [
        ({"kv": [0]}, {"tokens": 10}, ("tokens", "10")),  # not page-aligned before the last
        ({"kv": [0]}, {"tokens": 48}, ("tokens", "48")),  # past the request
        ({"kv": [0]}, {"tokens": -16}, ("tokens", "-16")),
        ({"kv": [0, 1]}, {"tokens": 16}, ("pages[kv]", "2")),
        ({"kv": [0, 1]}, {"last": True, "slots": {"aux": 0}}, ("pages[kv]", "2")),
        ({"kv": [0, 1, 2, 3]}, {"last": True, "slots": {"aux": 0}}, ("pages[kv]", "4")),
        ({"kv": [0, 1, 99]}, {"last": True, "slots": {"aux": 0}}, ("pages[kv]", "99")),
        (GOOD, {"tokens": 32, "last": True, "slots": {"aux": 0}}, ("tokens", "32")),
        (GOOD, {"last": True}, ("slots[aux]", "")),
        (GOOD, {"last": True, "slots": {"aux": -3}}, ("slots[aux]", "-3")),
    ],
)
def test_chunks(
    pair: list[Worker], pages: dict[str, list[int]], options: dict[str, object], names: tuple[str, str]
) -> None:
    room = next(ROOMS)
    pair[0].call("sender", room, 40)
    kind, text = refusal(pair[0], "send", room, pages, **options)
    assert kind == "InvalidField"
    assert text.startswith(names[0])
    assert names[1] in text
    pair[0].call("send", room, GOOD, slots={"aux": 0}, last=True)
    assert refusal(pair[0], "send", room, GOOD)[0] == "InvalidField"
    pair[0].call("close_room", room)
    assert pair[0].wait_released()[0].pages == GOOD


def test_timeouts(pair: list[Worker]) -> None:
    kind, text = refusal(pair[0], "sender", 8, 40, Timeouts(total=-1.0))
    assert (kind, text.split(":")[0]) == ("InvalidField", "timeouts.total")
    assert "-1.0" in text


def test_different_token_counts_fail_the_room(pair: list[Worker]) -> None:
    """What only both together show fails that room, for both sides, with the numbers."""
    sender, receiver = pair
    before = receiver.call("snapshot")
    sender.call("sender", 9, 40)
    sender.call("send", 9, GOOD, slots={"aux": 0}, last=True)
    receiver.call("receiver", 9, "p-bad")
    receiver.call("offer", 9, 64, {"kv": [0, 1, 2, 3]}, slots={"aux": 0})
    for worker in pair:
        worker.wait_poll(9, KVPoll.FAILED)
        failure = worker.call("failure", 9)
        assert failure.reason == "COMPLETION_MISMATCH"
        assert "offered 64 tokens, the sender has 40" in failure.message
    after = receiver.call("snapshot")
    assert all((a == b).all() for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True))


def test_unknown_prefill_engine(pair: list[Worker]) -> None:
    pair[1].call("receiver", 10, "nobody")
    pair[1].wait_poll(10, KVPoll.FAILED)
    failure = pair[1].call("failure", 10)
    assert failure.reason == "ENGINE_NOT_FOUND"
    assert "nobody" in failure.message


@pytest.mark.parametrize(
    ("setup", "kind", "names"),
    [
        (Setup("", "Bad_Name", "prefill"), "InvalidField", ("engine_id", "Bad_Name")),
        (Setup("", "x", "both"), "InvalidField", ("role", "both")),
        (Setup("", "x", "decode", tp_size=2, tp_rank=2), "InvalidField", ("rank.tp_rank", "2")),
        (Setup("", "x", "decode", model=""), "InvalidField", ("model", "''")),
    ],
)
def test_managers(setup: Setup, kind: str, names: tuple[str, str]) -> None:
    worker = Worker(setup)
    try:
        found, text = refusal(worker, "ids")
        assert found == kind
        assert text.startswith(names[0])
        assert names[1] in text
    finally:
        worker.exit()


def test_mismatching_rank_is_told_and_not_retried_in_silence(server: Running, pair: list[Worker]) -> None:
    """A worker whose topology differs from its engine's stays out, and rooms of the engine go on."""
    worker = Worker(Setup(server.target, "p-bad", "prefill", tp_size=2, tp_rank=1))
    try:
        assert worker.call("ready") is False
        pair[0].call("sender", 11, 40)
        pair[0].call("send", 11, GOOD, slots={"aux": 0}, last=True)
        pair[1].call("receiver", 11, "p-bad")
        pair[1].call("offer", 11, 40, GOOD, slots={"aux": 0})
        pair[1].wait_poll(11, KVPoll.SUCCESS)
        assert worker.call("ready") is False
    finally:
        worker.exit()
