"""Invariants 1 to 6 and 8 of the protocol hold whatever happens, and whatever may happen does."""

import os
from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .config import FAULTS, Config
from .simulation import Simulation, run, simulated_time

STEPS = int(os.environ.get("KVTRANSFER_SIM_STEPS", 0))
"""Steps to make, about. 0 makes the default run, the same each time; what is asked for is another run each time."""
SEEDS = 70
STEPS_PER_RUN = 3000

MUST_HAPPEN = (
    "SUCCESS",
    "SUCCESS though asked to end",
    "FAILED ABORTED",
    "FAILED COMPLETION_MISMATCH",
    "FAILED HANDSHAKE_TIMEOUT",
    "FAILED INPUT_TIMEOUT",
    "FAILED LAYOUT_MISMATCH",
    "FAILED LEASE_EXPIRED",
    "FAILED NO_PROGRESS",
    "FAILED SESSION_LOST",
    "FAILED WORKER_REPLACED",
    "FAILED WORKER_REPORTED",
    "answer lost",
    "call lost",
    "call of a superseded epoch",
    "exit attested",
    "failed write",
    "kill",
    "lapse",
    "late copy",
    "late landing",
    "leaving",
    "mover died",
    "notification late",
    "notification lost",
    "post CANCELLED",
    "post FAILED",
    "post REFUSED",
    "refused ENGINE_NOT_FOUND",
    "refused ROOM_REUSED",
    "refused SESSION_REPLACED",
    "refused STALE_EPOCH",
    "refused WORKER_NOT_FOUND",
    "registered again",
    "release FREE",
    "release QUARANTINED",
    "release WAITING",
    "replaced for good",
    "replaced while stopped",
    "stopped past its lease",
)

configs = st.builds(
    Config,
    seed=st.integers(0, 2**32 - 1),
    tp=st.integers(1, 3),
    dp=st.integers(1, 2),
    decode_engines=st.integers(1, 2),
    requests=st.integers(1, 16),
    faults=st.frozensets(st.sampled_from(FAULTS)),
)


def test_the_invariants_hold_in_runs_in_which_everything_happens() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        run(Config.of_seed(seed), seen)
    assert [event for event in MUST_HAPPEN if not seen[event]] == []


@settings(
    max_examples=STEPS // STEPS_PER_RUN or 100,
    derandomize=STEPS == 0,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(config=configs)
def test_the_invariants_hold_in_runs_of_every_shape(config: Config) -> None:
    run(config)


def test_a_seed_is_a_whole_story() -> None:
    stories = []
    for _ in range(2):
        simulation = Simulation(Config.of_seed(3))
        with simulated_time(simulation):
            simulation.run()
        stories.append(simulation.world.trace())
    assert stories[0] == stories[1]
