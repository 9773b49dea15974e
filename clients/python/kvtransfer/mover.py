"""Whoever uses NIXL: takes actions, posts writes piece by piece, reads notifications, tells what happened.

It does so in turns, one at a time. A thread of its own sees to it that there are turns; a thread that has just brought
work, or waits for a notification, takes one itself, for to wake another thread takes as long as a small write.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import DecodeError

from kvtransfer import v1 as pb
from kvtransfer.actions import (
    NOTIFICATION_PREFIX,
    Action,
    AddPeer,
    Cancel,
    Drain,
    DropPeer,
    MoverEvents,
    Notify,
    Outcome,
    Pace,
    Post,
)
from kvtransfer.errors import InvalidField
from kvtransfer.layout import LocalMemory
from kvtransfer.nixl_agent import NixlAgent, make_sleeps_short
from kvtransfer.pacing import CLOSELY, OFTEN, SELDOM
from kvtransfer.peers import Peer
from kvtransfer.posts import PostRun
from kvtransfer.turns import Turns

_log = logging.getLogger(__name__)

PEER_TIMEOUT_S = 10.0
SETTLING_SLEEP_S = 0.001
"""Between looks while a peer has not answered or a fence is not reached."""
SENT_S = 0.2
"""How long the mover looks often after it has sent a notification: what NIXL could not send at once goes on then."""
GREETED_S = 0.2
"""How long Hello keeps a mover busy: the peer is about to time its writes, and tcp's wait for their target."""
LOOKED_S = 0.0005
"""An engine whose last look is younger looks often, and sooner than the mover's thread could be awake."""
LEFT_S = 0.002
"""How long the mover's thread leaves notifications to such an engine."""
LENT_S = 0.002
"""After how long a lent thread begins no further write: it has others to serve, who may want to stop the next one."""
LEND_AGAIN_S = 0.1
"""For how long no thread is lent after one was kept for longer: where writes are large, or another thread holds the
interpreter's lock, two threads get further than one."""
STRANGERS = 1024
"""Workers remembered that said Hello before they were known."""


@dataclass(frozen=True, slots=True)
class _Hello:
    """A worker was heard. For a turn of the mover's: who looks only takes what has arrived."""

    sender: str


