"""A chart of numbers over time, as SVG."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 900, 360
LEFT, RIGHT, TOP, BOTTOM = 50, 190, 40, 45
COLORS = ("#9aa5b1", "#f0b429", "#d64545", "#3f8f5f", "#4a78c2", "#8a5bb5")
TICKS = 6


def stacked(title: str, x_title: str, times: Sequence[float], series: Mapping[str, Sequence[int]]) -> str:
    """Areas on top of each other, the first at the bottom; each has a number for each of `times`, which ascend from 0.

    A number holds until the next time.
    """
    totals = [sum(column) for column in zip(*series.values(), strict=True)]
    most, last = max(totals, default=0) or 1, times[-1] or 1.0

    def x(time: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * time / last:.1f}"

    def y(value: float) -> str:
        return f"{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"',
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
    ]
    for value in _ticks(most):
        parts.append(f'<path d="M{LEFT} {y(value)}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value)}" text-anchor="end" dy="4">{value:g}</text>')
    for value in _ticks(last):
        parts.append(f'<text x="{x(value)}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{x(last / 2)}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_title)}</text>')
    below = [0] * len(times)
    for number, (name, values) in enumerate(series.items()):
        above = [low + value for low, value in zip(below, values, strict=True)]
        outline = _steps(times, above) + _steps(times, below)[::-1]
        path = " L".join(f"{x(time)} {y(value)}" for time, value in outline)
        color = COLORS[number % len(COLORS)]
        parts.append(f'<path d="M{path}Z" fill="{color}"><title>{escape(name)}</title></path>')
        at = TOP + 20 * (len(series) - 1 - number)
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{at}" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 32}" y="{at + 10}">{escape(name)}</text>')
        below = above
    return "\n".join([*parts, "</svg>", ""])


def _steps(times: Sequence[float], values: Sequence[int]) -> list[tuple[float, int]]:
    """Corners of a line that holds each value until the next time."""
    corners = [(times[0], values[0])]
    for time, before, value in zip(times[1:], values, values[1:], strict=False):
        if value != before:
            corners += [(time, before), (time, value)]
    return [*corners, (times[-1], values[-1])]


def _ticks(most: float) -> list[float]:
    """A few round numbers from 0 to `most`."""
    for step in (factor * 10**power for power in range(-3, 9) for factor in (1, 2, 5)):
        if most / step <= TICKS:
            return [step * count for count in range(int(most / step) + 1)]
    return [0, most]
