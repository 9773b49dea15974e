"""Figures of a benchmark, as a table for people and as JSON."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the quartiles around it."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Raises StatisticsError for fewer than two values."""
        known = list(values)
        low, median, high = statistics.quantiles(known, n=4, method="inclusive")
        return cls(median, low, high, len(known))

    def text(self, digits: int) -> str:
        """`median (low-high)`."""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def percentile(values: Iterable[float], percent: int) -> float:
    """The value below which `percent` of `values` lie, in 1..99. Takes at least two of them."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    key: str
    """Of the figure in a row, and in the JSON."""
    title: str
    digits: int = 2


@dataclass(slots=True)
class Report:
    """What a benchmark found."""

    benchmark: str
    machine: dict[str, str | int | float]
    columns: Sequence[Column]
    notes: Sequence[str]
    """What the columns mean; one sentence each."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Figures by column: text, numbers or Spread."""
    missed: int = 0
    """Figures that are not what is wanted."""

    def to_json(self) -> str:
        """All figures unrounded."""
        rows = [
            {key: asdict(value) if isinstance(value, Spread) else value for key, value in row.items()}
            for row in self.rows
        ]
        return json.dumps(
            {"benchmark": self.benchmark, "machine": self.machine, "notes": list(self.notes), "rows": rows}
        )

    def to_text(self) -> str:
        """The machine, the table, and what its columns mean."""
        cells = [[column.title for column in self.columns]]
        cells += [[_cell(row[column.key], column.digits) for column in self.columns] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        cells.insert(1, ["-" * width for width in widths])
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        machine = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        return "\n".join([machine, "", *lines, "", *self.notes])


def _cell(value: object, digits: int) -> str:
    if isinstance(value, Spread):
        return value.text(digits)
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
