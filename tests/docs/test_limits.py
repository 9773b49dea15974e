"""docs/limits.md is what the code does: its settings and its constants."""

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from kvtransfer.policy import Policy

from docs.limits import ROOT, names, number, rows
from kvservice.config import LOG_LEVELS, Config

PACKAGES = {"kvservice": ROOT / "kvservice", "kvtransfer": ROOT / "clients" / "python" / "kvtransfer"}
GO = ROOT / "clients" / "go" / "kvtransfer"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}
GO_UNITS = {"time.Hour": "3600", "time.Minute": "60", "time.Second": "1", "time.Millisecond": "0.001"}


# --- settings ---


@pytest.mark.parametrize("item", dataclasses.fields(Config), ids=lambda item: item.name)
def test_a_setting_has_its_default_unit_and_range(item: "dataclasses.Field[Any]") -> None:
    flag = "--" + item.name.replace("_", "-")
    [row] = [row for row in rows("Settings of the service") if row[0] == f"`{flag}`"]
    default = f"{item.default:g}" if isinstance(item.default, float) else str(item.default)
    bounds = f"{item.metadata['least']:g} to {item.metadata['most']:.15g}"
    if isinstance(item.default, str):
        bounds = ", ".join(LOG_LEVELS) if item.name == "log_level" else ""
    assert row[1:4] == [default, item.metadata["unit"], bounds]
    assert row[4], f"what is seen when {flag} is met?"


def test_no_setting_is_made_up() -> None:
    documented = [name for row in rows("Settings of the service") for name in names(row[0])]
    assert documented == ["--" + item.name.replace("_", "-") for item in dataclasses.fields(Config)]


# --- constants ---


def constants() -> Iterator[tuple[str, str, str]]:
    """(name, value, unit) of each constant of Python that the page names."""
    for section in ("Bounds of the service that are no settings", "The Python clients", "A worker"):
        for cells in rows(section):
            if len(cells) > 3:
                yield from ((name, cells[1], cells[2]) for name in names(cells[3]))


def value_of(name: str) -> Any:
    """What `package.module.NAME`, `...Class.field` or `...NAME[key]` is."""
    path, _, key = name.removesuffix("]").partition("[")
    parts = path.split(".")
    at = next(at for at in range(len(parts), 0, -1) if at == 1 or _is_module(parts[:at]))
    found: Any = importlib.import_module(".".join(parts[:at]))
    for part in parts[at:]:
        found = getattr(found() if isinstance(found, type) else found, part)
    return dict(found)[key] if key else found


def _is_module(parts: list[str]) -> bool:
    path = PACKAGES[parts[0]].joinpath(*parts[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def as_numbers(value: Any, name: str) -> list[float]:
    """Seconds where a name or a text says milliseconds or seconds."""
    if isinstance(value, tuple):
        return [float(one) for one in value]
    if isinstance(value, str):
        value = value.removesuffix("s")
    return [float(value) / (1000 if "_ms]" in name else 1)]


@pytest.mark.parametrize(("name", "value", "unit"), list(constants()), ids=lambda cell: str(cell))
def test_a_constant_is_as_the_page_says(name: str, value: str, unit: str) -> None:
    said = [number(one) * UNITS.get(unit, 1) for one in value.split(", ")]
    assert said == as_numbers(value_of(name), name), f"{name} is another than docs/limits.md says"


def numeric_constants() -> Iterator[str]:
    """Every number, or tuple of numbers, that a module names in capitals."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            relative = path.relative_to(folder).with_suffix("")
            if relative.parts[0] == "v1":
                continue
            module = ".".join((package, *relative.parts)).removesuffix(".__init__")
            for node in ast.parse(path.read_text()).body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z][A-Z0-9_]*", target.id):
                    value = value_of(f"{module}.{target.id}")
                    numbers = value if isinstance(value, tuple) and value else (value,)
                    if all(isinstance(one, int | float) for one in numbers):
                        yield f"{module}.{target.id}"


def test_every_constant_is_on_the_page() -> None:
    policy = {f"kvtransfer.policy.Policy.{item.name}" for item in dataclasses.fields(Policy)}
    missing = (set(numeric_constants()) | policy) - {name for name, _, _ in constants()}
    assert not missing, f"docs/limits.md has no row for {sorted(missing)}"


# --- Go ---


def go_constants() -> dict[str, float]:
    """Each number that the package names."""
    found: dict[str, float] = {}
    for path in sorted(GO.glob("*.go")):
        if path.name.endswith("_test.go"):
            continue
        text = path.read_text()
        singles = re.findall(r"^const (.*)$", text, re.MULTILINE)
        blocks = re.findall(r"^const \(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
        for line in [*singles, *(line for block in blocks for line in block.splitlines())]:
            declared = re.match(r"\s*(\w+)(?: [\w.]+)?\s*= ([^/]+)", line)
            if declared is None:
                continue
            said = declared[2].strip()
            for unit, factor in GO_UNITS.items():
                said = said.replace(unit, factor)
            if re.fullmatch(r"[\d_.\s*<+-]+", said):
                found[declared[1]] = float(eval(said))  # of digits and operators alone
    return found


def test_the_constants_of_go_are_as_the_page_says() -> None:
    said = {
        name: number(cells[1]) * UNITS.get(cells[2], 1) for cells in rows("The Go client") for name in names(cells[3])
    }
    assert said == go_constants()
