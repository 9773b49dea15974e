"""An engine that misuses its manager harms at most the room that it misuses."""

import contextlib
import itertools
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kvtransfer import Client, Failure, KVManager, KVPoll, PagedGroup, Part, roster
from kvtransfer import v1 as pb
from kvtransfer.errors import InvalidField, KVTransferError
from kvtransfer.manager import MAX_ROOMS
from kvtransfer.nixl_agent import NixlAgent
from kvtransfer.sending import SenderRoom, Target
from kvtransfer.session import CALL_TIMEOUT

from tests.e2e.server import serving
from tests.e2e.workers import AUX, KV
from tests.waiting import wait_for
from tests.worker.pools import build, describe_groups

PAGES, SLOT = {"kv": [1, 2]}, {"aux": 0}
TOKENS = 32
LONE_SURROGATE = "\ud800"
ROOMS = itertools.count(1)


def manager(target: str, role: str, **said: object) -> KVManager:
    pools = [build(KV, 1), build(AUX, 2)]
    return KVManager(target, engine_id=role[0], role=role, model="m", groups=describe_groups(pools), **said)  # type: ignore[arg-type] # wrong ones too


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    os.environ["UCX_NET_DEVICES"] = "lo"
    with serving() as running:
        yield running.target


@pytest.fixture
def pair(target: str) -> Iterator[tuple[KVManager, KVManager]]:
    with manager(target, "prefill") as prefill, manager(target, "decode") as decode:
        wait_for(lambda: prefill.ready() and decode.ready(), bool, 20)
        yield prefill, decode


def check_serves(prefill: KVManager, decode: KVManager) -> None:
    """Another room goes well."""
    room = next(ROOMS)
    sender, receiver = prefill.sender(room, TOKENS), decode.receiver(room, "p")
    receiver.offer(TOKENS, PAGES, slots=SLOT)
    sender.send(PAGES, slots=SLOT, last=True)
    wait_for(receiver.poll, lambda poll: poll is KVPoll.SUCCESS)


@pytest.mark.parametrize("text", [LONE_SURROGATE, "x" * 5_000_000], ids=["no text", "5 MB"])
@pytest.mark.parametrize("name", ["request_id", "traceparent"])
def test_names_that_cannot_be_told_are_refused(pair: tuple[KVManager, KVManager], name: str, text: str) -> None:
    prefill, decode = pair
    named: Any = {name: text}
    with pytest.raises(InvalidField, match=name):
        prefill.sender(next(ROOMS), TOKENS, **named)
    with pytest.raises(InvalidField, match=name):
        decode.receiver(next(ROOMS), "p", **named)
    check_serves(prefill, decode)


@pytest.mark.parametrize("engine", [LONE_SURROGATE, "x" * 5_000_000, "No Engine"], ids=["no text", "5 MB", "no name"])
def test_what_is_no_name_of_an_engine_is_refused(pair: tuple[KVManager, KVManager], engine: str) -> None:
    prefill, decode = pair
    with pytest.raises(InvalidField, match="decode_engine"):
        prefill.sender(next(ROOMS), TOKENS, decode_engine=engine)
    with pytest.raises(InvalidField, match="prefill_engine"):
        decode.receiver(next(ROOMS), engine)
    check_serves(prefill, decode)


@pytest.mark.parametrize("text", [LONE_SURROGATE, "\N{PILE OF POO}" * 2_000_000], ids=["no text", "8 MB"])
def test_a_reason_that_cannot_be_told_whole_is_cut(pair: tuple[KVManager, KVManager], text: str) -> None:
    prefill, decode = pair
    room = next(ROOMS)
    sender, receiver = prefill.sender(room, TOKENS), decode.receiver(room, "p")
    receiver.offer(TOKENS, PAGES, slots=SLOT)
    wait_for(sender.poll, lambda poll: poll is KVPoll.WAITING_FOR_INPUT)
    sender.abort(text)
    wait_for(receiver.poll, lambda poll: poll is KVPoll.FAILED)
    failure = receiver.failure()
    assert failure is not None
    assert failure.reason == "ABORTED"
    assert failure.message in ("?", text[:256])
    check_serves(prefill, decode)


def test_an_offer_that_no_message_can_carry_is_refused(target: str) -> None:
    tokens = 300_000
    group = PagedGroup("kv", 1, parts=[Part("kv", np.zeros((tokens, 1), np.uint8), "whole")])
    with KVManager(target, engine_id="wide", role="decode", model="wide", groups=[group]) as wide:
        receiver = wide.receiver(next(ROOMS), "p")
        with pytest.raises(InvalidField, match="pages"):
            receiver.offer(tokens, {"kv": range(tokens)})
        receiver.offer(1, {"kv": [0]})


def test_a_closed_room_takes_nothing_more(pair: tuple[KVManager, KVManager]) -> None:
    prefill, decode = pair
    room = next(ROOMS)
    sender, receiver = prefill.sender(room, TOKENS), decode.receiver(room, "p")
    sender.send({"kv": [1]})
    sender.close()
    receiver.close()
    with pytest.raises(InvalidField, match="closed"):
        sender.send({"kv": [2]}, slots=SLOT, last=True)
    with pytest.raises(InvalidField, match="closed"):
        receiver.offer(TOKENS, PAGES, slots=SLOT)
    assert [released.pages for released in prefill.released()] == [{"kv": [1]}]


