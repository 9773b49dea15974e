"""The vectors through the Python clients, and what they have to be about."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kvtransfer import v1 as pb
from kvtransfer.calls import SERVICE
from transport.blocking import EITHER, Connect

from vectors import running
from vectors.matching import mismatch, unheard
from vectors.running import FOLDER, Step, Vector

PATHS = sorted(FOLDER.glob("*.json"))
STEPS = [step for path in PATHS for step in running.load(path).steps]

UNPROVOKED = {
    "UNAUTHENTICATED": "the service asks for no credentials yet",
    "PERMISSION_DENIED": "the service asks for no credentials yet",
    "INTERNAL": "takes a fault of the service, or bytes that are no message",
}
"""Reasons that no sequence of calls brings about, and why."""


@pytest.mark.parametrize("connect", EITHER.values(), ids=EITHER)
@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_vector(path: Path, connect: Connect) -> None:
    running.run(running.load(path), connect)


def test_every_call_is_in_a_vector() -> None:
    assert {step.call for step in STEPS} - {""} == {method.name for method in SERVICE.methods}


def test_every_reason_of_a_refusal_is_in_a_vector_or_cannot_be_provoked() -> None:
    assert _expected("reason", "") & set(UNPROVOKED) == set()
    assert _names(pb.ErrorReason, "ERROR_REASON_") - set(UNPROVOKED) <= _expected("reason", "")


def test_every_reason_of_a_failed_room_is_in_a_vector() -> None:
    assert _expected("reason", "FAILURE_REASON_") == _names(pb.FailureReason, "FAILURE_REASON_")


def test_every_state_of_released_pages_is_in_a_vector() -> None:
    assert _expected("state", "STATE_") == _names(pb.Release.State, "STATE_")


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (Step(call="GetServerInfo", answer={"version": "none"}), r"\.version: expected 'none'"),
        (Step(call="GetServerInfo", error={"reason": "INTERNAL"}), "expected {'reason': 'INTERNAL'}, got"),
        (Step(call="Poll", request={"rooms": [0]}, answer={}), "unexpected InvalidField"),
        (Step(call="Poll", request={"rooms": [0]}, error={"reason": "DRAINING"}), "got 'INVALID_FIELD'"),
        (Step(call="Poll", request={"rooms": [0]}, error={"field": "room"}), "got 'rooms'"),
    ],
)
def test_a_vector_that_comes_out_otherwise_fails_and_says_where(step: Step, problem: str) -> None:
    right = Step(call="ListEngines", answer={"engines": []})
    with pytest.raises(AssertionError, match=rf"^Wrong\. Step 2 \({step.call}\): .*{problem}"):
        running.run(Vector("Wrong.", [right, step]))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({"a": None}, {"a": {}}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": []}, {"a": [1]}),
        ({"a": [{"b": 1}, {}]}, {"a": [{}, {"b": 1}]}),
        ({"a": 0}, {"a": False}),
        ({"a": 7}, {"a": "70"}),
        ({"a": {"$above": "9"}}, {"a": "9"}),
        ({"a": {"$contains": "x"}}, {"a": "y"}),
    ],
)
def test_what_does_not_match(expected: Any, actual: Any) -> None:
    assert mismatch(expected, actual) is not None


def test_what_matches() -> None:
    actual = {"a": "10", "b": [{"c": 1, "d": 2}], "e": "an x"}
    assert mismatch({"a": 10, "b": [{"c": 1}], "e": {"$contains": "x"}, "f": None}, actual) is None
    assert mismatch({"a": {"$above": 9}}, actual) is None


def test_what_a_stream_has_told() -> None:
    messages = [{"n": "1", "of": [{"a": 1}]}, {"n": "2", "of": [{"a": 2}, {"a": 3}]}]
    assert unheard({"n": 2, "of": [{"a": 1}, {"a": 3}]}, messages) is None
    assert unheard({"n": 3}, messages) is not None
    assert unheard({"of": [{"a": 4}]}, messages) is not None


def _names(enum: Any, prefix: str) -> set[str]:
    """The values of an enum but the first, which is never sent, without their prefix."""
    return {name.removeprefix(prefix) for name, number in enum.items() if number}


def _expected(field: str, prefix: str) -> set[str]:
    """All that vectors expect of a field, of the values with a prefix, without it."""
    found = {text for step in STEPS for side in (step.answer, step.error, step.receive) for text in _texts(side, field)}
    return {text.removeprefix(prefix) for text in found if text.startswith(prefix)}


def _texts(value: Any, field: str) -> Iterator[str]:
    if isinstance(value, list):
        for entry in value:
            yield from _texts(entry, field)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if name == field and isinstance(entry, str):
                yield entry
            else:
                yield from _texts(entry, field)
