"""Reading and answering JSON over HTTP."""

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from .request_errors import BadRequest, RequestError, shown

_log = logging.getLogger(__name__)


def error(status: int, message: str, **details: Any) -> web.Response:
    """An answer in the shape of SGLang's errors."""
    return web.json_response(error_body(message, **details), status=status)


def error_body(message: str, **details: Any) -> dict[str, Any]:
    """What such an answer says."""
    return {"error": {"message": message, **details}}


@web.middleware
async def errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer in JSON whatever a handler raises; what nobody foresaw goes to the log, not to the caller."""
    try:
        return await handler(request)
    except RequestError as failed:
        return error(failed.status, str(failed))
    except web.HTTPRequestEntityTooLarge:
        return error(413, "body: more than 1 MiB")
    except web.HTTPException as refused:
        return error(refused.status, f"{request.method} {request.path}: {refused.reason}")
    except ConnectionError:  # the caller is gone
        raise
    except Exception:
        _log.exception("%s %s", request.method, request.path)
        if request.writer.output_size > 0:  # an answer has begun: all that is left is to hang up
            raise
        return error(500, "an error of the server, which its log tells")


async def json_body(request: web.Request) -> dict[str, Any]:
    """The body, which must be one JSON object.

    Raises:
        BadRequest: It is not.
    """
    raw = await request.read()
    try:
        body = json.loads(raw)
    except UnicodeDecodeError:
        raise BadRequest("body: not JSON: not UTF-8") from None
    except RecursionError:
        raise BadRequest("body: not JSON: nested too deeply") from None
    except json.JSONDecodeError as bad:
        raise BadRequest(f"body: not JSON: {bad}") from None
    except ValueError:  # the one other that there is
        raise BadRequest("body: not JSON: a number of too many digits") from None
    if not isinstance(body, dict):
        raise BadRequest(f"body: an object is wanted, not {shown(body)}")
    return body


def str_field(body: dict[str, Any], name: str) -> str:
    """A field that must be a string.

    Raises:
        BadRequest: It is not.
    """
    value = body.get(name)
    if not isinstance(value, str):
        raise _wrong(body, name, "a string")
    if not _is_unicode(value):
        raise BadRequest(f"{name}: half of a surrogate pair is no text")
    return value


def int_field(body: dict[str, Any], name: str) -> int:
    """A field that must be a positive integer of 63 bits.

    Raises:
        BadRequest: It is not.
    """
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**63:
        raise _wrong(body, name, "a positive integer of 63 bits")
    return value


def bool_field(body: dict[str, Any], name: str) -> bool:
    """A field that may be left out, which is false, or be true or false.

    Raises:
        BadRequest: It is something else.
    """
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(body, name, "true or false")
    return value


def _wrong(body: dict[str, Any], name: str, wanted: str) -> BadRequest:
    return BadRequest(f"{name}: {wanted} is wanted, not {shown(body[name]) if name in body else 'nothing'}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
