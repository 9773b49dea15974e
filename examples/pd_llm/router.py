"""The HTTP router: gives each request a room and sends it to the prefill engine and then to the decode engine.

python -m examples.pd_llm.router --service 127.0.0.1:50051 --prefill http://127.0.0.1:8001 --decode http://127.0.0.1:8002
"""

import argparse
import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from kvtransfer.client import Client
from kvtransfer.errors import KVTransferError

from . import sampling
from .engine_client import CONNECT_S, EngineRefused, ask, ask_for_lines
from .http_process import serve
from .json_http import bool_field, error, error_body, errors_as_json, json_body, str_field
from .request_errors import BadRequest, shown
from .sglang_shape import Shape
from .streaming import DONE, EVENTS, Streamed, event

_FIELDS = {"text", "sampling_params", "rid", "stream"}
_MESSAGE_LIMIT = 1024
"""Characters that an Abort may say."""
_LINE_BYTES = 1 << 20
"""Of a whole answer in JSON: the model's context has at most 8192 tokens."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller wants."""

    text: str
    sampling_params: Any
    rid: str
    stream: bool


class Router:
    """Takes `POST /generate` in SGLang's shape. Knows neither the model nor its tokenizer."""

    def __init__(self, service: Client, prefill: str, decode: str, timeout_s: float) -> None:
        """`prefill` and `decode` are the engines' addresses; `timeout_s` bounds each generation."""
        self._service, self._prefill, self._decode, self._timeout_s = service, prefill, decode, timeout_s
        self._aborts: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        app = web.Application(middlewares=[errors_as_json])
        app.add_routes([web.get("/health", self._health), web.post("/generate", self._generate)])
        app.cleanup_ctx.append(self._session)
        return app

    async def _session(self, _: web.Application) -> AsyncIterator[None]:
        # No limit on the whole: each generation has a timeout, and an engine answers when the text is complete.
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None, connect=CONNECT_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=_LINE_BYTES) as self._http:
            yield
            await asyncio.gather(*self._aborts)

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"ready": True})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        accepted_ns = time.monotonic_ns()
        asked = read(await json_body(request))
        room = secrets.randbelow(2**63 - 1) + 1
        events = Streamed(request, EVENTS)
        try:
            async with asyncio.timeout(self._timeout_s):
                wanted = {"room": room, "sampling_params": asked.sampling_params}
                prompt = await ask(self._http, f"{self._prefill}/prefill", wanted | {"text": asked.text})
                wanted |= {"tokens": prompt["tokens"], "prefill_engine": "prefill"}
                shape = Shape(asked.rid, room, prompt["tokens"], accepted_ns)
                if not asked.stream:
                    return web.json_response(shape.whole(await ask(self._http, f"{self._decode}/decode", wanted)))
                await self._stream(events, shape, wanted)
        except (asyncio.CancelledError, ConnectionError):
            self._abort(room, "the caller hung up")
            raise
        except TimeoutError:
            refused = EngineRefused(504, f"room {room} was not done in {self._timeout_s:g} s")
            self._abort(room, f"not done in {self._timeout_s:g} s")
        except EngineRefused as failed:
            refused = failed
            self._abort(room, str(refused))
        except (ValueError, LookupError, TypeError, HttpProcessingError) as failed:
            refused = EngineRefused(502, f"what an engine answered is no answer: {failed!r}")
            self._abort(room, str(refused))
        else:
            return await events.end()
        if not events.begun:
            return error(refused.status, str(refused), room=room)
        await events.send(event(error_body(str(refused), room=room)) + DONE)
        return await events.end()

    async def _stream(self, events: Streamed, shape: Shape, wanted: dict[str, Any]) -> None:
        """Pass the answer on as it grows."""
        lines = ask_for_lines(self._http, f"{self._decode}/decode", wanted | {"stream": True})
        async with aclosing(lines):
            async for line in lines:
                if "finish_reason" in line:
                    await events.send(event(shape.whole(line)) + DONE)
                else:
                    await events.send(event(shape.part(line)))

    def _abort(self, room: int, message: str) -> None:
        """Tell everybody in the room, without making the caller wait."""
        task = asyncio.create_task(self._tell(room, message))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _tell(self, room: int, message: str) -> None:
        try:
            await asyncio.to_thread(self._service.abort, [room], message[:_MESSAGE_LIMIT])
        except KVTransferError as error:  # the room ends by a deadline of its own
            print(f"room {room} was not aborted: {error}", flush=True)


def read(body: dict[str, Any]) -> Asked:
    """Read a request.

    Raises:
        BadRequest: It asks for what is not supported, which is named.
    """
    for name, value in body.items():
        if name not in _FIELDS:
            raise BadRequest(f"{name}: not supported (value {shown(value)})")
    sampling.parse(body.get("sampling_params"))
    return Asked(
        text=str_field(body, "text"),
        sampling_params=body.get("sampling_params"),
        rid=str_field(body, "rid") if "rid" in body else uuid.uuid4().hex,
        stream=bool_field(body, "stream"),
    )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.pd_llm.router", description=__doc__)
    parser.add_argument("--service", required=True, metavar="HOST:PORT", help="kvservice")
    parser.add_argument("--prefill", required=True, metavar="URL", help="rank 0 of the prefill engine")
    parser.add_argument("--decode", required=True, metavar="URL", help="rank 0 of the decode engine")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="where to listen; 0: any (default)")
    parser.add_argument(
        "--timeout", type=float, default=120, metavar="SECONDS", help="a generation may take (default 120)"
    )
    args = parser.parse_args()
    with Client(args.service) as service:
        await serve(Router(service, args.prefill, args.decode, args.timeout).app(), args.host, args.port)


if __name__ == "__main__":
    asyncio.run(main())
