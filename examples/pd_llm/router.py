"""The HTTP router: gives each request a room and sends it to the prefill engine and then to the decode engine.

python -m examples.pd_llm.router --service 127.0.0.1:50051 --prefill http://127.0.0.1:8001 --decode http://127.0.0.1:8002
"""

import argparse
import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web
from kvtransfer.client import Client
from kvtransfer.errors import KVTransferError

from . import sampling
from .http_process import serve
from .json_http import error, errors_as_json, json_body, str_field
from .request_errors import BadRequest

_FIELDS = {"text", "sampling_params", "rid", "stream"}
_MESSAGE_LIMIT = 1024
"""Characters that an Abort may say."""


class EngineRefused(Exception):
    """An engine answered with an error, whose message this is, or not at all."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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
        # No limits of its own: each generation has a timeout, and an engine answers when the text is complete.
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._http:
            yield
            await asyncio.gather(*self._aborts)

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"ready": True})

    async def _generate(self, request: web.Request) -> web.Response:
        accepted_ns = time.monotonic_ns()
        body = await json_body(request)
        text = str_field(body, "text")
        for name, value in body.items():
            if name not in _FIELDS or (name == "stream" and value is not False):
                raise BadRequest(f"{name}: not supported (value {value!r})")
        sampling.parse(body.get("sampling_params"))
        rid = str_field(body, "rid") if "rid" in body else uuid.uuid4().hex
        room = secrets.randbelow(2**63 - 1) + 1
        try:
            async with asyncio.timeout(self._timeout_s):
                wanted = {"room": room, "sampling_params": body.get("sampling_params")}
                prompt = await self._post(f"{self._prefill}/prefill", wanted | {"text": text})
                tokens = {"tokens": prompt["tokens"], "prefill_engine": "prefill"}
                answer = await self._post(f"{self._decode}/decode", wanted | tokens)
        except asyncio.CancelledError:
            self._abort(room, "the caller hung up")
            raise
        except TimeoutError:
            self._abort(room, f"not done in {self._timeout_s:g} s")
            return error(504, f"room {room} was not done in {self._timeout_s:g} s", room=room)
        except EngineRefused as refused:
            self._abort(room, str(refused))
            return error(refused.status, str(refused), room=room)
        return web.json_response(in_sglangs_shape(rid, room, prompt["tokens"], accepted_ns, answer))

    async def _post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._http.post(url, json=body) as response:
                answer: dict[str, Any] = await response.json()
        except aiohttp.ClientError as failed:
            raise EngineRefused(502, f"{url}: {failed}") from failed
        if response.status != 200:
            raise EngineRefused(response.status, answer["error"]["message"])
        return answer

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


def in_sglangs_shape(
    rid: str, room: int, prompt_tokens: int, accepted_ns: int, answer: dict[str, Any]
) -> dict[str, Any]:
    """What `/generate` answers. Times are in seconds.

    Ours beside SGLang's fields: `room`, and `time_to_first_token` with its parts, from the request's arrival to the end
    of the first decode step.
    """
    stages = {
        "prefill": answer["prefill_ended_ns"] - accepted_ns,
        "transfer": answer["arrived_ns"] - answer["prefill_ended_ns"],
        "check": answer["checked_ns"] - answer["arrived_ns"],
        "first_decode_step": answer["stepped_ns"] - answer["checked_ns"],
    }
    return {
        "text": answer["text"],
        "output_ids": answer["output_ids"],
        "meta_info": {
            "id": rid,
            "finish_reason": answer["finish_reason"],
            "prompt_tokens": prompt_tokens,
            "completion_tokens": len(answer["output_ids"]),
            "cached_tokens": 0,
            "e2e_latency": (time.monotonic_ns() - accepted_ns) / 1e9,
            "room": room,
            "time_to_first_token": {
                "total": (answer["stepped_ns"] - accepted_ns) / 1e9,
                **{name: ns / 1e9 for name, ns in stages.items()},
            },
        },
    }


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
