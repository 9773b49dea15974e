"""`make serve`, asked over HTTP as a user would."""

import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from kvtransfer import v1 as pb
from kvtransfer.v1.service_pb2_grpc import KVTransferStub

from examples.pd_llm import routers
from examples.pd_llm.stack import until
from examples.pd_llm.weights import Weights
from tests.demo.programs import descendants, end, start, wait_until_ended
from tests.waiting import wait_for

PROMPT = "Let me tell you a lonnng story "
ANY_PORTS = [option for name in ("router", "prefill", "decode", "service") for option in (f"--{name}-port", "0")]


@dataclass
class Service:
    router: str
    kvservice: str
    engines: dict[str, str]
    """Addresses of `prefill` and `decode`."""

    def generate(self, body: Any, timeout_s: float = 60) -> tuple[int, dict[str, Any]]:
        return asyncio.run(self.ask(body, timeout_s))

    async def ask(self, body: Any, timeout_s: float) -> tuple[int, dict[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.post(f"{self.router}/generate", json=body) as response,
        ):
            return response.status, await response.json()

    def stream(self, router: str, text: str, new_tokens: int) -> list[dict[str, Any]]:
        """The events of a whole answer."""
        return asyncio.run(self._stream(router, text, new_tokens))

    async def _stream(self, router: str, text: str, new_tokens: int) -> list[dict[str, Any]]:
        body = {"text": text, "sampling_params": {"max_new_tokens": new_tokens}, "stream": True}
        async with aiohttp.ClientSession() as http, http.post(f"{router}/generate", json=body) as response:
            said = (await response.text()).split("\n\n")
        assert said[-2:] == ["data: [DONE]", ""]
        return [json.loads(data.removeprefix("data: ")) for data in said[:-2]]

    async def hang_up(self, router: str, text: str, new_tokens: int) -> None:
        """Read the first event of an answer and no more."""
        body = {"text": text, "sampling_params": {"max_new_tokens": new_tokens}, "stream": True}
        async with aiohttp.ClientSession() as http, http.post(f"{router}/generate", json=body) as response:
            assert json.loads((await response.content.readline()).removeprefix(b"data: "))["output_ids"]

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Until the engines hold no room."""
        async with asyncio.timeout(timeout_s), aiohttp.ClientSession() as http:
            for url in self.engines.values():
                await until(http, url, lambda health: health["rooms"] == 0)

    def transfers(self) -> list[pb.Transfer]:
        with grpc.insecure_channel(self.kvservice) as channel:
            return list(KVTransferStub(channel).ListTransfers(pb.ListTransfersRequest(), timeout=5).transfers)


@pytest.fixture(scope="module")
def service(model_weights: Weights) -> Iterator[Service]:
    process = start("serve", *ANY_PORTS)
    try:
        yield serving(process)
        children = descendants(process.pid)
        assert len(children) == 4
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert out.endswith("serve: every process has ended\n")
        wait_until_ended(children)
    finally:
        end(process)


def serving(process: "subprocess.Popen[str]") -> Service:
    """What `make serve` serves, once it does."""
    assert process.stdout
    engines = {}
    for line in process.stdout:
        if log := re.match(r"(prefill|decode)-tp0 has pid \d+ and log (.+)", line):
            listening = re.search(r"listening on (\S+)", Path(log[2]).read_text())
            assert listening
            engines[log[1]] = listening[1]
        if found := re.match(r"serving: kvservice (\S+), router (\S+);", line):
            return Service(found[2], found[1], engines)
    pytest.fail(process.communicate()[1])


@pytest.fixture(scope="module", params=routers.ROUTERS)
def router(service: Service, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of each router, before the same engines."""
    if request.param == "python":
        yield service.router
        return
    if shutil.which("go") is None and not Path("/usr/local/go/bin/go").exists():
        pytest.skip("there is no Go toolchain")
    engines = [f"--{role}={url}" for role, url in service.engines.items()]
    command = [*routers.command("go"), "--service", service.kvservice, *engines]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process.stdout.readline().split()[-1]
        process.terminate()


def test_a_streamed_answer_is_the_same_as_one_that_is_not(service: Service, router: str) -> None:
    _, whole = service.generate({"text": PROMPT, "sampling_params": {"max_new_tokens": 9}})
    *parts, last = service.stream(router, PROMPT, 9)
    assert (last["text"], last["output_ids"]) == (whole["text"], whole["output_ids"])
    assert last["meta_info"].keys() == whole["meta_info"].keys()
    assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 9}
    assert parts
    for part, following in zip(parts, [*parts[1:], last], strict=True):
        assert following["text"].startswith(part["text"])
        assert following["output_ids"][: len(part["output_ids"])] == part["output_ids"]
        assert len(following["output_ids"]) > len(part["output_ids"])
        assert part["meta_info"]["finish_reason"] is None


def test_a_streamed_answer_may_be_one_token(service: Service, router: str) -> None:
    (only,) = service.stream(router, PROMPT, 1)
    assert only["text"] == "\n"
    assert only["meta_info"]["finish_reason"] == {"type": "length", "length": 1}


