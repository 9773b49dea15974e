"""The HTTP ends of the engines, in rank 0 of each. What the router sends and gets is in `router.py`."""

import asyncio
from abc import ABC, abstractmethod
from concurrent.futures import Future
from functools import partial
from typing import Any

from aiohttp import web

from . import sampling
from .config import ModelConfig
from .decode_scheduler import Answer, DecodeJob, DecodeScheduler
from .json_http import bool_field, error_body, errors_as_json, int_field, json_body, str_field
from .kv_pool import KVPool
from .prefill_scheduler import PrefillScheduler
from .request_errors import BadRequest, RequestError
from .scheduler import Job
from .streaming import LINES, Streamed, line, text_so_far
from .vocabulary import Vocabulary


class EngineHttp(ABC):
    """What both ends have in common."""

    def __init__(
        self, scheduler: PrefillScheduler | DecodeScheduler, config: ModelConfig, pool: KVPool, vocabulary: Vocabulary
    ) -> None:
        self._scheduler, self._config, self._pool, self._vocabulary = scheduler, config, pool, vocabulary

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
        tokens = self._vocabulary.encode(text)
        if not tokens:
            raise BadRequest("text: must not be empty")
        self._scheduler.submit(Job(room, self._pages_for(len(tokens)), {"tokens": tokens}))
        return web.json_response({"tokens": len(tokens)})


class DecodeHttp(EngineHttp):
    """`POST /decode {room, tokens, prefill_engine, sampling_params}` answers when the text is complete.

    Besides `text`, `output_ids` and `finish_reason` it tells when things were done, in ns on CLOCK_MONOTONIC. With
    `"stream": true` a line with the text and tokens so far comes each time that there are more, and that answer is the
    last line, or an error.
    """

    _scheduler: DecodeScheduler

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/decode", self._decode)]

    async def _decode(self, request: web.Request) -> web.StreamResponse:
        body = await json_body(request)
        room, tokens, streams = int_field(body, "room"), int_field(body, "tokens"), bool_field(body, "stream")
        wanted = sampling.parse(body.get("sampling_params")).max_new_tokens
        capacity = tokens + wanted - 1  # the last token's keys and values are never needed
        arguments = {"tokens": tokens, "capacity": capacity, "prefill_engine": str_field(body, "prefill_engine")}
        answer: Future[Answer] = Future()
        answer.set_running_or_notify_cancel()  # only the scheduler ends it
        news = asyncio.Event()
        tell = partial(asyncio.get_running_loop().call_soon_threadsafe, news.set)
        job = DecodeJob(room, self._pages_for(capacity), arguments, wanted, answer, tell)
        answer.add_done_callback(lambda _: tell())
        self._scheduler.submit(job)
        try:
            if streams:
                return await self._stream(request, job, news)
            return web.json_response(self._whole(job, await asyncio.wrap_future(answer)))
        except (asyncio.CancelledError, ConnectionError):
            self._scheduler.cancel(room, "the caller hung up")
            raise

    async def _stream(self, request: web.Request, job: DecodeJob, news: asyncio.Event) -> web.StreamResponse:
        """Send what is there whenever there is news; a slow reader gets several tokens at once."""
        lines = Streamed(request, LINES)
        while not job.answer.done():
            await news.wait()
            news.clear()
            if (output_ids := list(job.output)) and not job.answer.done():
                await lines.send(line({"text": text_so_far(self._vocabulary, output_ids), "output_ids": output_ids}))
        try:
            last = self._whole(job, job.answer.result())
        except RequestError as failed:
            if not lines.begun:
                raise
            last = error_body(str(failed))
        await lines.send(line(last))
        return await lines.end()

    def _whole(self, job: DecodeJob, done: Answer) -> dict[str, Any]:
        matched = {"type": "stop", "matched": self._config.eos}
        return {
            "text": self._vocabulary.decode(done.output_ids),
            "output_ids": done.output_ids,
            "finish_reason": matched if done.stopped else {"type": "length", "length": job.new_tokens},
            "prefill_ended_ns": done.prefill_ended_ns,
            "arrived_ns": done.arrived_ns,
            "checked_ns": done.checked_ns,
            "stepped_ns": done.stepped_ns,
        }
