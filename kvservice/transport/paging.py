"""Pages of a list, and the tokens between them."""

import base64
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from google.protobuf.message import Message

from kvservice.domain.errors import InvalidField

PAGE_BYTES = 1 << 20
DEFAULT_PAGE = 100
MAX_PAGE = 1000

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def page_size(asked: int) -> int:
    """Entries of a page: 100 if 0 was asked for, never more than 1000. Raises InvalidField."""
    if asked < 0:
        raise InvalidField("page_size", "must not be negative", asked)
    return min(asked or DEFAULT_PAGE, MAX_PAGE)


def take(values: Iterable[T], size: int, convert: Callable[[T], M]) -> tuple[list[M], T | None]:
    """Up to `size` messages and about 1 MiB, at least one; and the last value taken if there are more, else None."""
    messages: list[M] = []
    taken = 0
    last: T | None = None
    for value in values:
        message = convert(value)
        taken += message.ByteSize()
        if messages and (len(messages) == size or taken > PAGE_BYTES):
            return messages, last
        messages.append(message)
        last = value
    return messages, None


def token(request: Message, *position: str | int) -> str:
    """Stands for a position in a list under the request's filters."""
    text = "\n".join([_mark(request), *map(str, position)])
    return base64.urlsafe_b64encode(text.encode()).decode()


def position(request: Message, page_token: str, *kinds: Callable[[str], Any]) -> list[Any] | None:
    """The position that a token stands for, each entry of its kind; None without a token. Raises InvalidField."""
    if not page_token:
        return None
    try:
        mark, *found = base64.b64decode(page_token, altchars=b"-_", validate=True).decode().split("\n")
        entries = [kind(text) for kind, text in zip(kinds, found, strict=True)]
    except ValueError:
        mark, entries = "", []
    if mark != _mark(request):
        raise InvalidField("page_token", "must be the last answer's next_page_token, with the same filters", page_token)
    return entries


def _mark(request: Message) -> str:
    """Tells one set of filters from another: the request without its page."""
    filters = type(request)()
    filters.CopyFrom(request)
    for field in ("page_token", "page_size"):
        filters.ClearField(field)
    return f"{zlib.crc32(filters.SerializeToString(deterministic=True)):08x}"
