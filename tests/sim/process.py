"""One process of an engine: the real rooms behind the real core, a simulated mover, a session, and a memory."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kvtransfer import v1 as pb
from kvtransfer.core import Core
from kvtransfer.handles import KVReceiver, KVSender
from kvtransfer.polls import Failure, KVPoll
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.rooms import Rooms
from kvtransfer.sending import SenderRoom

from .config import WORKER
from .memory import Memory, described
from .mover import Mover
from .nixl import Fabric
from .session import WorkerSession
from .world import World

if TYPE_CHECKING:
    from .network import Network
    from .service import SimulatedService

Lane = Literal["mover", "session", "clock", "engine"]
"""A thread of the process: what happens on one of them keeps its order."""

TICK = 0.4


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank of an engine."""

    engine_id: str
    role: Literal["prefill", "decode"]
    model: str
    tp_size: int
    dp_size: int
    tp_rank: int
    dp_rank: int

    @property
    def worker_id(self) -> str:
        return f"{self.engine_id}/dp{self.dp_rank}/pp0/tp{self.tp_rank}"


@dataclass(slots=True, eq=False)
class Held:
    """A room as this process's engine holds it, and what was seen of it."""

    handle: KVSender | KVReceiver
    room: SenderRoom | ReceiverRoom
    attempt: int
    closing_planned: bool = False
    ending: bool = False
    """The engine has called close."""
    refused: bool = False
    """The service refused the join; a copy of it may still be accepted, which is of no use to anybody."""
    released: bool = False
    """Its pages came back."""
    polls: tuple[KVPoll, KVPoll, KVPoll] = (KVPoll.BOOTSTRAPPING, KVPoll.BOOTSTRAPPING, KVPoll.BOOTSTRAPPING)
    """Seen last: the worker's own, the room's, and what the engine is shown."""
    failure: Failure | None = None
    """Seen last."""


class Process:
    """Lives until it is killed or leaves; may be stopped meanwhile."""

    def __init__(
        self,
        world: World,
        fabric: Fabric,
        network: "Network",
        service: Callable[[], "SimulatedService"],
        seat: Seat,
        instance_id: str,
        exited: list[str],
    ) -> None:
        self.seat = seat
        self.instance_id = instance_id
        self.name = f"{seat.engine_id}.{seat.dp_rank}.{seat.tp_rank}/{instance_id[:4]}"
        self.attests = exited
        self.alive = True
        self.resumes_at = 0.0
        self.memory = Memory()
        self.described = described(seat.model, seat.tp_rank, seat.tp_size)
        self.rooms = Rooms(self.described, WORKER)
        self.core = Core(self.rooms)
        self.mover = Mover(world, fabric, self)
        self.core.mover = self.mover
        self.held: list[Held] = []
        self.touched = False
        """Whether something happened here since the last look."""
        registration = pb.RegisterWorkerRequest(
            engine_id=seat.engine_id,
            role=pb.ROLE_PREFILL if seat.role == "prefill" else pb.ROLE_DECODE,
            topology=pb.Topology(tp_size=seat.tp_size, pp_size=1, dp_size=seat.dp_size),
            rank=pb.Rank(tp_rank=seat.tp_rank, pp_rank=0, dp_rank=seat.dp_rank),
            instance_id=instance_id,
            layout=self.described.layout,
            nixl_metadata=b"sim",
            exited_instances=exited,
        )
        self.session = WorkerSession(world, self, network, service, registration)
        self.core.fetch_links = self.session.fetch_links
        self._world = world
        self._stopped: dict[Lane, deque[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        fabric.processes[instance_id] = self
        self.session.start()
        self.after("clock", world.between(0.0, TICK), self._tick)

    def after(self, lane: Lane, delay: float, happens: Callable[..., None], *args: Any) -> None:
        """Calls `happens(*args)` on one of the threads in `delay` seconds, if the process runs then."""
        self._world.after(delay, self._run, lane, happens, *args)

    def stop(self, seconds: float) -> None:
        """The process is stopped (SIGSTOP) and goes on later."""
        self.resumes_at = self._world.now + seconds
        self._world.after(seconds, self._resume)

    def _run(self, lane: Lane, happens: Callable[..., None], *args: Any) -> None:
        if not self.alive:
            return
        if self.resumes_at > self._world.now or lane in self._stopped:
            self._stopped.setdefault(lane, deque()).append((happens, args))
            return
        self.touched = True
        happens(*args)

    def _resume(self) -> None:
        if not self.alive or self.resumes_at > self._world.now or not self._stopped:
            return
        lane = self._world.chance.choice(list(self._stopped))
        happens, args = self._stopped[lane].popleft()
        if not self._stopped[lane]:
            del self._stopped[lane]
        self._world.after(0.0, self._resume)
        self.touched = True
        happens(*args)

    def _tick(self) -> None:
        with self.core.step() as rooms:
            rooms.tick(self._world.now)
        self.after("clock", TICK, self._tick)
