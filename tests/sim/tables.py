"""Invariant 5: when all have released and retention has passed, every table is empty, whatever it is called."""

from collections.abc import Sized
from dataclasses import astuple

from kvservice.domain.control_plane import ControlPlane

from .cluster import Cluster
from .process import Process

STAYS_WITH_PEERS = ("roster", "counters")
"""Of a worker: what its peers and its past fill, not its rooms."""


def nothing_left(cluster: Cluster) -> str:
    """What is left of rooms, though workers are still registered and met; empty if nothing."""
    control = cluster.service().control
    sizes = control.sizes()
    left = {name: size for name, size in _rooms_of_service(control).items() if size}
    if left or sizes.open_rooms or sizes.timers != sizes.workers or sizes.workers != len(cluster.running):
        return f"{len(cluster.running)} workers live, the service holds {left}, {sizes}"
    for process in cluster.living:
        left = {name: size for name, size in _rooms_of_worker(process).items() if size}
        if left or not process.mover.idle():
            return f"{process.name} holds {left}"
    return "" if cluster.fabric.idle() else "something is on its way"


def all_over(cluster: Cluster) -> str:
    """What is left though everybody has left; empty if nothing."""
    control = cluster.service().control
    sizes = control.sizes()
    left = {name: size for name, size in (_rooms_of_service(control) | _sizes("pairs", control.pairs)).items() if size}
    return f"the service holds {left}, {sizes}" if left or any(astuple(sizes)) else ""


def _rooms_of_service(control: ControlPlane) -> dict[str, int]:
    found = {"rooms": len(control.rooms), "linking": len(control.linking), "changes": len(control.changes._rooms)}
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
