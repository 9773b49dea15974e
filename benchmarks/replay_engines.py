"""The engines of a replay: everything real but the model, whose compute takes time and no core."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kvtransfer import KVManager, KVPoll, KVReceiver, KVSender
from kvtransfer.manager import Role

from benchmarks.pool import Pool
from benchmarks.shapes import PAGE_TOKENS, Shape
from benchmarks.worker import manager

CHUNK_TOKENS = 2048
"""Of a prefill step."""
LOOK_EVERY_S = 500e-6
"""Between two looks of an engine's thread, while it has nothing to compute."""
READY_TIMEOUT_S = 60.0
SILENCE_S = 60.0
"""The longest that nothing may happen in a replay."""

Pages = list[int]


@dataclass(frozen=True, slots=True)
class Request:
    """One of a replay."""

    room: int
    arrives_at: float
    """On CLOCK_MONOTONIC, as all times here."""
    tokens: int
    """In."""
    output_tokens: int
    prefill_s: float
    """Of compute."""


@dataclass(slots=True)
class Prefilled:
    """What the prefill engine saw of a request."""

    began: float
    computed: float
    """When its last chunk was."""
    pages: Pages


@dataclass(slots=True)
class Decoded:
    """What the decode engine saw of a request."""

    pages: Pages
    joined: float
    """When it had pages for it, and offered them."""
    arrived: float = 0.0
    """When its KV had."""
    first_token: float = 0.0
    last_token: float = 0.0
    tokens: int = 0

    def add_token(self, now: float) -> None:
        """One more has been computed."""
        self.tokens += 1
        self.first_token = self.first_token or now
        self.last_token = now


class _Engine:
    """What both have: a worker, and a pool that is given out prompt by prompt."""

    def __init__(self, role: Role, target: str, shape: Shape) -> None:
        self._pool = Pool(shape, filled=role == "prefill")
        self._manager: KVManager = manager(role, target, self._pool, role)
        prompts = range(0, shape.pool_pages - shape.pages + 1, shape.pages)
        self._free = deque([list(range(first, first + shape.pages)) for first in prompts])
        self._closing: dict[int, Pages] = {}
        """Rooms whose pages are not back, and which of them the engine is done with."""

    def wait_ready(self) -> None:
        """Until the other engine was met. Raises TimeoutError."""
        until = time.monotonic() + READY_TIMEOUT_S
        while not self._manager.ready():
            if time.monotonic() > until:
                raise TimeoutError(f"nobody was met within {READY_TIMEOUT_S:g} s")
            time.sleep(LOOK_EVERY_S)

    def _end(self, handle: KVSender | KVReceiver) -> None:
        """Closes a room that has ended. Raises RuntimeError if it did not end well."""
        if handle.poll() is not KVPoll.SUCCESS:
            raise RuntimeError(f"room {handle.room}: {handle.failure()}")
        handle.close()
        self._closing[handle.room] = []

    def _free_pages(self, room: int, pages: Pages) -> None:
        """The engine is done with them: they are free now, or when the room's have come back."""
        if room in self._closing:
            self._closing[room] = pages
        else:
            self._free.append(pages)

    def _take_pages_back(self) -> None:
        if self._closing:
            for released in self._manager.released():
                if pages := self._closing.pop(released.room):
                    self._free.append(pages)

    def close(self) -> None:
        """Leaves the service."""
        self._manager.close()


class PrefillEngine(_Engine):
    """Computes one request at a time, chunk by chunk, handing each over beforehand with a timer for an event."""

    def __init__(self, target: str, shape: Shape) -> None:
        super().__init__("prefill", target, shape)

    def serve(self, requests: Sequence[Request]) -> list[Prefilled]:
        """All of them; one result each, in order. Raises RuntimeError, TimeoutError."""
        arriving, queue = deque(requests), deque[tuple[Request, KVSender]]()
        moving: list[tuple[KVSender, Pages]] = []
        seen: dict[int, Prefilled] = {}
        busy_until = 0.0
        until = requests[-1].arrives_at + SILENCE_S
        while len(seen) < len(requests) or moving or self._closing:
            now = _tick(until)
            while arriving and arriving[0].arrives_at <= now:
                request = arriving.popleft()
                queue.append((request, self._manager.sender(request.room, request.tokens)))
            if queue and self._free and now >= busy_until:
                request, sender = queue.popleft()
                pages = self._free.popleft()
                busy_until = now + request.prefill_s
                self._compute(request, sender, pages, now)
                moving.append((sender, pages))
                seen[request.room] = Prefilled(now, busy_until, pages)
                until = busy_until + SILENCE_S
            for sender, pages in [entry for entry in moving if entry[0].poll().final]:
                moving.remove((sender, pages))
                self._end(sender)
                self._free_pages(sender.room, pages)
            self._take_pages_back()
        return [seen[request.room] for request in requests]

    def _compute(self, request: Request, sender: KVSender, pages: Pages, now: float) -> None:
        chunk = CHUNK_TOKENS // PAGE_TOKENS
        for first in range(0, len(pages), chunk):
            some = pages[first : first + chunk]
            done = (first + len(some)) / len(pages)
            last = done == 1
            sender.send({"kv": some}, ready=partial(_passed, now + done * request.prefill_s), last=last)


class DecodeEngine(_Engine):
    """Adds a token to every request that it runs in steps of equal time, as a continuous batch does."""

    def __init__(self, target: str, shape: Shape) -> None:
        super().__init__("decode", target, shape)
        self._pool.clear(range(shape.pool_pages))

    def serve(self, requests: Sequence[Request], step_s: float) -> list[Decoded]:
        """All of them; one result each, in order. Raises RuntimeError, TimeoutError."""
        arriving = deque(requests)
        awaited: list[tuple[Request, KVReceiver]] = []
        batch: dict[int, Request] = {}
        seen: dict[int, Decoded] = {}
        step_ends, stepping = 0.0, set[int]()
        until = requests[-1].arrives_at + SILENCE_S
        while len(seen) < len(requests) or awaited or batch or self._closing:
            now = _tick(until)
            while arriving and arriving[0].arrives_at <= now and self._free:
                request = arriving.popleft()
                seen[request.room] = Decoded(self._free.popleft(), now)
                receiver = self._manager.receiver(request.room, "prefill")
                receiver.offer(request.tokens, {"kv": seen[request.room].pages})
                awaited.append((request, receiver))
            for request, receiver in [entry for entry in awaited if entry[1].poll().final]:
                awaited.remove((request, receiver))
                self._end(receiver)
                batch[request.room] = request
                seen[request.room].arrived = now
            self._take_pages_back()
            if now >= step_ends:
                for room in stepping:
                    seen[room].add_token(now)
                    if seen[room].tokens == batch[room].output_tokens:
                        self._free_pages(room, seen[room].pages)
                        del batch[room]
                        until = now + SILENCE_S
                stepping, step_ends = set(batch), now + step_s
        return [seen[request.room] for request in requests]

    def wrong_pieces(self, targets: Pages, sources: Pages) -> int:
        """See Pool."""
        return self._pool.wrong_pieces(targets, sources)


def _passed(moment: float) -> bool:
    return time.monotonic() >= moment


def _tick(until: float) -> float:
    time.sleep(LOOK_EVERY_S)
    now = time.monotonic()
    if now > until:
        raise TimeoutError(f"nothing has happened for {SILENCE_S:g} s")
    return now
