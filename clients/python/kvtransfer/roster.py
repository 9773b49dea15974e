"""The processes of the other side that a worker has links with, and how far each has been met."""

import logging
from dataclasses import dataclass

from kvtransfer import v1 as pb
from kvtransfer.actions import Action, AddPeer, DropPeer, LinkStats

log = logging.getLogger("kvtransfer")

RETRY_PEER = (1.0, 30.0)
"""Seconds before a peer that could not be met is tried again: the first time, and at most."""
ALONE_S = 10.0
"""After a registration that nobody of the other side was told after for so long, the log says so."""


@dataclass(frozen=True, slots=True)
class FetchLinks:
    """Ask the service for the links with a peer (GetLinks), then call `links_fetched` or `failed`."""

    change: pb.PeerChange


@dataclass(slots=True)
class PeerState:
    """A process of the other side."""

    change: pb.PeerChange
    links: tuple[pb.Link, ...] = ()
    """Between this worker and the peer; empty until fetched."""
    stats: LinkStats | None = None
    """Once it was met."""
    error: str = ""
    unfit: bool = False
    """Its engine does not fit: `error` says why."""
    retry_at: float | None = None
    retry_after: float = RETRY_PEER[0]

    @property
    def moved_groups(self) -> set[str]:
        """Groups of which something moves along the links."""
        return {span.group for link in self.links for span in link.spans}


class Roster:
    """Peers by instance."""

    def __init__(self, actions: list[Action | FetchLinks]) -> None:
        self.peers: dict[str, PeerState] = {}
        self._actions = actions
        self._alone_since: float | None = None

    def registered(self, now: float) -> None:
        """From now on the service tells of peers."""
        self._alone_since = now

    def changed(self, change: pb.PeerChange) -> None:
        """News of a peer."""
        if change.kind == pb.PeerChange.KIND_GONE:
            self._drop(change.peer.instance_id)
        elif change.kind in (pb.PeerChange.KIND_READY, pb.PeerChange.KIND_DRAINING):  # its rooms go on
            self._ready(change)
        elif change.kind == pb.PeerChange.KIND_UNFIT and self._enter(change):
            state = self.peers[change.peer.instance_id]
            state.unfit, state.error = True, change.message
            log.warning("engine %s does not fit: %s", change.engine_id, change.message)

    def _ready(self, change: pb.PeerChange) -> None:
        new = self._enter(change)
        state = self.peers[change.peer.instance_id]
        if state.unfit:
            return  # a process keeps its layout
        if new or state.retry_at is not None:
            state.retry_at = None
            self._actions.append(FetchLinks(change))

    def _enter(self, change: pb.PeerChange) -> bool:
        """True if the process is new here. Whoever had its rank before is gone, though nobody may have heard it go."""
        if change.peer.instance_id in self.peers:
            return False
        for instance, other in list(self.peers.items()):
            if other.change.peer.worker_id == change.peer.worker_id:
                self._drop(instance)
        self.peers[change.peer.instance_id] = PeerState(change)
        return True

    def _drop(self, instance: str) -> None:
        if self.peers.pop(instance, None) is not None:
            self._actions.append(DropPeer(instance))

    def links_fetched(self, change: pb.PeerChange, answer: pb.GetLinksResponse) -> None:
        """The answer to FetchLinks."""
        state = self.peers.get(change.peer.instance_id)
        if state is None:
            return
        for worker in answer.peers:
            if worker.instance_id == change.peer.instance_id:
                state.links = tuple(link for link in answer.links if change.peer in (link.sender, link.receiver))
                self._actions.append(AddPeer(change.peer, worker.layout, worker.nixl_metadata, state.links))

    def met(self, instance_id: str, stats: LinkStats) -> None:
        """The connection is warm."""
        state = self.peers.get(instance_id)
        if state is not None:
            state.stats, state.error, state.retry_at, state.retry_after = stats, "", None, RETRY_PEER[0]

    def failed(self, instance_id: str, error: str, now: float) -> None:
        """The peer could not be met, or its links not be fetched: tried again later, unless it is gone by then."""
        state = self.peers.get(instance_id)
        if state is not None:
            state.stats, state.error = None, error
            state.retry_at = now + state.retry_after
            state.retry_after = min(2 * state.retry_after, RETRY_PEER[1])
            log.warning("peer %s (%s) could not be met: %s", state.change.peer.worker_id, instance_id, error)

    def tick(self, now: float) -> None:
        """Tries again whom it is time to, and says that there is nobody."""
        if self._alone_since is not None and now >= self._alone_since + ALONE_S:
            self._alone_since = None
            if not self.peers:
                log.warning("registered %g s ago, and no engine of the other side is ready: waiting for one", ALONE_S)
        for state in self.peers.values():
            if state.retry_at is not None and now >= state.retry_at:
                state.retry_at = None
                self._actions.append(FetchLinks(state.change))
