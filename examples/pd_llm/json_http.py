"""Reading and answering JSON over HTTP."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from .request_errors import BadRequest, RequestError


def error(status: int, message: str, **details: Any) -> web.Response:
    """An answer in the shape of SGLang's errors."""
    return web.json_response({"error": {"message": message, **details}}, status=status)


@web.middleware
async def errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer what a handler raises as a RequestError."""
    try:
        return await handler(request)
    except RequestError as failed:
        return error(failed.status, str(failed))


async def json_body(request: web.Request) -> dict[str, Any]:
    """The body, which must be one JSON object.

    Raises:
        BadRequest: It is not.
    """
    try:
        body = await request.json()
    except (json.JSONDecodeError, UnicodeDecodeError) as bad:
        raise BadRequest(f"body: not JSON: {bad}") from None
    if not isinstance(body, dict):
        raise BadRequest(f"body: an object is wanted, not {body!r}")
    return body


def str_field(body: dict[str, Any], name: str) -> str:
    """A field that must be a string.

    Raises:
        BadRequest: It is not.
    """
    value = body.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{name}: a string is wanted, not {value!r}")
    return value


def int_field(body: dict[str, Any], name: str) -> int:
    """A field that must be a positive integer.

    Raises:
        BadRequest: It is not.
    """
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(f"{name}: a positive integer is wanted, not {value!r}")
    return value
