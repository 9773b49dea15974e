"""One run: chaos for a while, then calm, in which everything must come to its end."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

import kvtransfer.core

from kvservice.domain.control_plane import ControlPlane

from .cluster import Cluster
from .config import SERVICE, Config
from .faults import Faults
from .follower import Follower
from .process import Held, Process
from .service_checks import ServiceChecks
from .tables import all_over, nothing_left
from .traffic import DURATION, Traffic
from .worker_checks import WorkerChecks
from .world import Violation, World

CHAOS = DURATION + 3.0
"""Seconds until all is calm."""
ALL_END = SERVICE.timeouts.total + SERVICE.vote + SERVICE.lease_ttl + 5.0
"""Seconds in which each room must end by itself once all is calm."""
ALL_BACK = 20.0
"""Seconds in which all pages must come back once all rooms have ended."""


LOOK = 0.5
"""Seconds between two looks at what need not be looked at after each step."""


class Simulation:
    """Builds and runs what a config describes."""

    def __init__(self, config: Config) -> None:
        self.world = World(config.seed)
        self._config = config
        self._checks = ServiceChecks(self.world, self._control, self._room_ended)
        self.cluster = Cluster(self.world, config, self._checks.observe)
        self._follower = Follower(self.cluster.service())
        self._traffic = Traffic(self.world, config, self.cluster)
        self._faults = Faults(self.world, config, self.cluster, self._traffic)
        self._worker_checks = WorkerChecks(
            self.world, self.cluster.fabric, self._control, lambda room: len(self._traffic.attempts_of[room]) == 1
        )

    def run(self) -> None:
        """Raises Violation."""
        self._run_for(CHAOS)
        self.world.calm = True
        self.world.note("all is calm")
        for seat in self.cluster.exited:
            self._faults.fill(seat)
        if not self._run_until(self._all_ended, ALL_END):
            raise Violation(8, f"does not end: {self._open()}")
        if not self._run_until(self._all_back, ALL_BACK):
            self._attest()
            if not self._run_until(self._all_back, ALL_BACK):
                raise Violation(8, f"pages do not come back: {self._open()}")
        self._attest()
        self._empty(nothing_left)
        self._faults.leave_all()
        self._empty(all_over)

    # --- going on ---

    def _step(self) -> None:
        self.world.step()
        for process in self.cluster.living:
            if process.touched:
                process.touched = False
                self._worker_checks.look(process, self._ended)
                process.session.look()
        self.cluster.service().look()

    def _run_for(self, seconds: float) -> None:
        self._run_until(lambda: False, seconds)

    def _run_until(self, reached: Callable[[], bool], seconds: float) -> bool:
        until = self.world.now + seconds
        look_at = 0.0
        while self.world.next_at() <= until:
            if self.world.now >= look_at:
                look_at = self.world.now + LOOK
                self._faults.look_after()
                self._traffic.poll()
                self._follower.look()
                if reached():
                    return True
            self._step()
        self.world.now = until
        return reached()

    # --- where it stands ---

    def _control(self) -> ControlPlane:
        return self.cluster.service().control

    def _room_ended(self, room: int) -> None:
        self._worker_checks.room_ended(room)

    def _ended(self, process: Process, held: Held) -> None:
        self._faults.strike_after_success(process, held)
        self._traffic.ended(process, held)

    def _all_ended(self) -> bool:
        return all(held.polls[2].final for process in self.cluster.living for held in process.held)

    def _all_back(self) -> bool:
        return not any(process.held for process in self.cluster.living)

    def _open(self) -> str:
        return "; ".join(
            f"{process.name}: room {held.room.room} {[poll.name for poll in held.polls]}, "
            f"{'closed' if held.ending else 'open'}"
            for process in self.cluster.living
            for held in process.held
        )

    def _empty(self, left: Callable[[Cluster], str]) -> None:
        """Retention passes, twice where one thing waits for another."""
        if not self._run_until(lambda: not left(self.cluster), 3 * SERVICE.retention + SERVICE.lease_ttl):
            raise Violation(5, left(self.cluster))

    def _attest(self) -> None:
        """What ended without proof is proven by a restart: the launcher attests each exit that it saw."""
        for process in list(self.cluster.living):
            if self.cluster.running.get(process.seat) is process and self.cluster.unproven(process):
                self.world.seen["exit attested"] += 1
                self.cluster.restart(process)


class Failed(AssertionError):
    """A run that broke an invariant, with what it takes to see it again."""

    def __init__(self, config: Config, violation: Violation, trace: str) -> None:
        super().__init__(f"{violation}\nreplay: python -m tests.sim {config.arguments()}\n{trace}")
        self.violation = violation


@contextmanager
def simulated_time(simulation: Simulation) -> Iterator[None]:
    """The workers' clock is the world's."""
    world = simulation.world
    clock = SimpleNamespace(CLOCK_BOOTTIME=0, clock_gettime=lambda which: world.now)
    with (
        mock.patch.object(kvtransfer.core, "time", clock),
        mock.patch.object(logging.getLogger("kvtransfer"), "disabled", True),
    ):
        yield


def run(config: Config, seen: Counter[str] | None = None, lines: int = 60) -> Simulation:
    """Runs one config; raises Failed with the last `lines` of its trace."""
    simulation = Simulation(config)
    world = simulation.world
    try:
        with simulated_time(simulation):
            simulation.run()
    except Violation as violation:
        raise _failed(config, violation, world, lines) from None
    except Exception as error:
        violation = Violation(0, f"{type(error).__name__}: {error}")
        raise _failed(config, violation, world, lines) from error
    finally:
        simulation.cluster.service().close()
    if seen is not None:
        seen.update(world.seen)
        seen["steps"] += world.steps
    return simulation


def _failed(config: Config, violation: Violation, world: World, lines: int) -> Failed:
    return Failed(config, violation, "\n".join(world.trace().splitlines()[-lines:]))
