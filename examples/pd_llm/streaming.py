"""Answers piece by piece: as lines of JSON from the decode engine, as server-sent events to a caller."""

import json
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from .vocabulary import Vocabulary

LINES = "application/x-ndjson"
EVENTS = "text/event-stream"
DONE = b"data: [DONE]\n\n"
"""The last event of a stream, after an error too."""

_BROKEN = "\ufffd"
"""What the bytes of a character decode to while some of them are missing."""


class Streamed:
    """An answer of status 200 whose head leaves with its first piece: until then it may still become an error's."""

    def __init__(self, request: web.Request, content_type: str) -> None:
        self._request = request
        self._response = web.StreamResponse(headers={"Content-Type": content_type, "Cache-Control": "no-cache"})

    @property
    def begun(self) -> bool:
        return self._response.prepared

    async def send(self, piece: bytes) -> None:
        """Send a piece; waits while the caller reads too slowly.

        Raises:
            ConnectionError: The caller hung up.
        """
        if not self._response.prepared:
            await self._response.prepare(self._request)
        await self._response.write(piece)

    async def end(self) -> web.StreamResponse:
        """Close the answer, which has begun; gives what a handler has to return."""
        await self._response.write_eof()
        return self._response


def line(body: dict[str, Any]) -> bytes:
    """One line of `LINES`."""
    return json.dumps(body).encode() + b"\n"


def event(body: dict[str, Any]) -> bytes:
    """One event of `EVENTS`."""
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def text_so_far(vocabulary: Vocabulary, output_ids: Sequence[int]) -> str:
    """The text of an answer that goes on, less a character that is not whole yet: what follows only adds to it."""
    return vocabulary.decode(output_ids).rstrip(_BROKEN)
