"""A rank of the decode engine: offers pages, waits for them to be filled, and decodes from them."""

from kvtransfer import KVManager

from . import aux_row, spoil
from .damage import Damage
from .evidence import Evidence
from .kv_pool import Indices, KVPool
from .model import Model
from .rank import Rank
from .tp import Group

_NOTHING = [0, 0, 0, 0]


class DecodeRank(Rank):
    """Commands of decode; see `Rank`."""

    def __init__(
        self, model: Model, pool: KVPool, pages: Indices, slots: Indices, manager: KVManager, group: Group,
        evidence: Evidence, damaged: Damage | None,
    ) -> None:  # fmt: skip
        """`damaged`: how this rank spoils its transfers, if it does."""
        super().__init__(model, pool, pages, slots, manager, group, evidence)
        self._damage = damaged

    def open(self, room: int, tokens: int, capacity: int, prefill_engine: str) -> None:
        """Take pages for `capacity` tokens, prompt and answer, and offer those of the prompt's `tokens`."""
        place = self._open[room] = self._take(capacity)
        place.done = tokens

        def offer() -> None:
            place.handle = receiver = self._manager.receiver(room, prefill_engine)
            pages = spoil.offered(self._damage, self._prompt_pages(room))
            receiver.offer(tokens, {"kv": pages}, slots={"aux": place.slot})
            place.lent = True

        self._attempt(place, offer)

    def arrived(self, room: int) -> tuple[int, int] | None:
        """Every rank's pages are here: look at them. The first token, and when prefill ended on CLOCK_MONOTONIC in ns.

        None if some rank's aux row is not this room's.
        """
        place = self._open[room]
        pages = self._prompt_pages(room)
        spoil.strike(self._damage, room, self._pool, pages, self._evidence)
        self._evidence.moved(room, self._pool, pages, place.slot)
        try:
            row = aux_row.read(self._pool, place.slot, room)
            mine = [1, row.prompt_tokens, row.first_token, row.prefill_ended_ns]
            self._evidence.token(room, row.first_token, self._pool.logits[place.slot])
        except ValueError as error:
            place.error = str(error)
            mine = _NOTHING
        answers = self.group.gather_ints(mine)
        if _NOTHING in answers:
            return None
        _, _, first_token, ended_ns = answers[0]
        return first_token, ended_ns

    def step(self, room: int, token: int) -> int:
        """Feed the answer's latest token; gives the next."""
        place = self._open[room]
        logits = self._model.forward([token], place.done, place.pages)
        place.done += 1
        following = int(logits.argmax())
        self._evidence.token(room, following, logits)
        return following

    def _prompt_pages(self, room: int) -> list[int]:
        place = self._open[room]
        return place.pages[: self._pool.pages_for(place.done)]