def test_a_character_of_several_tokens_comes_when_it_is_whole(service: Service, router: str) -> None:
    question = "<|im_start|>user\nRepeat after me: 🦜🦜🦜<|im_end|>\n<|im_start|>assistant\n🦜"
    events = service.stream(router, question, 12)
    assert "🦜" in events[-1]["text"]
    assert not any("\ufffd" in event["text"] for event in events[:-1])


def test_who_hangs_up_in_the_middle_of_a_stream_ends_its_generation(service: Service, router: str) -> None:
    """2000 tokens would take minutes."""

    async def run() -> None:
        await service.hang_up(router, PROMPT, 2000)
        await service.wait_until_idle(timeout_s=15)

    asyncio.run(run())


def test_an_answer_has_sglang_s_shape(service: Service) -> None:
    status, body = service.generate(
        {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 4}, "rid": "mine"}
    )
    assert status == 200
    assert body["text"] == "\nthat has been"
    assert len(body["output_ids"]) == 4
    meta = body["meta_info"]
    assert meta["id"] == "mine"
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (10, 4, 0)
    assert meta["finish_reason"] == {"type": "length", "length": 4}
    first = meta["time_to_first_token"]
    assert 0 < first["total"] < meta["e2e_latency"]
    assert first["total"] == pytest.approx(sum(part for name, part in first.items() if name != "total"), abs=0.002)


def test_an_answer_may_be_one_token(service: Service) -> None:
    status, body = service.generate({"text": PROMPT, "sampling_params": {"max_new_tokens": 1}})
    assert (status, body["text"]) == (200, "\n")


def test_an_answer_ends_where_the_model_ends_it(service: Service) -> None:
    question = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    status, body = service.generate({"text": question})
    assert (status, body["text"]) == (200, "The capital of France is Paris.")
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": 2}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"text": PROMPT, "sampling_params": {"top_k": 5}}, "sampling_params.top_k: not supported (value 5)"),
        ({"text": ["a", "b"]}, 'text: a string is wanted, not ["a", "b"]'),
        ({"text": ""}, "text: must not be empty"),
        ([], "body: an object is wanted, not []"),
    ],
)
def test_what_is_not_supported_is_a_400_that_names_it(service: Service, body: Any, message: str) -> None:
    status, answer = service.generate(body)
    assert (status, answer["error"]["message"]) == (400, message)


def test_a_request_that_no_pool_holds_is_refused_and_its_room_given_up(service: Service) -> None:
    status, answer = service.generate({"text": PROMPT, "sampling_params": {"max_new_tokens": 6000}})
    assert status == 400
    assert "tokens take" in answer["error"]["message"]
    assert "the pool has 256" in answer["error"]["message"]
    status, _ = service.generate({"text": PROMPT, "sampling_params": {"max_new_tokens": 2}})
    assert status == 200


def test_more_than_the_pool_holds_wait_their_turn(service: Service) -> None:
    """36 at once, where there are 32 slots."""
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 1}}

    async def ask_all() -> list[tuple[int, dict[str, Any]]]:
        return await asyncio.gather(*(service.ask(body, 60) for _ in range(36)))

    answers = asyncio.run(ask_all())
    assert [status for status, _ in answers] == [200] * 36
    assert len({answer["text"] for _, answer in answers}) == 1


def test_a_caller_that_hangs_up_aborts_its_room(service: Service) -> None:
    with pytest.raises(TimeoutError):
        service.generate({"text": PROMPT * 60, "sampling_params": {"max_new_tokens": 100}}, timeout_s=0.5)
    wait_for(
        lambda: [transfer.failure.reason for transfer in service.transfers()],
        lambda reasons: pb.FAILURE_REASON_ABORTED in reasons,
        within=20,
        every=0.05,
    )
    status, _ = service.generate({"text": PROMPT, "sampling_params": {"max_new_tokens": 2}})
    assert status == 200


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start("serve", *ANY_PORTS, "--service-port", str(port))
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "kvservice ended with status 1" in err
    assert str(port) in err


@pytest.mark.parametrize("stream", [True, False])
def test_ctrl_c_in_the_middle_of_a_request_ends_everything(stream: bool) -> None:
    process = start("serve", "--model", "random", *ANY_PORTS)
    try:
        service = serving(process)
        children = descendants(process.pid)
        asyncio.run(interrupt(process, service, stream))
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert out.endswith("serve: every process has ended\n")
        wait_until_ended(children)
    finally:
        end(process)


async def interrupt(process: "subprocess.Popen[str]", service: Service, stream: bool) -> None:
    """Ctrl-C while an answer that takes a minute is on its way; its caller hears of the end."""
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": 3900}, "stream": stream}

    async def ask() -> bytes:
        async with http.post(f"{service.router}/generate", json=body) as response:
            return await response.read()

    async with asyncio.timeout(30), aiohttp.ClientSession() as http:
        asking = asyncio.create_task(ask())
        await until(http, service.engines["decode"], lambda health: health["rooms"] == 1)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(aiohttp.ClientError):  # it is hung up on, if not told
            assert b'"error"' in await asking
