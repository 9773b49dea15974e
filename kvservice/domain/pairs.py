"""Links between the replicas of two engines, computed once per pair."""

from collections.abc import Iterator

from kvservice.domain.errors import EngineNotFound, InvalidField, LayoutMismatch
from kvservice.domain.links import End, Link, Wiring, links_between, wiring_of
from kvservice.domain.registry import Engine, Registry, Worker
from kvservice.domain.types import Role

# Engine and replica of either side.
PairKey = tuple[str, int, str, int]

# The links of a pair, and the same as rooms look them up.
Found = tuple[tuple[Link, ...], Wiring]


class Pairs:
    """The cache of links. An entry counts while neither engine's workers have changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._cache: dict[PairKey, tuple[tuple[int, int], Found | LayoutMismatch]] = {}

    def links(self, engine: Engine, dp_rank: int, peer: Engine, peer_dp_rank: int) -> tuple[Link, ...]:
        """Links between two replicas, whichever side each is.

        Raises LayoutMismatch, and EngineNotFound if a rank has no live worker.
        """
        return self._find(engine, dp_rank, peer, peer_dp_rank)[0]

    def wiring(self, engine: Engine, dp_rank: int, peer: Engine, peer_dp_rank: int) -> Wiring:
        """The same links as rooms look them up. Raises as `links`."""
        return self._find(engine, dp_rank, peer, peer_dp_rank)[1]

    def _find(self, engine: Engine, dp_rank: int, peer: Engine, peer_dp_rank: int) -> Found:
        if engine.role is peer.role:
            raise LayoutMismatch(
                f"role: engines {engine.engine_id} and {peer.engine_id} are both {engine.role.name}",
                field="role",
                **{engine.engine_id: engine.role.name, peer.engine_id: peer.role.name},
            )
        prefill, decode = (engine, dp_rank), (peer, peer_dp_rank)
        if engine.role is Role.DECODE:
            prefill, decode = decode, prefill
        key = (prefill[0].engine_id, prefill[1], decode[0].engine_id, decode[1])
        generation = (prefill[0].generation, decode[0].generation)
        cached = self._cache.get(key)
        if cached is None or cached[0] != generation:
            ends = _end(*prefill), _end(*decode)
            found: Found | LayoutMismatch
            try:
                links = links_between(*ends)
                found = links, wiring_of(links)
            except LayoutMismatch as mismatch:
                found = mismatch
            cached = self._cache[key] = generation, found
        if isinstance(cached[1], LayoutMismatch):
            raise LayoutMismatch(cached[1].message, **cached[1].metadata)
        return cached[1]

    def peers_of(self, worker: Worker) -> Iterator[Worker]:
        """Workers of ready engines that a worker of a ready engine has links with."""
        if not worker.engine.ready:
            return
        for engine in list(self._registry.engines.values()):
            if engine.role is worker.engine.role or not engine.ready:
                continue
            for dp_rank in range(engine.topology.dp_size):
                try:
                    links = self.links(worker.engine, worker.rank.dp_rank, engine, dp_rank)
                except LayoutMismatch:
                    break
                for link in links:
                    if worker.ref.worker_id in (link.sender, link.receiver):
                        other = link.receiver if link.sender == worker.ref.worker_id else link.sender
                        yield self._registry.workers[other]

    def misfits_of(self, worker: Worker) -> Iterator[tuple[Worker, str]]:
        """One worker of each ready engine of the other role that does not fit, and why."""
        if not worker.engine.ready:
            return
        for engine in list(self._registry.engines.values()):
            if engine.role is not worker.engine.role and engine.ready:
                try:
                    self.links(worker.engine, worker.rank.dp_rank, engine, 0)
                except LayoutMismatch as mismatch:
                    yield engine.workers[min(engine.workers)], mismatch.message

    def forget(self, engine_id: str) -> None:
        """An engine is gone."""
        for key in [key for key in self._cache if engine_id in (key[0], key[2])]:
            del self._cache[key]


def check_replica(engine: Engine, dp_rank: int, field: str) -> None:
    """Raises InvalidField for a replica that the engine does not have."""
    if not 0 <= dp_rank < engine.topology.dp_size:
        raise InvalidField(field, f"must be in [0, {engine.topology.dp_size}) for engine {engine.engine_id}", dp_rank)


def _end(engine: Engine, dp_rank: int) -> End:
    workers = {
        rank: (worker.ref.worker_id, worker.layout)
        for rank, worker in engine.workers.items()
        if rank.dp_rank == dp_rank
    }
    missing = engine.topology.tp_size * engine.topology.pp_size - len(workers)
    if missing:
        raise EngineNotFound(
            f"engine {engine.engine_id} is incomplete: {missing} ranks of replica {dp_rank} have no live worker",
            engine=engine.engine_id,
        )
    return End(engine.topology, workers)
