"""A page of commands and what they print.

Of its fenced blocks, `sh` holds commands. A `json` or `text` block right after it is what they print; without one they
print nothing: they define what later commands use. `second-terminal` after the language means a command that goes on,
and what it has printed since.
"""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: ([a-z-]+))?\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Commands and what they print; empty commands for more of what the second terminal prints."""

    line: int
    commands: str
    shown: str | None
    second_terminal: bool


def blocks(path: Path) -> list[Block]:
    """In the order of the page."""
    text = path.read_text()
    found: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        language, terminal, body = match.groups()
        is_second = terminal == "second-terminal"
        if language == "sh":
            found.append(Block(text.count("\n", 0, match.start()) + 1, body, None, is_second))
        elif not text[end : match.start()].strip() and found:
            found[-1] = Block(found[-1].line, found[-1].commands, body, is_second)
        else:
            found.append(Block(text.count("\n", 0, match.start()) + 1, "", body, is_second))
        end = match.end()
    return found


_VOLATILE = re.compile(
    r"""(?P<number>\b\d{16}\b)                                    # an epoch or a revision: microseconds since 1970
      | (?P<uuid>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)
      | (?P<time>\d{4}-\d\d-\d\dT[\d:.]+Z)
      | (?<="lease_left":\ ")(?P<left>[\d.]+s)
      | (?<="version":\ ")(?P<version>[^"]+)""",
    re.VERBOSE,
)
_SAME_THROUGHOUT = ("number", "uuid")


class Comparison:
    """Of what a page shows with what comes.

    Numbers and ids that differ from run to run may, but what is one on the page is one in what comes, all through.
    """

    def __init__(self) -> None:
        self._came_of: dict[str, str] = {}

    def as_came(self, shown: str) -> str:
        """Commands of the page, with what came in place of what the page shows."""
        return _VOLATILE.sub(lambda match: self._came_of.get(match[0], match[0]), shown)

    def compare(self, shown: str, came: str) -> None:
        """Raises AssertionError where they differ."""
        expected, actual = (_VOLATILE.sub(_kind, text).splitlines() for text in (shown, came))
        assert actual == expected, "\n" + "\n".join(
            difflib.unified_diff(expected, actual, "shown", "came", lineterm="")
        )
        for one, other in zip(_VOLATILE.finditer(shown), _VOLATILE.finditer(came), strict=True):
            if one.lastgroup in _SAME_THROUGHOUT:
                assert self._came_of.setdefault(one[0], other[0]) == other[0], f"{one[0]} is two things"
        assert len(set(self._came_of.values())) == len(self._came_of), "two things are one"


def _kind(match: re.Match[str]) -> str:
    return f"<{match.lastgroup}>"
