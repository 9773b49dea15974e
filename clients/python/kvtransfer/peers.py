"""Meeting a peer: connect, Hello both ways, timed writes into its scratch region; anew when the connection is lost."""

import enum
import logging
from collections.abc import Iterator, Sequence

from kvtransfer import v1 as pb
from kvtransfer.actions import NOTIFICATION_PREFIX, AddPeer, Items, LinkStats, MoverEvents
from kvtransfer.connection import Connection
from kvtransfer.errors import InvalidField
from kvtransfer.layout import LocalMemory
from kvtransfer.nixl_agent import NixlAgent
from kvtransfer.plan import Lane, LinkPlan, Piece
from kvtransfer.warmup import WarmUp, scratch_lane

_log = logging.getLogger(__name__)

ATTEMPTS = 3
"""Tries to meet a peer before it is given up. A Hello of its own, or another AddPeer, gives it as many again."""
RETRY_AFTER_S = 0.5
HELLO_EVERY_S = 2.5
"""How often Hello is said to a peer that has not answered."""
HELLO_ANSWER_AFTER_S = 2.0
"""A ready peer answers Hello if its own last one is older: with no such limit two would answer each other for ever."""


SLOW_BYTES_S = 2e9
"""What is no faster goes over tcp, or through the host: between two processes of one host that gave up to 1.8e9."""


class _State(enum.Enum):
    MEETING = enum.auto()
    WARMING = enum.auto()
    READY = enum.auto()
    FAILED = enum.auto()
    DROPPED = enum.auto()


