"""What the chart draws."""

import xml.etree.ElementTree as ET
from functools import partial

import pytest

from benchmarks.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, stacked

SVG = "{http://www.w3.org/2000/svg}"
near = partial(pytest.approx, abs=0.1)


def areas(svg: str) -> dict[str, list[tuple[float, float]]]:
    """Corners of each, by name."""
    found = {}
    for path in ET.fromstring(svg).iter(f"{SVG}path"):
        if (title := path.find(f"{SVG}title")) is not None and title.text:
            corners = path.attrib["d"].strip("MZ").split(" L")
            found[title.text] = [(float(x), float(y)) for x, y in (corner.split() for corner in corners)]
    return found


def test_areas_stand_on_each_other_and_fill_the_frame() -> None:
    svg = stacked("rooms", "seconds", [0.0, 1.0, 2.0], {"low": [1, 2, 1], "high": [0, 2, 3]})
    found = areas(svg)
    bottom, height = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
    assert found["low"][0] == (LEFT, near(bottom - height / 4))
    assert min(y for _, y in found["low"]) == near(bottom - height / 2)
    assert min(y for _, y in found["high"]) == TOP
    assert max(x for corners in found.values() for x, _ in corners) == WIDTH - RIGHT


def test_a_number_holds_until_the_next_time() -> None:
    corners = areas(stacked("rooms", "seconds", [0.0, 1.0, 2.0], {"rooms": [1, 4, 4]}))["rooms"]
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    assert [y for x, y in corners if x == middle] == [near(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) / 4), TOP]


def test_names_are_text_whatever_is_in_them() -> None:
    assert "a < b & c" in areas(stacked("x", "y", [0.0, 1.0], {"a < b & c": [1, 1]}))


def test_nothing_at_all_is_still_a_chart() -> None:
    assert areas(stacked("none", "seconds", [0.0, 1.0], {"rooms": [0, 0]})).keys() == {"rooms"}
