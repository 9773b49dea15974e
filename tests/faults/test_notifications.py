"""Whatever an agent sends to a worker's agent, the worker goes on."""

import os
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from kvtransfer import KVPoll
from kvtransfer import v1 as pb
from kvtransfer.v1 import service_pb2_grpc

from tests.e2e.server import Running, serving
from tests.e2e.workers import Setup, Worker, engines

PAGES, SLOT = {"kv": [1, 2]}, {"aux": 1}
TOKENS = 32


@pytest.fixture
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture
def pair(server: Running) -> Iterator[list[Worker]]:
    with engines(Setup(server.target, "p", "prefill"), Setup(server.target, "d", "decode", seed=9)) as workers:
        yield workers


def agent(name: bytes, metadata: bytes) -> Any:
    """A stranger that knows a worker's metadata; `name` need not be text."""
    from nixl._api import nixlBind  # type: ignore[import-untyped] # has no types

    stranger = nixlBind.nixlAgent(name, nixlBind.nixlAgentConfig(True))
    stranger.createBackend("UCX", stranger.getPluginParams("UCX")[0])
    stranger.loadRemoteMD(metadata)
    return stranger


@pytest.mark.parametrize("name", [b"stranger", b"\xff\xfe no text"])
def test_notifications_of_strangers_change_nothing(server: Running, pair: list[Worker], name: bytes) -> None:
    prefill, decode = pair
    with grpc.insecure_channel(server.target) as channel:
        request = pb.GetLinksRequest(engine_id="p", peer_engine_id="d", worker_id="p/dp0/pp0/tp0")
        [peer] = service_pb2_grpc.KVTransferStub(channel).GetLinks(request).peers
    decode.call("receiver", 7, "p")
    decode.call("offer", 7, TOKENS, PAGES, slots=SLOT)
    guess = pb.Completion(room=7, sender="p/dp0/pp0/tp0", receiver="d/dp0/pp0/tp0", offer_id=1, sender_join_id=1)
    stranger = agent(name, peer.nixl_metadata)
    for payload in (
        b"",
        b"KVT1",
        b"KVT1\xff" + os.urandom(200),
        b"KVT1" + pb.Notification(completion=guess).SerializeToString(),
        b"KVT1" + pb.Notification(hello=pb.Hello()).SerializeToString(),
    ):
        stranger.genNotif(peer.instance_id, payload)
    assert decode.call("poll", 7) is KVPoll.BOOTSTRAPPING
    prefill.call("sender", 7, TOKENS)
    prefill.call("send", 7, PAGES, slots=SLOT, last=True)
    decode.wait_poll(7, KVPoll.SUCCESS)
    assert any("mover" in thread for thread in decode.call("threads"))