class Peer:
    """One worker of the other side, as the mover deals with it in its turns.

    Attributes:
        name: its `instance_id`.
        error: why it was given up or dropped; empty otherwise.
    """

    name: str
    error: str

    def __init__(self, action: AddPeer, own_name: str, memory: LocalMemory, agent: NixlAgent, timeout_s: float) -> None:
        """Plan what is sent to it; `meet` and `step` do the rest.

        Args:
            action: what to meet.
            own_name: `instance_id` of this process.
            memory: of this process.
            agent: of this process.
            timeout_s: for one attempt to connect and warm up.

        Raises:
            InvalidField: a link that cannot be planned.
        """
        self.name = action.peer.instance_id
        self.error = ""
        self._action = action
        self._agent = agent
        self._timeout_s = timeout_s
        self._hello = _hello(action.links, own_name)
        self._plan: LinkPlan | None = None
        self._lanes: list[Lane] = []
        to_peer = [link for link in action.links if link.sender.instance_id == own_name]
        if len(to_peer) > 1:
            raise InvalidField("links", f"{len(to_peer)} links to {self.name}, not one")
        if to_peer:
            self._plan = LinkPlan(to_peer[0], memory.layout, action.layout)
            self._lanes = [*self._plan.lanes, scratch_lane(memory.layout.scratch, action.layout.scratch)]
        self._state = _State.MEETING
        self._connection: Connection | None = None
        self._warm_up: WarmUp | None = None
        self._said_hello_at = float("-inf")

    @property
    def connection(self) -> Connection | None:
        """What is open towards it."""
        return self._connection

    @property
    def ready(self) -> bool:
        """Whether posts may begin."""
        return self._state is _State.READY and self._connection is not None and self._connection.usable

    @property
    def failed(self) -> bool:
        """Whether it was given up."""
        return self._state is _State.FAILED

    @property
    def dropped(self) -> bool:
        """Whether it is to be forgotten."""
        return self._state is _State.DROPPED

    @property
    def settling(self) -> bool:
        """Whether `step` has work to do soon."""
        return self._state in (_State.MEETING, _State.WARMING)

    @property
    def gone(self) -> bool:
        """Whether it was dropped and nothing of it is left in NIXL."""
        return self._state is _State.DROPPED and self._connection is None

    def begin(self, items: Sequence[Items]) -> tuple[Connection, Iterator[Piece]]:
        """The pieces of a post, and the connection that takes them. Only while `ready`.

        Raises:
            InvalidField: the link has no such items.
        """
        if self._plan is None or self._connection is None:
            raise InvalidField("receiver", f"no link leads from this worker to {self.name}")
        self._plan.check(items)
        return self._connection, self._plan.pieces(items)

    def meet(self, now: float, *, heard: bool) -> None:
        """Start over. `heard`: its Hello was heard already."""
        self.error = ""
        self._attempts_left = ATTEMPTS
        self._heard = heard
        self._start_attempt(now)

    def drop(self) -> None:
        """Forget it: `gone` once all handles have ended."""
        self._state = _State.DROPPED
        self.error = f"peer {self.name} was dropped"
        self._retire_connection()

    def hear_hello(self, now: float) -> None:
        """It said Hello."""
        self._heard = True
        if self._state is _State.FAILED:
            self.meet(now, heard=True)
        elif self.ready and now - self._said_hello_at > HELLO_ANSWER_AFTER_S:
            self._said_hello_at = now
            self.notify(self._hello)

    def notify(self, payload: bytes) -> None:
        """Send a notification, best effort: who does not get it hears over gRPC."""
        if self._connection is None or not self._connection.usable:
            _log.debug("no connection to %s: a notification is dropped", self.name)
            return
        try:
            self._connection.notify(payload)
        except Exception:  # noqa: BLE001  NIXL's exceptions have no root of their own
            _log.warning("a notification to %s was not sent", self.name, exc_info=True)

    def step(self, now: float, events: MoverEvents) -> None:
        """Go on with what is next, without waiting for it."""
        if self._connection is not None and not self._connection.usable:
            if self._state is _State.READY:
                _log.warning("the connection to %s was lost, trying again", self.name)
                self.meet(now, heard=False)
            self._close_if_idle()
        if not self.settling:
            return
        if now > self._deadline:
            missing = "its writes did not end" if self._state is _State.WARMING else "it did not answer"
            self._fail_attempt(f"peer {self.name}: {missing} within {self._timeout_s} s", now, events)
            return
        if now < self._not_before:
            return
        try:
            if self._state is _State.MEETING:
                self._go_on_meeting(now)
            if self._state is _State.WARMING:
                self._go_on_warming(events)
        except Exception as error:  # noqa: BLE001  NIXL's exceptions have no root of their own
            self._fail_attempt(f"peer {self.name}: {type(error).__name__}: {error}", now, events)

    def _go_on_meeting(self, now: float) -> None:
        if self._connection is None:
            self._connection = Connection(self._agent, self.name, self._action.metadata, self._lanes)
            self._said_hello_at = float("-inf")
        if not self._connection.usable:
            return  # The one before still has a handle open; NIXL knows an agent by its name, so two cannot be.
        if now - self._said_hello_at > HELLO_EVERY_S:
            self._connection.notify(self._hello)
            self._said_hello_at = now
        if self._heard:
            self._state = _State.WARMING
            self._warm_up = WarmUp(self._connection, len(self._lanes) - 1, self._lanes[-1]) if self._lanes else None

    def _go_on_warming(self, events: MoverEvents) -> None:
        if self._warm_up is None:
            self._become_ready(LinkStats("", 0.0, {}), events)
        elif self._warm_up.step() and self._plan:
            stats = LinkStats(self._warm_up.transport(), self._warm_up.bandwidth(), self._plan.descriptors)
            self._warm_up = None
            self._become_ready(stats, events)

    def _become_ready(self, stats: LinkStats, events: MoverEvents) -> None:
        self._state = _State.READY
        if stats.transport:
            _log.log(*link_note(self._action.peer.worker_id, stats))
        events.peer_ready(self.name, stats)

    def _start_attempt(self, now: float, after_s: float = 0.0) -> None:
        self._state = _State.MEETING
        self._not_before = now + after_s
        self._deadline = self._not_before + self._timeout_s
        self._retire_connection()

    def _fail_attempt(self, error: str, now: float, events: MoverEvents) -> None:
        self._attempts_left -= 1
        if self._attempts_left:
            _log.warning("%s; trying again", error)
            self._start_attempt(now, RETRY_AFTER_S)
            return
        self._state = _State.FAILED
        self.error = error
        self._retire_connection()
        events.peer_failed(self.name, error)

    def _retire_connection(self) -> None:
        if self._connection is not None:
            self._connection.usable = False
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._warm_up is not None and self._warm_up.over():
            self._warm_up = None
        if self._connection is not None and not self._connection.open_handles:
            self._connection.close()
            self._connection = None


def _hello(links: Sequence[pb.Link], own_name: str) -> bytes:
    ends = [end for link in links for end in (link.sender, link.receiver) if end.instance_id == own_name]
    sender = ends[0] if ends else pb.Peer(instance_id=own_name)
    return NOTIFICATION_PREFIX + pb.Notification(hello=pb.Hello(sender=sender)).SerializeToString()


def link_note(worker_id: str, stats: LinkStats) -> tuple[int, str]:
    """What is logged of how bytes reach a worker: its level and its text. A warning where they could go faster."""
    way = f"writes to {worker_id} go over {stats.transport}, {stats.bandwidth_bytes_s / 1e9:.1f} GB/s"
    slow = stats.bandwidth_bytes_s < SLOW_BYTES_S
    if stats.transport == "tcp" or (stats.transport in _FASTER and slow):
        return logging.WARNING, f"{way}: {_FASTER[stats.transport]}"
    return logging.INFO, way


_FASTER = {
    "tcp": "if it is on this host, UCX's cma would be faster and is denied: run both as the same user, in one PID and"
    " one IPC namespace, dumpable, and with CAP_SYS_PTRACE where ptrace_scope is not 0",
    "network": "that is tcp, it seems; RDMA would be faster: do UCX_TLS and UCX_NET_DEVICES let it be used?",
    "device": "through the host, it seems; on one host UCX's cuda_ipc would be faster: it needs one PID namespace",
}
"""By transport: what could be faster, and how to get it."""