def test_a_fence_that_exits_fails_its_room_alone(pair: tuple[KVManager, KVManager]) -> None:
    prefill, decode = pair
    room = next(ROOMS)
    sender, receiver = prefill.sender(room, TOKENS), decode.receiver(room, "p")
    receiver.offer(TOKENS, PAGES, slots=SLOT)
    sender.send(PAGES, slots=SLOT, ready=lambda: sys.exit(3), last=True)
    wait_for(sender.poll, lambda poll: poll is KVPoll.FAILED)
    check_serves(prefill, decode)


def test_an_abort_in_the_midst_of_the_last_write_asks_too_late(
    pair: tuple[KVManager, KVManager], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill, decode = pair
    room = next(ROOMS)
    sender, receiver = prefill.sender(room, TOKENS), decode.receiver(room, "p")
    post = NixlAgent.post

    def post_and_abort(agent: NixlAgent, handle: object) -> bool:
        ended = post(agent, handle)
        sender.abort("too late")
        return ended

    with monkeypatch.context() as patched:
        patched.setattr(NixlAgent, "post", post_and_abort)
        sender.send(PAGES, slots=SLOT, last=True)
        receiver.offer(TOKENS, PAGES, slots=SLOT)
        assert wait_for(receiver.poll, lambda poll: poll.final) is KVPoll.SUCCESS
    assert sender.poll() is KVPoll.FAILED
    with Client(target) as client:
        verdict = wait_for(lambda: KVPoll(client.poll([room]).transfers[0].poll), lambda poll: poll.final)
    assert verdict is KVPoll.SUCCESS, "the receivers decide"
    for side, handle in ((prefill, sender), (decode, receiver)):
        handle.close()
        (released,) = wait_for(side.released)
        assert (released.room, released.pages) == (room, PAGES)
    check_serves(prefill, decode)


def test_a_worker_that_nobody_comes_to_says_so(
    target: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(roster, "ALONE_S", 0.3)
    with manager(target, "decode"):
        wait_for(lambda: caplog.text, lambda text: "no engine of the other side is ready" in text)


def test_a_close_by_a_signal_that_interrupts_a_poll_says_so_and_leaves_the_manager(
    pair: tuple[KVManager, KVManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill, decode = pair
    interrupted: list[str] = []

    def close(*_: object) -> None:
        with pytest.raises(KVTransferError, match="outside") as refused:
            decode.close()
        interrupted.append(str(refused.value))

    def notifications(agent: NixlAgent) -> dict[str, list[bytes]]:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)
        return look(agent)

    look = NixlAgent.notifications
    before = signal.signal(signal.SIGUSR1, close)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(NixlAgent, "notifications", notifications)
            receiver = decode.receiver(next(ROOMS), "p")
            receiver.offer(TOKENS, PAGES, slots=SLOT)
            wait_for(lambda: receiver.poll() and len(interrupted), bool)
    finally:
        signal.signal(signal.SIGUSR1, before)
    receiver.close()
    check_serves(prefill, decode)


def test_a_closed_manager_may_be_closed_again_and_opens_no_room(target: str) -> None:
    prefill = manager(target, "prefill")
    prefill.close()
    prefill.close()
    with pytest.raises(KVTransferError, match="closed"):
        prefill.sender(next(ROOMS), TOKENS)


@pytest.mark.parametrize("connected", [True, False])
def test_a_manager_whose_service_is_silent_closes_at_once(connected: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        closing = manager(f"127.0.0.1:{silent.getsockname()[1]}", "prefill")
        with silent.accept()[0] if connected else contextlib.nullcontext():
            began = time.monotonic()
            closing.close()
            assert time.monotonic() - began < CALL_TIMEOUT / 2


def test_a_registration_that_no_message_can_carry_is_refused(target: str) -> None:
    with pytest.raises(InvalidField, match="registration: must take at most 1048576 bytes"):
        manager(target, "prefill", endpoint="x" * 5_000_000)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_lease_that_is_no_time_is_refused(target: str, seconds: float) -> None:
    with pytest.raises(InvalidField, match="lease_ttl"):
        manager(target, "prefill", lease_ttl=seconds)


@pytest.mark.parametrize("poll", [KVPoll.SUCCESS, KVPoll.FAILED])
def test_as_many_rooms_as_a_worker_may_have_are_told_in_one_message(poll: KVPoll) -> None:
    rank = "/dp4095/pp4095/tp4095"
    us, them = "p" * 63 + rank, "d" * 63 + rank
    target = Target(pb.Peer(worker_id=them, instance_id=str(uuid.uuid4())), 2**64 - 1, TOKENS, {}, {})
    joined = SenderRoom(room=2**63 - 1, join_id=2**64 - 1, joined_at=0.0, tokens=TOKENS, targets={them: target})
    joined.poll = joined.room_poll = poll
    joined.failure = Failure("ABORTED", "\N{PILE OF POO}" * 1024, us)
    if poll is KVPoll.SUCCESS:
        joined.completions = [
            pb.Completion(room=joined.room, sender=us, receiver=them, offer_id=2**64 - 1, sender_join_id=joined.join_id)
        ]
    request = pb.RegisterWorkerRequest(rooms=[joined.state_message(0.0)] * MAX_ROOMS)
    assert request.ByteSize() < 4 << 20
