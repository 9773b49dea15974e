"""The router in Python, before engines whose HTTP ends the test plays, and the real service."""

import asyncio
import contextlib
import io
import json
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from kvtransfer import v1 as pb
from kvtransfer.client import Client

from benchmarks.processes import kvservice
from examples.pd_llm.json_http import errors_as_json
from examples.pd_llm.router import Router
from examples.pd_llm.streaming import LINES, Streamed

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

STREAMED = {"text": "a", "rid": "r1", "stream": True}
FIRST = b'{"text": " a", "output_ids": [5]}\n'
LAST = (
    b'{"text": " a b", "output_ids": [5, 6], "finish_reason": {"type": "length", "length": 2}, '
    b'"prefill_ended_ns": 1, "arrived_ns": 2, "checked_ns": 3, "stepped_ns": 4}\n'
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with kvservice() as service, Client(service.target) as client:
        yield client


class Site:
    """A router, asked over HTTP."""

    def __init__(self, http: aiohttp.ClientSession, url: str, client: Client) -> None:
        self.http, self.url, self.client = http, url, client
        self.room: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Of the request, once decode was asked."""

    async def generate(self, body: Any) -> tuple[int, str]:
        """Status and message of an error."""
        async with self.http.post(f"{self.url}/generate", json=body) as response:
            return response.status, (await response.json())["error"]["message"]

    async def aborted(self) -> str:
        """Why the room was aborted, once it is."""
        room = await self.room
        while True:
            for transfer in (await asyncio.to_thread(self.client.poll, [room])).transfers:
                if transfer.failure.reason == pb.FAILURE_REASON_ABORTED:
                    return transfer.failure.message
            await asyncio.sleep(0.01)


@asynccontextmanager
async def site(client: Client, decode: Handler, timeout_s: float = 10) -> AsyncIterator[Site]:
    """A router before an engine that prefills whatever it is asked and one that does `decode`."""

    async def prefill(_: web.Request) -> web.Response:
        return web.json_response({"tokens": 3})

    async def noted(request: web.Request) -> web.StreamResponse:
        here.room.set_result((await request.json())["room"])
        return await decode(request)

    async with asyncio.timeout(30), aiohttp.ClientSession() as http:
        engines = web.Application()
        engines.add_routes([web.post("/prefill", prefill), web.post("/decode", noted)])
        async with served(engines) as url, served(Router(client, url, url, timeout_s).app()) as router:
            here = Site(http, router, client)
            yield here


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """The data of each event, as it comes."""
    async for line in response.content:
        if line != b"\n":
            assert line.startswith(b"data: ")
            yield line.decode().removeprefix("data: ").rstrip("\n")


def saying(*pieces: bytes, then: Callable[[], Awaitable[object]] | None = None) -> Handler:
    """A decode engine that says this, piece by piece, does `then`, and hangs up."""

    async def decode(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": LINES})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if then:
            await then()
        return response

    return decode


def test_a_streamed_answer_grows_to_the_whole_one(client: Client) -> None:
    async def run() -> list[str]:
        more = asyncio.Event()

        async def decode(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": LINES})
            await response.prepare(request)
            await response.write(FIRST)
            await more.wait()  # the first event is there before the second token is
            await response.write(LAST)
            return response

        async with site(client, decode) as here, here.http.post(f"{here.url}/generate", json=STREAMED) as response:
            assert (response.status, response.content_type) == (200, "text/event-stream")
            said = []
            async for data in events(response):
                said.append(data)
                more.set()
            return said

    first, last, done = asyncio.run(run())
    assert done == "[DONE]"
    parts = [json.loads(first), json.loads(last)]
    assert [part["text"] for part in parts] == [" a", " a b"]
    assert [part["output_ids"] for part in parts] == [[5], [5, 6]]
    before, after = (part["meta_info"] for part in parts)
    assert before.items() >= {"id": "r1", "finish_reason": None, "prompt_tokens": 3, "completion_tokens": 1}.items()
    assert after["finish_reason"] == {"type": "length", "length": 2}
    assert after["time_to_first_token"].keys() > {"total", "prefill"}


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (b'{"error": {"message": "room 7: ABORTED: enough"}}\n', "room 7: ABORTED: enough"),
        (b"", "it hung up in the middle of its answer"),
    ],
)
def test_an_error_in_the_middle_of_a_stream_is_an_event(client: Client, end: bytes, message: str) -> None:
    async def run() -> None:
        async with (
            site(client, saying(FIRST, end)) as here,
            here.http.post(f"{here.url}/generate", json=STREAMED) as response,
        ):
            _, failed, done = [data async for data in events(response)]
            error = json.loads(failed)["error"]
            assert (done, error["room"]) == ("[DONE]", await here.room)
            assert error["message"].endswith(message)
            assert (await here.aborted()).endswith(message)

    asyncio.run(run())


def test_a_timeout_in_the_middle_of_a_stream_is_an_event(client: Client) -> None:
    async def run() -> None:
        decode = saying(FIRST, then=asyncio.Event().wait)
        async with (
            site(client, decode, timeout_s=0.2) as here,
            here.http.post(f"{here.url}/generate", json=STREAMED) as response,
        ):
            _, failed, done = [data async for data in events(response)]
            assert json.loads(failed)["error"]["message"] == f"room {await here.room} was not done in 0.2 s"
            assert done == "[DONE]"
            assert await here.aborted() == "not done in 0.2 s"

    asyncio.run(run())


def test_who_hangs_up_on_a_stream_ends_the_room(client: Client) -> None:
    async def run() -> None:
        decode = saying(FIRST, then=asyncio.Event().wait)
        async with site(client, decode) as here:
            async with here.http.post(f"{here.url}/generate", json=STREAMED) as response:
                await anext(events(response))
            assert await here.aborted() == "the caller hung up"

    asyncio.run(run())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("said", [b"{}\n", b"[5]\n", b"no JSON\n", b'{"error": 5}\n', b"a" * (3 << 20)])
def test_an_answer_that_is_none_ends_the_room(client: Client, stream: bool, said: bytes) -> None:
    async def run() -> None:
        async with site(client, saying(said)) as here:
            async with here.http.post(f"{here.url}/generate", json=STREAMED | {"stream": stream}) as response:
                assert '"error"' in await response.text()
            assert await here.aborted()

    asyncio.run(run())


def refusing(response: web.Response) -> Handler:
    async def decode(_: web.Request) -> web.Response:
        return response

    return decode


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        ({"status": 503, "text": '{"error": {"message": "64 rooms are open"}}'}, 503, "64 rooms are open"),
        ({"status": 500, "text": "<html>"}, 502, "/decode: status 500 and not the JSON of an engine"),
    ],
)
def test_an_engine_s_refusal_is_the_router_s(
    client: Client, answer: dict[str, Any], status: int, message: str, stream: bool
) -> None:
    async def run() -> tuple[int, str]:
        async with site(client, refusing(web.Response(**answer))) as here:
            return await here.generate(STREAMED | {"stream": stream})

    found, said = asyncio.run(run())
    assert found == status
    assert said.endswith(message)


@pytest.mark.parametrize("stream", [True, False])
def test_an_engine_that_is_not_there_is_named(client: Client, stream: bool) -> None:
    async def run() -> tuple[int, str]:
        nowhere = "http://127.0.0.1:1"
        async with aiohttp.ClientSession() as http, served(Router(client, nowhere, nowhere, 5).app()) as url:
            return await Site(http, url, client).generate(STREAMED | {"stream": stream})

    assert asyncio.run(run()) == (502, "http://127.0.0.1:1/prefill: Connection refused")


def test_an_engine_whose_name_is_not_known_is_told_in_words(client: Client) -> None:
    async def run() -> tuple[int, str]:
        unknown = "http://engine.invalid:1"  # a top level that nobody has, by RFC 2606
        async with aiohttp.ClientSession() as http, served(Router(client, unknown, unknown, 9).app()) as url:
            return await Site(http, url, client).generate(STREAMED)

    status, said = asyncio.run(run())
    assert status == 502
    assert re.fullmatch(r"http://engine.invalid:1/prefill: (.*[Nn]ame .*|no connection within 5 s)", said), said


def test_an_engine_that_takes_no_connection_is_given_up(client: Client) -> None:
    """A full backlog: the kernel leaves what comes unanswered."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, contextlib.ExitStack() as held:
        port = silent.getsockname()[1]
        for _ in range(2):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))

        async def run() -> tuple[int, str]:
            url = f"http://127.0.0.1:{port}"
            async with aiohttp.ClientSession() as http, served(Router(client, url, url, 20).app()) as router:
                return await Site(http, router, client).generate(STREAMED)

        assert asyncio.run(run()) == (502, f"http://127.0.0.1:{port}/prefill: no connection within 5 s")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"x", 400, "body: not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"\xff\xff", 400, "body: not JSON: not UTF-8"),
        (b"[" * 100_000, 400, "body: not JSON: nested too deeply"),
        (b'{"text": ' + b"9" * 5000 + b"}", 400, "body: not JSON: a number of too many digits"),
        (b" " * (2**20 + 1), 413, "body: more than 1 MiB"),
        (b"[]", 400, "body: an object is wanted, not []"),
        (b"{}", 400, "text: a string is wanted, not nothing"),
        (b'{"text": null}', 400, "text: a string is wanted, not null"),
        (b'{"text": "\\ud800"}', 400, "text: half of a surrogate pair is no text"),
        (b'{"text": "a", "stream": 1}', 400, "stream: true or false is wanted, not 1"),
        (b'{"text": "a", "n": {"x": [true]}}', 400, 'n: not supported (value {"x": [true]})'),
    ],
)
def test_a_request_that_is_wrong_is_told_what_is(client: Client, body: bytes, status: int, message: str) -> None:
    async def run() -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as http,
            served(Router(client, "http://127.0.0.1:1", "http://127.0.0.1:1", 5).app()) as url,
            http.post(f"{url}/generate", data=io.BytesIO(body)) as response,
        ):
            return response.status, (await response.json())["error"]["message"]

    assert asyncio.run(run()) == (status, message)


