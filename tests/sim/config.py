"""What one run is made of: a seed, the shape of the engines, and the faults that strike."""

from dataclasses import dataclass
from random import Random

from kvtransfer.policy import Policy as WorkerPolicy

from kvservice.domain.policy import Policy as ServicePolicy
from kvservice.domain.types import Timeouts

FAULTS = (
    "aborts",  # routers and engines give up, at any time
    "breaks",  # streams break or stall
    "copies",  # calls arrive twice, the second time late
    "deaths",  # processes are killed
    "leaving",  # engines deregister in the middle
    "losses",  # unary calls and their answers are lost
    "misfits",  # rooms between engines that do not fit, wrong roles, wrong replicas
    "neglect",  # ranks that never join, offer, send, or close early
    "nixl",  # writes fail, notifications are lost or late
    "pauses",  # processes are stopped and go on
    "reuse",  # room ids are used again
)


@dataclass(frozen=True)
class Config:
    """Small numbers are simple runs: Hypothesis shrinks towards them."""

    seed: int
    tp: int = 1
    dp: int = 1
    decode_engines: int = 1
    requests: int = 8
    faults: frozenset[str] = frozenset()

    @staticmethod
    def of_seed(seed: int) -> "Config":
        """The run that a bare seed stands for."""
        chance = Random(seed)
        faults = frozenset(fault for fault in FAULTS if chance.random() < 0.5)
        return Config(seed, chance.randint(1, 3), chance.randint(1, 2), chance.randint(1, 2), 12, faults)

    def arguments(self) -> str:
        """Of `python -m tests.sim`, to run it again."""
        return (
            f"{self.seed} --tp {self.tp} --dp {self.dp} --decode-engines {self.decode_engines} "
            f"--requests {self.requests} --faults {','.join(sorted(self.faults)) or 'none'}"
        )


# Seconds, scaled down so that a run of a minute sees each of them pass. No call is late by more than LATEST, which is
# less than `retention`: tombstones outlive the longest retry.
LATEST = 3.0
SERVICE = ServicePolicy(
    timeouts=Timeouts(bootstrapping=8, waiting_for_input=9, no_progress=5, total=25),
    vote=1.5,
    reconnect_grace=1,
    lease_ttl=3,
    max_lease_ttl=6,
    retention=8,
)
WORKER = WorkerPolicy(fence_margin=0.5, settle=0.6)
LINGER_AFTER_EXIT = 0.5
"""How long bytes of a killed process may still land: less than the settle time."""
LINGER = 3.0
"""How long bytes of a failed write may still land while its process lives. Nothing relies on it."""
