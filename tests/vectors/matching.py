"""Whether what came is what a vector expects, both as JSON. The rules are in README.md."""

from collections.abc import Mapping
from typing import Any

Variables = Mapping[str, Any]


def filled(value: Any, variables: Variables) -> Any:
    """The value with each `$name` in it replaced by what was saved. Raises KeyError for a name that nothing saved."""
    if isinstance(value, dict):
        return {key: filled(entry, variables) for key, entry in value.items()}
    if isinstance(value, list):
        return [filled(entry, variables) for entry in value]
    if isinstance(value, str) and value.startswith("$"):
        return variables[value.removeprefix("$")]
    return value


def picked(value: Any, path: str) -> Any:
    """What a path such as `offers.0.receivers` leads to."""
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def mismatch(expected: Any, actual: Any, at: str = "") -> str | None:
    """Where and how `actual` is not as expected; None if it is."""
    if isinstance(expected, dict):
        return _of_object(expected, actual, at)
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return f"{at}: expected {len(expected)} entries, got {actual!r}"
        return _first(
            mismatch(one, other, f"{at}[{i}]") for i, (one, other) in enumerate(zip(expected, actual, strict=True))
        )
    same = expected == actual and isinstance(expected, bool) == isinstance(actual, bool)
    if same or (_is_number(expected) and str(expected) == actual):
        return None
    return f"{at}: expected {expected!r}, got {actual!r}"


def unheard(expected: Mapping[str, Any], messages: list[Any]) -> str | None:
    """What of `expected` no message of a stream has said yet; None if all was heard."""
    for name, value in expected.items():
        wanted = value if isinstance(value, list) else [value]
        said = [message[name] for message in messages if name in message]
        heard = [entry for entries in said for entry in entries] if isinstance(value, list) else said
        for one in wanted:
            if all(mismatch(one, other) is not None for other in heard):
                return f".{name}: {one!r} is not among {heard!r}"
    return None


def _of_object(expected: dict[str, Any], actual: Any, at: str) -> str | None:
    if "$above" in expected:
        if isinstance(actual, str) and actual.isdecimal() and int(actual) > int(expected["$above"]):
            return None
        return f"{at}: expected more than {expected['$above']}, got {actual!r}"
    if "$contains" in expected:
        found = isinstance(actual, str) and expected["$contains"] in actual
        return None if found else f"{at}: expected something with {expected['$contains']!r}, got {actual!r}"
    if not isinstance(actual, dict):
        return f"{at}: expected an object, got {actual!r}"
    return _first(mismatch(value, actual.get(key), f"{at}.{key}") for key, value in expected.items())


def _first(found: Any) -> str | None:
    return next((problem for problem in found if problem is not None), None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
