"""What a request can run into, each with the HTTP status that says so."""

import json
from typing import Any

_SHOWN = 100
"""Characters of a caller's value that a message repeats."""


class RequestError(Exception):
    """Root of these; the message is for the caller."""

    status = 500


class BadRequest(RequestError):
    """It cannot be served. The message names the field and its value."""

    status = 400


class RoomInUse(RequestError):
    """A request for the same room is here already."""

    status = 409


class TransferFailed(RequestError):
    """Its KV did not arrive, or its answer was given up."""

    status = 502


class Busy(RequestError):
    """As many rooms are held as may be."""

    status = 503


def shown(value: Any) -> str:
    """A value of a caller's JSON as a message repeats it: in JSON, and not at any length."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
