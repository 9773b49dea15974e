"""Reads docs/limits.md."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text()


def rows(section: str) -> Iterator[list[str]]:
    """Cells of the rows of all tables under a heading."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    for table in re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE):
        for line in table.splitlines():
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def number(cell: str) -> float:
    power = re.fullmatch(r"2\^(\d+) - 1", cell)
    return float(2 ** int(power[1]) - 1) if power else float(cell)


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
