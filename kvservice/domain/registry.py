"""Engines, their workers, and the processes behind these."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kvservice.domain.errors import (
    EngineMismatch,
    EngineNotFound,
    InvalidField,
    LimitReached,
    StaleEpoch,
    WorkerNotFound,
)
from kvservice.domain.layout import check_layout
from kvservice.domain.outbox import Outbox
from kvservice.domain.policy import Policy
from kvservice.domain.types import (
    Failure,
    FailureReason,
    Layout,
    Peer,
    Poll,
    Rank,
    Registration,
    Role,
    Side,
    Topology,
    WorkerRef,
)

MAX_RANKS = 4096
MIN_LEASE_TTL = 1.0

_ENGINE_ID = re.compile(r"[a-z0-9-]{1,63}")
_INSTANCE_ID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


@dataclass(slots=True)
class Instance:
    """A process, live or gone, and the joins that it has not released."""

    peer: Peer
    birth_epoch: int
    joins: dict[int, int] = field(default_factory=dict)  # room -> join_id
    gone_at: float | None = None
    former: set[tuple[int, int]] = field(default_factory=set)  # joins told to a former life of the service
    missed: dict[tuple[int, int], tuple[Poll, Failure | None]] = field(default_factory=dict)
    """How rooms ended, by join, that were forgotten while the process was away."""

    def is_over(self, join: tuple[int, int]) -> bool:
        """Whether a join must open no room: what was told of it then is forgotten. An update says so."""
        return join in self.former or join in self.missed

    def ends(self) -> Iterator[tuple[tuple[int, int], tuple[Poll, Failure | None]]]:
        """How each of those ended."""
        # Survival of a restart is not there yet: a join that nobody knows has failed, and proves nothing.
        text = "the service does not know this join: it was restarted, or the worker was away for too long"
        for join in self.former:
            yield join, (Poll.FAILED, Failure(FailureReason.SERVICE_RESTARTED, text))
        yield from self.missed.items()


@dataclass(slots=True)
class Worker:
    """One rank's present registration."""

    ref: WorkerRef
    engine: "Engine"
    rank: Rank
    instance: Instance
    layout: Layout
    nixl_metadata: bytes
    lease_ttl: float
    lease_until: float
    endpoint: str
    labels: dict[str, str]
    user_agent: str
    draining: bool = False
    absent: list[int] = field(default_factory=list)  # rooms left out of its list: released once it speaks
    session: int = 0  # token of its open session, 0 if none
    outbox: Outbox | None = None

    @property
    def peer(self) -> Peer:
        return self.instance.peer


@dataclass(slots=True)
class Engine:
    """Workers that serve one copy of a model."""

    engine_id: str
    role: Role
    topology: Topology
    workers: dict[Rank, Worker] = field(default_factory=dict)
    generation: int = 0  # another one whenever a worker comes or goes, never that of a former engine of this name
    _sides: dict[int | None, Side] = field(default_factory=dict)

    def side(self, dp_rank: int | None) -> Side:
        """The engine as a side of rooms, which share it."""
        side = self._sides.get(dp_rank)
        if side is None:
            side = self._sides[dp_rank] = Side(self.engine_id, dp_rank)
        return side

    @property
    def ready(self) -> bool:
        return len(self.workers) == self.topology.workers

    @property
    def draining(self) -> bool:
        return any(worker.draining for worker in self.workers.values())

    @property
    def model(self) -> str:
        return next((worker.layout.model for worker in self.workers.values()), "")


