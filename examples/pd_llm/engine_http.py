"""The HTTP ends of the engines, in rank 0 of each. What the router sends and gets is in `router.py`."""

import asyncio
from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import Any

from aiohttp import web
from tokenizers import Tokenizer

from . import sampling
from .config import ModelConfig
from .decode_scheduler import DecodeJob, DecodeScheduler
from .json_http import errors_as_json, int_field, json_body, str_field
from .kv_pool import KVPool
from .prefill_scheduler import PrefillScheduler
from .request_errors import BadRequest
from .scheduler import Job


class EngineHttp(ABC):
    """What both ends have in common."""

    def __init__(
        self, scheduler: PrefillScheduler | DecodeScheduler, config: ModelConfig, pool: KVPool, tokenizer: Tokenizer
    ) -> None:
        self._scheduler, self._config, self._pool, self._tokenizer = scheduler, config, pool, tokenizer

    def app(self) -> web.Application:
        app = web.Application(middlewares=[errors_as_json])
        app.add_routes([web.get("/health", self._health), *self.routes()])
        return app

    @abstractmethod
    def routes(self) -> list[web.RouteDef]:
        """The role's own."""

    async def _health(self, _: web.Request) -> web.Response:
        """200 when every rank has met its peers, 503 before; and how many rooms are waiting or open."""
        ready = self._scheduler.ready
        return web.json_response({"ready": ready, "rooms": self._scheduler.rooms}, status=200 if ready else 503)

    def _pages_for(self, tokens: int) -> int:
        """Pages of a request.

        Raises:
            BadRequest: The model or the pool is too small for it.
        """
        if tokens > self._config.context:
            raise BadRequest(f"{tokens} tokens of prompt and answer, but the model takes {self._config.context}")
        pages = self._pool.pages_for(tokens)
        if pages > len(self._pool.k[0]):
            raise BadRequest(f"{tokens} tokens take {pages} pages, but the pool has {len(self._pool.k[0])}")
        return pages


class PrefillHttp(EngineHttp):
    """`POST /prefill {room, text, sampling_params}` answers at once with `{tokens}`, the prompt's length."""

    _scheduler: PrefillScheduler

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/prefill", self._prefill)]

    async def _prefill(self, request: web.Request) -> web.Response:
        body = await json_body(request)
        room, text = int_field(body, "room"), str_field(body, "text")
        sampling.parse(body.get("sampling_params"))
        tokens = self._tokenizer.encode(text).ids
        if not tokens:
            raise BadRequest("text: must not be empty")
        self._scheduler.submit(Job(room, self._pages_for(len(tokens)), {"tokens": tokens}))
        return web.json_response({"tokens": len(tokens)})


class DecodeHttp(EngineHttp):
    """`POST /decode {room, tokens, prefill_engine, sampling_params}` answers when the text is complete.

    Besides `text`, `output_ids` and `finish_reason` it tells when things were done, in ns on CLOCK_MONOTONIC.
    """

    _scheduler: DecodeScheduler

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/decode", self._decode)]

    async def _decode(self, request: web.Request) -> web.Response:
        body = await json_body(request)
        room, tokens = int_field(body, "room"), int_field(body, "tokens")
        wanted = sampling.parse(body.get("sampling_params")).max_new_tokens
        capacity = tokens + wanted - 1  # the last token's keys and values are never needed
        arguments = {"tokens": tokens, "capacity": capacity, "prefill_engine": str_field(body, "prefill_engine")}
        answer: Future[Any] = Future()
        answer.set_running_or_notify_cancel()  # only the scheduler ends it
        self._scheduler.submit(DecodeJob(room, self._pages_for(capacity), arguments, wanted, answer))
        try:
            done = await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            self._scheduler.cancel(room, "the caller hung up")
            raise
        matched = {"type": "stop", "matched": self._config.eos}
        return web.json_response(
            {
                "text": self._tokenizer.decode(done.output_ids),
                "output_ids": done.output_ids,
                "finish_reason": matched if done.stopped else {"type": "length", "length": wanted},
                "prefill_ended_ns": done.prefill_ended_ns,
                "arrived_ns": done.arrived_ns,
                "checked_ns": done.checked_ns,
                "stepped_ns": done.stepped_ns,
            }
        )