@pytest.mark.parametrize("begun", [True, False])
def test_what_nobody_foresaw_goes_to_the_log_alone(begun: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def fault(request: web.Request) -> web.StreamResponse:
        if begun:
            await Streamed(request, LINES).send(FIRST)
        raise ZeroDivisionError("a secret of the server's")

    async def run() -> str:
        app = web.Application(middlewares=[errors_as_json])
        app.add_routes([web.get("/", fault)])
        async with served(app) as url, aiohttp.ClientSession() as http, http.get(url) as response:
            assert response.status == (200 if begun else 500)
            return await response.text()

    if begun:
        with pytest.raises(aiohttp.ClientPayloadError):
            asyncio.run(run())
    else:
        assert json.loads(asyncio.run(run())) == {"error": {"message": "an error of the server, which its log tells"}}
    assert "a secret of the server's" in caplog.text


@pytest.mark.parametrize(
    ("path", "status", "message"), [("/nix", 404, "GET /nix: Not Found"), ("/generate", 405, "Method Not Allowed")]
)
def test_what_is_not_there_is_told_in_json(client: Client, path: str, status: int, message: str) -> None:
    async def run() -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as http,
            served(Router(client, "http://127.0.0.1:1", "http://127.0.0.1:1", 5).app()) as url,
            http.get(f"{url}{path}") as response,
        ):
            return response.status, (await response.json())["error"]["message"]

    found, said = asyncio.run(run())
    assert found == status
    assert said.endswith(message)
