"""A rank of the prefill engine: computes prompts chunk by chunk and sends each chunk's pages as it finishes."""

import time

import torch
from kvtransfer import KVManager, KVSender

from . import aux_row
from .aux_row import AuxRow
from .evidence import Evidence
from .kv_pool import Indices, KVPool
from .model import Model
from .rank import Rank
from .tp import Group


class PrefillRank(Rank):
    """Commands of prefill; see `Rank`."""

    def __init__(
        self, model: Model, pool: KVPool, pages: Indices, slots: Indices, manager: KVManager, group: Group,
        evidence: Evidence, chunk: int,
    ) -> None:  # fmt: skip
        """`chunk`: most tokens computed at once, a multiple of the pool's `page_tokens`."""
        super().__init__(model, pool, pages, slots, manager, group, evidence)
        self._chunk = chunk

    def open(self, room: int, tokens: list[int]) -> None:
        """Take pages for a prompt and join its room."""
        place = self._open[room] = self._take(len(tokens))
        place.tokens = tokens

        def join() -> None:
            place.handle = self._manager.sender(room, len(tokens))

        self._attempt(place, join)

    def step(self, room: int) -> int:
        """Compute the next chunk and send it; gives how many tokens are left."""
        place = self._open[room]
        start, end = place.done, min(place.done + self._chunk, len(place.tokens))
        last = end == len(place.tokens)
        logits = self._model.forward(place.tokens[start:end], start, place.pages)
        self._evidence.chunk(room, end - start)
        if last:
            token = int(logits.argmax())
            ended_ns = time.monotonic_ns()
            aux_row.write(self._pool, place.slot, AuxRow(room, len(place.tokens), token, ended_ns), logits)
            self._evidence.token(room, token, logits)
        place.done = end
        pages = place.pages[start // self._pool.page_tokens : self._pool.pages_for(end)]
        slots = {"aux": place.slot} if last else None

        def send() -> None:
            assert isinstance(place.handle, KVSender)
            place.handle.send({"kv": pages}, tokens=end - start, slots=slots, ready=self._fence(), last=last)
            place.lent = True

        if place.handle:
            self._attempt(place, send)
        return len(place.tokens) - end

    def sent(self, room: int) -> None:
        """Every rank's pages have arrived."""
        place = self._open[room]
        self._evidence.moved(room, self._pool, place.pages, place.slot)
        self._evidence.links(self._manager.links())

    def _fence(self) -> torch.cuda.Event | None:
        """What tells the mover that a chunk has been written: on a GPU the work is only queued when a call returns."""
        if self._pool.fields.device.type != "cuda":
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's stub lacks types here
        event.record()
        return event
