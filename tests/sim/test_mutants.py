"""The simulator notices eight bugs, each by the invariant that it breaks."""

import pytest

from .config import Config
from .mutants import MUTANTS, Mutant
from .simulation import Failed, run

SEEDS = 60
"""Runs in which a bug must be noticed."""


def explore(faults: frozenset[str]) -> None:
    """Raises what the first run finds that finds anything."""
    for seed in range(SEEDS):
        run(Config(seed, tp=2, requests=24, faults=faults))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_is_noticed(mutant: Mutant) -> None:
    with mutant.applied(), pytest.raises(Failed) as noticed:
        explore(mutant.faults)
    violation = noticed.value.violation
    assert violation.invariant == mutant.invariant, violation
    assert mutant.noticed in str(violation)
