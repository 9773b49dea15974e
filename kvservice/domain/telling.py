"""Marks in workers' outboxes what they have to be told, and wakes their sessions."""

from collections.abc import Callable

from kvservice.domain.outbox import Outbox
from kvservice.domain.pages import Changed, PageLedger
from kvservice.domain.pairs import Pairs
from kvservice.domain.registry import Registry, Worker
from kvservice.domain.types import Peer, PeerChange, PeerNews, RoomUpdate

# Told whom to wake, and whether somebody waits for it: work to do, or an end.
Wake = Callable[[Worker, bool], None]


class Telling:
    """Workers without an open session are told nothing: the next one is told everything."""

    def __init__(self, registry: Registry, pairs: Pairs, ledger: PageLedger, wake: Wake) -> None:
        self.wake = wake
        self._registry = registry
        self._pairs = pairs
        self._ledger = ledger
        self._gone: dict[str, Worker] = {}  # by instance, as long as the registry remembers it

    def everything(self, worker: Worker, revision: int) -> None:
        """A new stream: all that the worker must know, as of a revision."""
        worker.outbox = Outbox()
        for (room, join_id), (poll, failure) in worker.instance.ends():
            update = RoomUpdate(room, join_id, poll, None, failure, (), False, revision)
            worker.outbox.strangers[room, join_id] = update
        worker.outbox.rooms.update(dict.fromkeys(worker.instance.joins))
        for key in self._ledger.released_by(worker.peer.instance_id):
            worker.outbox.releases[key] = self._ledger.release(key)
        for former in self._gone.values():
            self._part(worker, former)
        for peer in self._pairs.peers_of(worker):
            self._meet(worker, peer)
        for misfit, why in self._pairs.misfits_of(worker):
            self.peer(worker, misfit, PeerNews.UNFIT, why)

    def announce(self, worker: Worker) -> None:
        """A worker of a ready engine and its peers learn of each other."""
        for peer in self._pairs.peers_of(worker):
            self._meet(peer, worker)
            self._meet(worker, peer)
        for misfit, why in self._pairs.misfits_of(worker):
            self.peer(worker, misfit, PeerNews.UNFIT, why)
            if worker.rank == min(worker.engine.workers):
                for other in misfit.engine.workers.values():
                    self.peer(other, worker, PeerNews.UNFIT, why)

    def peer(self, told: Worker, about: Worker, kind: PeerNews, message: str = "") -> None:
        """News of a peer."""
        if told.outbox is not None:
            change = PeerChange(about.peer, kind, about.engine.engine_id, about.rank.dp_rank, message)
            told.outbox.peers[about.peer.instance_id] = change
            self.wake(told, False)

    def gone(self, worker: Worker) -> None:
        """A process is gone or was replaced: told to whoever may have heard of it, whatever became of their engines."""
        self._gone[worker.peer.instance_id] = worker
        for other in self._registry.workers.values():
            self._part(other, worker)

    def forget(self, instance_id: str) -> None:
        """A process is back, or was gone for so long that nobody remembers it."""
        self._gone.pop(instance_id, None)

    def room(self, peer: Peer, number: int, urgent: bool) -> None:
        """A room of this process may look different to it."""
        worker = self._present(peer)
        if worker is not None and worker.outbox is not None:
            worker.outbox.rooms[number] = None
            self.wake(worker, urgent)

    def releases(self, changed: Changed) -> None:
        """Pages of these joins may be free, or held by somebody else."""
        for peer, key in changed:
            worker = self._present(peer)
            if worker is not None and worker.outbox is not None:
                worker.outbox.releases[key] = self._ledger.release(key)
                self.wake(worker, False)

    def _meet(self, told: Worker, about: Worker) -> None:
        self.peer(told, about, PeerNews.DRAINING if about.draining else PeerNews.READY)

    def _part(self, told: Worker, about: Worker) -> None:
        if told.engine.role is not about.engine.role:
            self.peer(told, about, PeerNews.GONE)

    def _present(self, peer: Peer) -> Worker | None:
        worker = self._registry.workers.get(peer.worker_id)
        return worker if worker is not None and worker.instance.peer == peer else None