class Mover:
    """Owns one NIXL agent, which is touched in turns only, by one thread at a time."""

    def __init__(
        self, instance_id: str, memory: LocalMemory, events: MoverEvents, *, peer_timeout_s: float = PEER_TIMEOUT_S
    ) -> None:
        """Start nothing yet.

        Args:
            instance_id: name of this process, and of its NIXL agent.
            memory: what is registered. Kept alive until `close`.
            events: called by whoever has the turn.
            peer_timeout_s: for one attempt to meet a peer.
        """
        self._instance_id = instance_id
        self._memory = memory
        self._events = events
        self._peer_timeout_s = peer_timeout_s
        self._wake = threading.Condition()
        self._actions: deque[Action | _Hello] = deque()
        self._pause_s = SELDOM
        self._resting_s = 0.0
        """How long the mover's thread rests now, at most; 0 while it does not."""
        self._looked_at = float("-inf")
        self._lend_at = float("-inf")
        self._closing_until: float | None = None
        """When what is still in flight is given up, by `time.monotonic`; None while the mover is not being closed."""
        self._thread = threading.Thread(target=self._run, name=f"kvtransfer-mover-{instance_id[:8]}", daemon=True)
        self._metadata: Future[bytes] = Future()
        self._turns = Turns()
        self._ended = False
        # Of the turn from here on.
        self._agent: NixlAgent
        self._peers: dict[str, Peer] = {}
        self._returning: dict[str, AddPeer] = {}
        """To be met once what is left of their former connection has ended."""
        self._strangers: dict[str, None] = {}
        self._posts: dict[int, PostRun] = {}
        self._due_s = SELDOM
        """How soon what is in flight wants the next turn; 0: at once."""
        self._greeted_at = float("-inf")
        self._sent_at = float("-inf")

    def start(self) -> bytes:
        """Create the agent and register the memory, on the mover's thread; returns the agent's metadata for peers.

        Raises:
            Exception: whatever kept NIXL from it; the mover is closed then.
        """
        self._thread.start()
        return self._metadata.result()

    def submit(self, action: Action) -> None:
        """Hand over an action, from any thread; returns at once. After the end of the mover it is dropped."""
        self.queue(action)
        if not self.has_turn:  # whoever has the turn sees to what it brought itself
            self._rouse()

    def queue(self, action: Action) -> None:
        """As `submit`, for a caller that lends its thread next."""
        if isinstance(action, Pace):
            self._pause_s = action.pause
        else:
            self._actions.append(action)

    @property
    def has_turn(self) -> bool:
        """Whether the calling thread has the turn: inside an event, or a signal's handler that came in the midst."""
        return self._turns.mine

    def lend(self) -> None:
        """Take a turn on the calling thread, unless another has it: at most one piece of each post is written.

        None begins after `LENT_S`: the mover's thread goes on with what is left, and does all by itself for a while.
        Not to be called inside an event.
        """
        began = time.monotonic()
        if began >= self._lend_at:
            self._turns.try_take(self._lent_turn)
            if time.monotonic() - began > LENT_S:
                self._lend_at = began + LEND_AGAIN_S
        self._rouse()

    def look(self) -> None:
        """Deliver notifications that have arrived, on the calling thread, unless another has the turn.

        Nothing if the last look was a moment ago: whoever polls many rooms looks once or twice. As long as somebody
        looks often, the mover's thread does so seldom. Not to be called inside an event.

        What is raised is the caller's: its signals' handlers may interrupt this anywhere, and nobody could tell what
        they raise from anything else. The mover goes on.
        """
        now = time.monotonic()
        if now - self._looked_at < CLOSELY:
            return
        self._looked_at = now
        self._turns.visit(self._read_notifications)
        if self._actions:
            self._rouse()

    def close(self, timeout: float = 10.0) -> None:
        """Post nothing more, wait for what is in flight, release everything and end the thread.

        What has not ended after `timeout` seconds is given up: the agent's deletion stops it. Posts that had not ended
        are told CANCELLED, or FAILED if they were in flight. Not to be called on the mover's thread.

        Raises:
            TimeoutError: the thread did not end: it is held in a call of NIXL, or in an event.
        """
        with self._wake:
            self._closing_until = time.monotonic() + timeout
            self._wake.notify()
        self._thread.join(timeout + 5.0)
        if self._thread.is_alive():
            raise TimeoutError(f"the mover's thread did not end within {timeout + 5.0} s")

    def _run(self) -> None:
        try:
            self._agent = NixlAgent(self._instance_id, self._memory.allocations)
            metadata = self._agent.metadata()
        except BaseException as error:  # noqa: BLE001  it is raised again, where `start` waits
            self._metadata.set_exception(error)
            return
        self._metadata.set_result(metadata)
        make_sleeps_short()
        self._turns.begin()
        try:
            while not (self._ended or self._turns.error):
                self._turns.take(self._go_on)
                self._rest()
        except BaseException as error:  # noqa: BLE001  whatever it is, the owner must hear of it
            self._turns.error = error
        self._turns.end()
        died, ended_by = "", self._turns.error
        if ended_by is not None:
            _log.error("the mover ends by an unexpected error", exc_info=ended_by)
            died = f"{type(ended_by).__name__}: {ended_by}"
        self._release_all(died)

    def _go_on(self) -> None:
        self._ended = self._done()
        if not self._ended:
            self._turn()

    def _turn(self) -> None:
        self._take_actions()
        now = time.monotonic()
        for peer in list(self._peers.values()):
            peer.step(now, self._events)
            if peer.gone:
                del self._peers[peer.name]
                if returning := self._returning.pop(peer.name, None):
                    self._add_peer(returning, now)
        self._go_on_with(list(self._posts.values()))

    def _lent_turn(self) -> None:
        self._take_actions()
        # A fence is the engine's code: should it block, it must not take the thread along.
        self._go_on_with([run for run in self._posts.values() if not run.fenced], LENT_S)

    def _go_on_with(self, runs: list[PostRun], seconds: float = float("inf")) -> None:
        began = now = time.monotonic()
        for run in runs:
            if run.step(self._peers.get(run.post.receiver), now, self._events):
                del self._posts[run.post.post_id]
                self._sent_at = now if run.post.completion else self._sent_at
            now = time.monotonic()
            if now - began >= seconds:
                break
        self._read_notifications()
        self._take_actions()  # which came of it: a Completion is not to wait for the next turn
        self._due_s = self._next_turn_s()

    def _next_turn_s(self) -> float:
        if any(run.moving for run in self._posts.values()):
            return 0.0
        if any(not run.waiting for run in self._posts.values()):
            return CLOSELY
        if self._posts or any(peer.settling for peer in self._peers.values()):
            return SETTLING_SLEEP_S
        return SELDOM

    def _take_actions(self) -> None:
        while self._actions:
            self._take(self._actions.popleft())

    def _take(self, action: Action | _Hello) -> None:
        match action:
            case _Hello():
                self._hear_hello(action.sender, time.monotonic())
            case Post():
                self._posts[action.post_id] = PostRun(action)
            case Cancel():
                if run := self._posts.get(action.post_id):
                    run.stop(Outcome.CANCELLED, "")
            case Notify():
                if peer := self._peers.get(action.instance_id):
                    peer.notify(action.payload)
                    self._sent_at = time.monotonic()
            case Drain():
                while self._read_notifications():
                    pass
                self._events.drained(action.token)
            case AddPeer():
                self._add_peer(action, time.monotonic())
            case DropPeer():
                self._drop_peer(action.instance_id)

    def _add_peer(self, action: AddPeer, now: float) -> None:
        name = action.peer.instance_id
        if known := self._peers.get(name):
            if known.failed or known.dropped:
                known.drop()
                self._returning[name] = action
            return
        try:
            peer = Peer(action, self._instance_id, self._memory, self._agent, self._peer_timeout_s)
        except InvalidField as error:
            self._events.peer_failed(name, str(error))
            return
        peer.meet(now, heard=name in self._strangers)
        self._strangers.pop(name, None)
        self._peers[name] = peer

    def _drop_peer(self, name: str) -> None:
        self._returning.pop(name, None)
        peer = self._peers.get(name)
        if peer is None:
            return
        peer.drop()
        for run in self._posts.values():
            if run.post.receiver == name:
                run.stop(Outcome.REFUSED, peer.error)

    def _read_notifications(self) -> bool:
        """Make NIXL go on, and deliver what arrived; True if anything did."""
        arrived = self._agent.notifications()
        if not arrived:
            return False
        for sender, payloads in arrived.items():
            for payload in payloads:
                if not payload.startswith(NOTIFICATION_PREFIX):
                    continue
                body = payload[len(NOTIFICATION_PREFIX) :]
                if _is_hello(body):
                    self._actions.append(_Hello(sender))
                else:
                    self._events.notified(sender, body)
        return True

    def _hear_hello(self, sender: str, now: float) -> None:
        self._greeted_at = now
        peer = self._peers.get(sender)
        if peer is not None and not peer.dropped:
            peer.hear_hello(now)
            return
        self._strangers[sender] = None
        if len(self._strangers) > STRANGERS:
            del self._strangers[next(iter(self._strangers))]

    def _rest(self) -> None:
        """Leave the core to others for as long as nobody would notice."""
        with self._wake:
            if pause := self._may_rest_s(time.monotonic()):
                self._resting_s = pause
                self._wake.wait(pause)
                self._resting_s = 0.0

    def _rouse(self) -> None:
        """Wake the mover's thread if it is needed sooner than it would come by itself."""
        with self._wake:
            if self._may_rest_s(time.monotonic()) < self._resting_s:
                self._wake.notify()

    def _may_rest_s(self, now: float) -> float:
        if self._actions or self._turns.error or self._ended:
            return 0.0
        pause = self._pause_s
        if now - self._looked_at < LOOKED_S:
            pause = max(pause, LEFT_S)
        if now - self._sent_at < SENT_S:
            pause = min(pause, OFTEN)
        if now - self._greeted_at < GREETED_S:
            pause = CLOSELY
        if self._closing_until is not None:
            pause = min(pause, SETTLING_SLEEP_S)
        return min(pause, self._due_s)

    def _done(self) -> bool:
        if self._closing_until is None:
            return False
        for run in self._posts.values():
            run.stop(Outcome.CANCELLED, "the mover was closed")
        in_flight = any(peer.connection and peer.connection.open_handles for peer in self._peers.values())
        return not (self._posts or in_flight) or time.monotonic() > self._closing_until

    def _release_all(self, died: str) -> None:
        """Leave nothing in NIXL. Each step is tried, whatever became of the one before."""
        posts, peers = list(self._posts.values()), list(self._peers.values())
        self._posts.clear()
        self._peers.clear()
        steps: list[Callable[[], None]] = []
        if not died:
            steps += [partial(run.abandon, self._events) for run in posts]
        steps += [peer.connection.abandon for peer in peers if peer.connection]
        steps += [self._agent.close]
        if died:
            steps += [partial(self._events.mover_died, died)]
        for step in steps:
            try:
                step()
            except Exception:  # noqa: BLE001  the next step must be tried
                _log.exception("ending the mover: %s", step)


def _is_hello(body: bytes) -> bool:
    try:
        return pb.Notification.FromString(body).HasField("hello")
    except DecodeError:
        return False  # delivered like the others: whoever reads them counts what cannot be read
