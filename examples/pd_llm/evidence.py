"""What each rank of an engine writes down about a run, one JSON object a line, for the demo's checks to compare.

Every line has an `event`; the methods of `Evidence` say which fields it has. Digests are BLAKE2b in hex.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from kvtransfer import PeerLink

from .kv_pool import Indices, KVPool, bytes_of, holds_canary

_DIGEST_BYTES = 8  # of one page in one layer; a page has a digest for each of its tensors


def digest(tensor: torch.Tensor) -> str:
    """Equal for equal bytes."""
    return hashlib.blake2b(bytes_of(tensor).data, digest_size=_DIGEST_BYTES).hexdigest()


class Evidence:
    """A rank's notes. With no folder to write them to, nothing is looked at and nothing is written."""

    def __init__(self, folder: Path | None, engine: str, rank: int) -> None:
        self._path = folder / f"{engine}-tp{rank}.jsonl" if folder else None

    def started(self, agent: str) -> None:
        """The process has met its peers. `agent` is the name of its NIXL agent."""
        self._note("started", pid=os.getpid(), agent=agent)

    def poll(self, room: int, poll: int) -> None:
        """The room's KVPoll has changed, as this rank saw it."""
        self._note("poll", room=room, poll=poll)

    def chunk(self, room: int, tokens: int) -> None:
        """A chunk of a prompt was computed."""
        self._note("chunk", room=room, tokens=tokens)

    def token(self, room: int, token: int, logits: torch.Tensor) -> None:
        """The next token of an answer, as picked from these logits."""
        if self._path:
            self._note("token", room=room, token=token, logits=digest(logits))

    def moved(self, room: int, pool: KVPool, pages: Sequence[int], slot: int) -> None:
        """What the room's pages and slot hold, now that the transfer has ended well."""
        if self._path:
            page_digests = [[digest(part[page]) for part in pool.page_parts()] for page in pages]
            slot_digests = [digest(part[slot]) for part in pool.slot_parts()]
            self._note(
                "moved", room=room, pages=list(pages), slot=slot, page_digests=page_digests, slot_digests=slot_digests
            )

    def damaged(self, room: int, page: int, changed: bool) -> None:
        """A negative control spoilt a page on purpose; `changed` if its bytes are others now."""
        self._note("damaged", room=room, page=page, changed=changed)

    def untouched(self, pool: KVPool, pages: Indices, slots: Indices) -> None:
        """Which of the pages and slots never handed out somebody has written to."""
        if self._path:
            page_hits = [p for p in pages.untouched if not all(holds_canary(part[p]) for part in pool.page_parts())]
            slot_hits = [s for s in slots.untouched if not all(holds_canary(part[s]) for part in pool.slot_parts())]
            self._note(
                "untouched",
                pages=len(pages.untouched), slots=len(slots.untouched), page_hits=page_hits, slot_hits=slot_hits,
            )  # fmt: skip

    def links(self, links: Sequence[PeerLink]) -> None:
        """How each peer is reached and what went there."""
        self._note("links", links=[asdict(link) for link in links])

    def _note(self, event: str, **fields: Any) -> None:
        if self._path:
            with open(self._path, "a") as f:
                f.write(json.dumps({"event": event, **fields}) + "\n")
