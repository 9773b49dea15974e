"""How the router asks the engines."""

import json
import os
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp

CONNECT_S = 5.0
"""An engine that no connection can be had to within so long is not there."""


class EngineRefused(Exception):
    """An engine answered with an error, whose message this is, or not at all."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def ask(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """What an engine answers.

    Raises:
        EngineRefused: It does not.
    """
    try:
        async with http.post(url, json=body) as response:
            return await _read(url, response)
    except aiohttp.ClientError as failed:
        raise EngineRefused(502, f"{url}: {_why(failed)}") from failed


async def ask_for_lines(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """The lines of an engine's answer, as they come. The last one has a `finish_reason`.

    Raises:
        EngineRefused: It does not answer, or it fails in the middle.
    """
    try:
        async with http.post(url, json=body) as response:
            if response.status != 200:
                await _read(url, response)
            async for raw in response.content:
                line: dict[str, Any] = json.loads(raw)
                if "error" in line:
                    raise EngineRefused(502, line["error"]["message"])
                yield line
                if "finish_reason" in line:
                    return
    except aiohttp.ClientError as failed:
        raise EngineRefused(502, f"{url}: {_why(failed)}") from failed
    raise EngineRefused(502, f"{url}: it hung up in the middle of its answer")


async def _read(url: str, response: aiohttp.ClientResponse) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(await response.read())
        if response.status == 200:
            return answer
        message = answer["error"]["message"]
    except (ValueError, KeyError, TypeError):
        raise EngineRefused(502, f"{url}: status {response.status} and not the JSON of an engine") from None
    raise EngineRefused(response.status, message)


def _why(failed: aiohttp.ClientError) -> str:
    if isinstance(failed, aiohttp.ConnectionTimeoutError):
        return f"no connection within {CONNECT_S:g} s"
    if isinstance(failed, aiohttp.ClientConnectorDNSError):
        return failed.os_error.strerror or "its name is not known"  # its number is none of errno's
    if isinstance(failed, aiohttp.ClientConnectorError) and failed.os_error.errno:
        return os.strerror(failed.os_error.errno)
    return "it hung up"