class Registry:
    """Who is registered. Knows nothing of rooms."""

    def __init__(self, policy: Policy, first_epoch: int) -> None:
        self._policy = policy
        self._epoch = first_epoch
        self._generation = 0
        self.engines: dict[str, Engine] = {}
        self.workers: dict[str, Worker] = {}
        self.instances: dict[str, Instance] = {}

    def caller(self, ref: WorkerRef) -> Worker:
        """The worker that calls. Raises WorkerNotFound, StaleEpoch."""
        worker = self.workers.get(ref.worker_id)
        if worker is None or ref.epoch > worker.ref.epoch:
            raise WorkerNotFound(
                f"worker {ref.worker_id!r} is not registered under epoch {ref.epoch}", worker=ref.worker_id
            )
        if ref.epoch < worker.ref.epoch:
            raise StaleEpoch(
                f"worker {ref.worker_id} registered again: epoch {worker.ref.epoch}, got {ref.epoch}",
                worker=ref.worker_id,
                epoch=worker.ref.epoch,
            )
        return worker

    def engine(self, engine_id: str, field_name: str = "engine_id") -> Engine:
        """Raises EngineNotFound, InvalidField."""
        engine = self.engines.get(engine_id)
        if engine is None:
            if not _ENGINE_ID.fullmatch(engine_id):
                raise InvalidField(field_name, "must be 1 to 63 of a-z, 0-9 and '-'", engine_id)
            raise EngineNotFound(f"engine {engine_id!r} is not registered", engine=engine_id)
        return engine

    def register(self, said: Registration, now: float, leave: Callable[[Worker], None]) -> Worker:
        """Grants a worker a new epoch. `leave` is called first with the worker that it takes the rank from, if any.

        Raises InvalidField, EngineMismatch, StaleEpoch (a process born later has the rank), LimitReached.
        """
        self._check(said)
        worker_id = worker_id_of(said)
        instance = self.instances.get(said.instance_id)
        if instance is not None and instance.peer.worker_id != worker_id:
            raise InvalidField("instance_id", f"belongs to worker {instance.peer.worker_id}", said.instance_id)
        present = self.workers.get(worker_id)
        if present is not None and present.peer.instance_id == said.instance_id and present.layout != said.layout:
            raise InvalidField("layout", "must stay what this process registered; other memory takes a new process")
        engine = self._engine_for(said, present)
        birth = instance.birth_epoch if instance is not None else said.birth_epoch
        if present is not None and present.peer.instance_id != said.instance_id:
            if birth and birth < present.instance.birth_epoch:
                raise StaleEpoch(f"a process born later has worker {worker_id}", worker=worker_id)
            leave(present)
        if present is None and len(self.workers) >= self._policy.max_workers:
            raise LimitReached(f"{self._policy.max_workers} workers are registered", limit="max_workers")
        if said.engine_id not in self.engines and len(self.engines) >= self._policy.max_engines:
            raise LimitReached(f"{self._policy.max_engines} engines are registered", limit="max_engines")
        self._epoch += 1
        if instance is None:
            peer = Peer(worker_id, said.instance_id)
            instance = Instance(peer, birth or self._epoch)
            if birth:
                instance.former = {(state.room, state.join_id) for state in said.rooms}
            self.instances[said.instance_id] = instance
        instance.gone_at = None
        ttl = min(max(said.lease_ttl or self._policy.lease_ttl, MIN_LEASE_TTL), self._policy.max_lease_ttl)
        worker = Worker(
            WorkerRef(worker_id, self._epoch),
            engine,
            said.rank,
            instance,
            said.layout,
            said.nixl_metadata,
            ttl,
            now + ttl,
            said.endpoint,
            dict(said.labels),
            said.user_agent,
        )
        self.engines[said.engine_id] = engine
        self.workers[worker_id] = worker
        engine.workers[said.rank] = worker
        self._changed(engine)
        return worker

    def remove(self, worker: Worker, now: float) -> None:
        """Removes a worker, and its engine with the last of them. The process stays known, as gone."""
        del self.workers[worker.ref.worker_id]
        engine = worker.engine
        del engine.workers[worker.rank]
        self._changed(engine)
        if not engine.workers:
            del self.engines[engine.engine_id]
        worker.instance.gone_at = now

    def _changed(self, engine: Engine) -> None:
        self._generation += 1
        engine.generation = self._generation

    def _engine_for(self, said: Registration, present: Worker | None) -> Engine:
        engine = self.engines.get(said.engine_id)
        others = [] if engine is None else [worker for worker in engine.workers.values() if worker is not present]
        if engine is None or not others:
            if engine is not None and (engine.role, engine.topology) == (said.role, said.topology):
                return engine
            return Engine(said.engine_id, said.role, said.topology)
        for name, ours, theirs in (
            ("role", engine.role.name, said.role.name),
            ("topology", engine.topology, said.topology),
            ("layout", _schema(others[0].layout), _schema(said.layout)),
        ):
            if ours != theirs:
                raise EngineMismatch(
                    f"{name} of engine {said.engine_id} is {ours}, got {theirs}", engine=said.engine_id, field=name
                )
        return engine

    def _check(self, said: Registration) -> None:
        if not _ENGINE_ID.fullmatch(said.engine_id):
            raise InvalidField("engine_id", "must be 1 to 63 of a-z, 0-9 and '-'", said.engine_id)
        if not _INSTANCE_ID.fullmatch(said.instance_id):
            raise InvalidField("instance_id", "must be a lower-case UUID", said.instance_id)
        for name in ("tp", "pp", "dp"):
            size, rank = getattr(said.topology, f"{name}_size"), getattr(said.rank, f"{name}_rank")
            if not 1 <= size <= MAX_RANKS:
                raise InvalidField(f"topology.{name}_size", f"must be in [1, {MAX_RANKS}]", size)
            if not 0 <= rank < size:
                raise InvalidField(f"rank.{name}_rank", f"must be in [0, {size})", rank)
        if said.topology.workers > MAX_RANKS:
            raise InvalidField("topology", f"must have at most {MAX_RANKS} ranks in all", said.topology.workers)
        if len(said.nixl_metadata) > self._policy.max_metadata_bytes:
            raise InvalidField(
                "nixl_metadata", f"must have at most {self._policy.max_metadata_bytes} bytes", len(said.nixl_metadata)
            )
        if said.birth_epoch < 0:
            raise InvalidField("birth_epoch", "must not be negative", said.birth_epoch)
        for name, text, limit in (("endpoint", said.endpoint, 256), ("user_agent", said.user_agent, 256)):
            if len(text) > limit:
                raise InvalidField(name, f"must have at most {limit} characters", len(text))
        if len(said.labels) > 16 or any(len(key) > 63 or len(value) > 256 for key, value in said.labels.items()):
            raise InvalidField("labels", "must be at most 16, of 63 characters a key and 256 a value", len(said.labels))
        check_layout(said.layout)


def worker_id_of(said: Registration) -> str:
    """The name of a rank of an engine."""
    return f"{said.engine_id}/dp{said.rank.dp_rank}/pp{said.rank.pp_rank}/tp{said.rank.tp_rank}"


def _schema(layout: Layout) -> object:
    """What the layouts of one engine's ranks have in common."""
    return layout.model, sorted(
        (
            group.name,
            group.kind.name,
            group.page_tokens,
            sorted((part.name, part.dtype, part.order.name) for part in group.parts),
        )
        for group in layout.groups
    )
