"""Invariant 5: when all have released and retention has passed, every table is empty, whatever it is called."""

from collections.abc import Sized

from kvservice.domain.control_plane import ControlPlane

from .cluster import Cluster
from .process import Process
from .world import Violation

STAYS_WITH_PEERS = ("roster", "counters")
"""Of a worker: what its peers and its past fill, not its rooms."""


def check_nothing_left(cluster: Cluster) -> None:
    """Workers are registered and met; nothing is left of rooms."""
    control = cluster.service().control
    left = {name: size for name, size in _rooms_of_service(control).items() if size}
    sizes = control.sizes()
    if left or (sizes.rooms, sizes.open_rooms, sizes.pending_pages) != (0, 0, 0):
        raise Violation(5, f"the service still holds {left}, {sizes}")
    if sizes.workers != len(cluster.running) or sizes.timers != sizes.workers:
        raise Violation(5, f"{len(cluster.running)} workers live, the service holds {sizes}")
    for process in cluster.living():
        left = {name: size for name, size in _rooms_of_worker(process).items() if size}
        if left or not process.mover.idle():
            raise Violation(5, f"{process.name} still holds {left}")
    if not cluster.fabric.idle():
        raise Violation(5, "something is still on its way")


def check_all_over(cluster: Cluster) -> None:
    """Everybody has left: the service is as new."""
    control = cluster.service().control
    left = {name: size for name, size in (_rooms_of_service(control) | _sizes("pairs", control.pairs)).items() if size}
    sizes = control.sizes()
    if left or any(vars_of(sizes).values()):
        raise Violation(5, f"all have left, and the service still holds {left}, {sizes}")


def vars_of(sizes: object) -> dict[str, int]:
    """The fields of a dataclass with slots."""
    return {name: getattr(sizes, name) for name in type(sizes).__dataclass_fields__}  # type: ignore[attr-defined]


def _rooms_of_service(control: ControlPlane) -> dict[str, int]:
    found = {"rooms": len(control.rooms), "_unlinked": len(control._unlinked), "changes": len(control.changes._rooms)}
    found |= _sizes("ledger", control.ledger)
    for worker in control.registry.workers.values():
        found[f"joins of {worker.ref.worker_id}"] = len(worker.instance.joins)
        if worker.outbox is not None:
            for name in ("rooms", "releases", "strangers", "told_update", "told_offers", "told_completions"):
                found[f"outbox of {worker.ref.worker_id}: {name}"] = len(getattr(worker.outbox, name))
    return found


def _rooms_of_worker(process: Process) -> dict[str, int]:
    rooms = process.rooms
    found = {name: size for name, size in _sizes("rooms", rooms).items() if name not in STAYS_WITH_PEERS}
    found["outgoing"] = len(rooms.outgoing._marks) + sum(len(sent.marks) for sent in rooms.outgoing._sent)
    found["lent"] = len(process.memory.lent)
    return found


def _sizes(name: str, owner: object) -> dict[str, int]:
    return {
        f"{name}.{attribute}": len(value)
        for attribute, value in vars(owner).items()
        if isinstance(value, Sized) and not isinstance(value, str)
    }
