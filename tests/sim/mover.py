"""The mover of a process: the same actions and events as the real one, over the simulated NIXL."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvtransfer.actions import (
    NOTIFICATION_PREFIX,
    Action,
    AddPeer,
    Cancel,
    Drain,
    DropPeer,
    LinkStats,
    Notify,
    Outcome,
    Pace,
    Post,
    completion_notification,
)
from kvtransfer.pacing import CLOSELY

from .memory import Place, described
from .nixl import Fabric
from .world import World

if TYPE_CHECKING:
    from .process import Process

WINDOW = 2
"""Pieces of a post in flight at once."""


@dataclass(slots=True)
class _Peer:
    links: int
    ready: bool = False
    error: str = ""


@dataclass(slots=True, eq=False)
class _Run:
    """A post from its submission to its end."""

    post: Post
    pieces: deque[list[tuple[Place, Place]]] = field(default_factory=deque)
    begun: bool = False
    handing_over: bool = False
    """Between the question whether it may post and the post: a process may be stopped right there."""
    flights: int = 0
    moved: int = 0
    end: Outcome | None = None
    error: str = ""
    disconnected: bool = False

    def stop(self, outcome: Outcome, error: str, disconnected: bool = False) -> None:
        """The first cause stays, unless bytes may be landing: FAILED outdoes it."""
        if self.end is None or (outcome is Outcome.FAILED and self.end is not Outcome.FAILED):
            self.end, self.error, self.disconnected = outcome, error, disconnected


class Mover:
    """Takes actions in order, a turn at a time; each post goes on by itself."""

    def __init__(self, world: World, fabric: Fabric, process: "Process") -> None:
        self._world = world
        self._fabric = fabric
        self._process = process
        self._actions: deque[Action] = deque()
        self._turning = False
        self._inbox: deque[tuple[str, bytes]] = deque()
        self._reading = False
        self._busy = False
        self._peers: dict[str, _Peer] = {}
        self._runs: dict[int, _Run] = {}
        self.died = False

    def idle(self) -> bool:
        """Whether nothing is left to do."""
        return not (self._actions or self._inbox or self._runs)

    def submit(self, action: Action) -> None:
        self.queue(action)
        if not self._turning:
            self._turning = True
            self._later(0.002, self._turn)

    def queue(self, action: Action) -> None:
        self._actions.append(action)

    def lend(self) -> None:
        self._alive(self._turn)

    def look(self) -> None:
        self._alive(self._read)

    def arrived(self, sender: str, payload: bytes) -> None:
        """NIXL has a notification; the mover looks for some in its own time."""
        self._inbox.append((sender, payload))
        if not self._reading:
            self._reading = True
            self._later(0.001 if self._busy else 0.02, self._read)

    def die(self, error: str) -> None:
        """Its thread ends by an unexpected exception."""
        self.died = True
        self._process.core.mover_died(error)

    def _later(self, most: float, happens: Callable[..., None], *args: object) -> None:
        self._process.after("mover", self._world.between(0.0, most), self._alive, happens, *args)

    def _alive(self, happens: Callable[..., None], *args: object) -> None:
        if not self.died:
            happens(*args)

    def _read(self) -> None:
        self._reading = False
        while self._inbox:
            sender, payload = self._inbox.popleft()
            self._process.core.notified(sender, payload[len(NOTIFICATION_PREFIX) :])

    def _turn(self) -> None:
        self._turning = False
        while self._actions:
            self._take(self._actions.popleft())

    def _take(self, action: Action) -> None:
        match action:
            case Post():
                self._runs[action.post_id] = run = _Run(action)
                self._step(run)
            case Cancel():
                if run := self._runs.get(action.post_id):
                    run.stop(Outcome.CANCELLED, "")
                    self._end_if_over(run)
            case Notify():
                self._notify(action.instance_id, action.payload)
            case Pace():
                self._busy = action.pause == CLOSELY
            case Drain():
                self._read()
                self._process.core.drained(action.token)
            case AddPeer():
                known = self._peers.get(action.peer.instance_id)
                if known is None or known.error:
                    self._peers[action.peer.instance_id] = peer = _Peer(len(action.links))
                    self._later(0.03, self._meet, action.peer.instance_id, peer, 3)
            case DropPeer():
                self._drop(action.instance_id)

    # --- peers ---

    def _meet(self, instance_id: str, peer: _Peer, attempts: int) -> None:
        if self._peers.get(instance_id) is not peer:
            return
        other = self._fabric.processes[instance_id]
        if not other.alive or other.resumes_at > self._world.now or self._world.faulty(0.05):
            if attempts:
                self._later(0.5, self._meet, instance_id, peer, attempts - 1)
            else:
                peer.error = f"peer {instance_id} did not answer"
                self._process.core.peer_failed(instance_id, peer.error)
                self._step_all(instance_id)
            return
        peer.ready = True
        self._process.core.peer_ready(instance_id, LinkStats("sim", 1e9, {}))
        self._step_all(instance_id)

    def _notify(self, instance_id: str, payload: bytes) -> None:
        peer = self._peers.get(instance_id)
        if peer is not None and peer.ready:
            self._fabric.notify(self._process, instance_id, payload)

    def _drop(self, instance_id: str) -> None:
        if self._peers.pop(instance_id, None) is None:
            return
        for run in list(self._runs.values()):
            if run.post.receiver == instance_id:
                run.stop(Outcome.REFUSED, f"peer {instance_id} was dropped")
                self._end_if_over(run)

    def _lost(self, instance_id: str) -> None:
        """NIXL lost the peer: the connection is made anew."""
        peer = self._peers.get(instance_id)
        if peer is None or not peer.ready:
            return
        peer.ready = False
        for run in list(self._runs.values()):
            if run.post.receiver == instance_id and run.begun:
                run.stop(Outcome.REFUSED, f"the connection to {instance_id} was lost", True)
                self._end_if_over(run)
        self._later(0.1, self._meet, instance_id, peer, 3)

    # --- posts ---

    def _step_all(self, instance_id: str) -> None:
        for run in list(self._runs.values()):
            if run.post.receiver == instance_id:
                self._step(run)

    def _step(self, run: _Run) -> None:
        """Begins a post, or hands over its next piece; waits if it must."""
        if run.end is None and not run.begun and not self._begin(run):
            return
        if run.end is None and run.pieces and not run.handing_over and run.flights < WINDOW:
            if not self._process.core.may_post(run.post.post_id):
                run.stop(Outcome.CANCELLED, "the next piece was not allowed")
            elif self._world.faulty(0.002):
                run.stop(Outcome.REFUSED, "NIXL_ERR_INVALID_PARAM")
            else:
                run.handing_over = True
                self._later(0.001, self._hand_over, run)
        self._end_if_over(run)

    def _begin(self, run: _Run) -> bool:
        """Whether the post need not wait any more for its fence and its peer."""
        fence = run.post.ready
        if fence is not None and not fence():  # type: ignore[operator] # the simulator's fences are callables
            self._later(0.05, self._step, run)
            return False
        pairs = [
            ((items.group, int(source)), (items.group, int(target)))
            for items in run.post.items
            for source, target in zip(items.sender, items.receiver, strict=True)
        ]
        peer = self._peers.get(run.post.receiver)
        if not pairs:
            run.stop(Outcome.DONE, "")
        elif peer is None:
            run.stop(Outcome.REFUSED, f"no such peer: {run.post.receiver}")
        elif peer.error:
            run.stop(Outcome.REFUSED, peer.error)
        elif not peer.ready:
            return False
        run.begun = True
        while pairs:
            size = self._world.chance.randint(1, 4)
            run.pieces.append(pairs[:size])
            pairs = pairs[size:]
        return True

    def _hand_over(self, run: _Run) -> None:
        run.handing_over = False
        piece = run.pieces.popleft()
        run.flights += 1

        def ended(error: str, disconnected: bool) -> None:
            if not self.died:
                self._piece_ended(run, piece, error, disconnected)

        self._fabric.write(self._process, run.post.receiver, piece, ended)
        if run.end is None:
            self._later(0.002, self._step, run)

    def _piece_ended(self, run: _Run, piece: list[tuple[Place, Place]], error: str, disconnected: bool) -> None:
        run.flights -= 1
        if error:
            run.stop(Outcome.FAILED, error, disconnected)
            if disconnected:
                self._lost(run.post.receiver)
        else:
            run.moved += sum(described("m", 0, 1).item_bytes(source[0]) for source, _ in piece)
            if run.end is None and (run.pieces or run.flights or run.handing_over):
                self._process.core.post_progress(run.post.post_id, run.moved)
        self._step(run)

    def _end_if_over(self, run: _Run) -> None:
        if run.post.post_id not in self._runs:
            return
        if run.end is None and run.begun and not (run.pieces or run.flights or run.handing_over):
            run.stop(Outcome.DONE, "")
        if run.end is None or run.flights or run.handing_over:
            return
        del self._runs[run.post.post_id]
        if run.end is Outcome.DONE and run.post.completion is not None:
            run.post.completion.bytes += run.moved
            self._notify(run.post.receiver, completion_notification(run.post.completion))
        self._world.seen[f"post {run.end.name}"] += 1
        self._process.core.post_ended(run.post.post_id, run.end, run.moved, run.error, run.disconnected)
