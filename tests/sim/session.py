"""A worker's session without gRPC: what `kvtransfer.session` does on its threads, step by step."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from google.rpc import status_pb2
from kvtransfer import v1 as pb
from kvtransfer.errors import InvalidField, KVTransferError, ServiceUnavailable, StaleEpoch, WorkerNotFound, from_status
from kvtransfer.roster import FetchLinks
from kvtransfer.session import LINGER

from .network import Connection, Network, Pipe
from .world import World

if TYPE_CHECKING:
    from .process import Process
    from .service import SimulatedService

DRAIN_TIMEOUT = 6.0


class WorkerSession:
    """Registers, keeps one stream, comes back after a break, registers again after a lapse."""

    def __init__(
        self,
        world: World,
        process: "Process",
        network: Network,
        service: Callable[[], "SimulatedService"],
        registration: pb.RegisterWorkerRequest,
    ) -> None:
        self._world = world
        self._process = process
        self._network = network
        self._service = service
        self._registration = registration
        self._ref: pb.WorkerRef | None = None
        self._lease_ttl = 0.0
        self._next_at = 0.0
        self._sends_at = float("inf")
        self._life = 0
        """Grows with each attempt and stream: what belongs to an older one is not heard."""
        self.connection: Connection | None = None

    @property
    def ref(self) -> pb.WorkerRef | None:
        """What the worker presents in its calls."""
        return self._ref

    def start(self) -> None:
        self._process.after("session", 0.0, self._register)

    # --- registering ---

    def _register(self) -> None:
        self._life += 1
        life = self._life
        request = pb.RegisterWorkerRequest()
        request.CopyFrom(self._registration)
        sent_at = self._world.now
        with self._process.core.step() as rooms:
            request.birth_epoch = rooms.birth_epoch
            request.rooms.extend(rooms.room_states(sent_at))
        handle = self._service().handler("RegisterWorker")

        def answered(result: bytes | KVTransferError) -> None:
            self._process.after("session", 0.0, self._registered, life, sent_at, result)

        self._network.call(handle, request.SerializeToString(), answered)

    def _registered(self, life: int, sent_at: float, result: bytes | KVTransferError) -> None:
        if life != self._life:
            return
        world = self._world
        if isinstance(result, InvalidField | StaleEpoch):
            world.note("{} can never register: {}", self._process.name, result)
            world.seen["replaced for good"] += 1
            with self._process.core.step() as rooms:
                self._process.core.fatal = result
                rooms.give_up(str(result))
        elif isinstance(result, KVTransferError):
            self._process.after("session", world.between(0.0, 0.5), self._register)
        else:
            answer = pb.RegisterWorkerResponse.FromString(result)
            world.note("{} registered, epoch {}", self._process.name, answer.worker.epoch)
            world.seen["registered again"] += self._ref is not None
            with self._process.core.step() as rooms:
                self._ref = answer.worker
                self._lease_ttl = answer.lease_ttl.ToNanoseconds() / 1e9
                rooms.registered(answer, sent_at, world.now)
            self._open_stream()

    # --- the stream ---

    def _open_stream(self) -> None:
        self._life += 1
        life, process = self._life, self._process
        with process.core.step() as rooms:
            rooms.stream_opened()
        connection = self.connection = Connection(self._world)
        connection.down = Pipe(
            self._world,
            lambda raw: process.after("session", 0.0, self._received, life, raw),
            lambda status: process.after("session", 0.0, self._broke, life, status),
        )
        self._service().accept(connection)
        assert self._ref is not None
        self._send(life, self._ref)
        self._keep_alive(life)

    def _send(self, life: int, worker: pb.WorkerRef | None = None) -> None:
        """One batch, unless the lease has lapsed: then the worker hangs up."""
        self._sends_at = float("inf")
        if life != self._life or self.connection is None:
            return
        with self._process.core.step() as rooms:
            fenced = rooms.fenced
            batch = None if fenced else rooms.batch(self._world.now)
        if batch is None:
            self._hang_up()
            return
        if worker is not None:
            batch.worker.CopyFrom(worker)
        self._next_at = self._world.now + self._lease_ttl / 3
        self.connection.up.send(batch.SerializeToString())
        assert self._ref is not None
        self._service().copies_of(self._network, self._ref, batch)

    def look(self) -> None:
        """There may be something to send: what is urgent at once, the rest in company."""
        outgoing = self._process.rooms.outgoing
        if self.connection is None or not outgoing.pending:
            return
        due = self._world.now + (self._world.between(0.0, 0.002) if outgoing.urgent else LINGER)
        if due < self._sends_at:
            self._sends_at = due
            self._process.after("session", due - self._world.now, self._send_due, self._life, due)

    def _send_due(self, life: int, due: float) -> None:
        if due == self._sends_at:
            self._send(life)

    def _keep_alive(self, life: int) -> None:
        if life != self._life or self.connection is None:
            return
        if self._world.now >= self._next_at:
            self._send(life)
        self._process.after("session", max(0.05, self._next_at - self._world.now), self._keep_alive, life)

    def _received(self, life: int, raw: bytes) -> None:
        if life != self._life or self.connection is None:
            return
        news = pb.SessionResponse.FromString(raw)
        for release in news.releases:
            self._world.seen[f"release {pb.Release.State.Name(release.state).removeprefix('STATE_')}"] += 1
        self._process.core.received(news)

    def _hang_up(self) -> None:
        """The worker cancels the call itself."""
        assert self.connection is not None
        self.connection.break_off()
        self._broke(self._life, None)

    def _broke(self, life: int, status: status_pb2.Status | None) -> None:
        if life != self._life or self.connection is None:
            return
        error = from_status(status) if status is not None else ServiceUnavailable("the stream broke")
        self.connection.up.cut(0.0, None)
        self.connection = None
        self._life += 1
        with self._process.core.step() as rooms:
            fenced = rooms.fenced
        self._world.note("{} lost its stream: {}{}", self._process.name, error, ", fenced" if fenced else "")
        self._world.seen["lapse"] += fenced
        self._world.seen["stream broke"] += status is None
        if fenced or isinstance(error, StaleEpoch | WorkerNotFound):
            self._world.seen[f"session ended {type(error).__name__}"] += 1
            with self._process.core.step() as rooms:
                rooms.stop_posting()
            self._await_drained(self._world.now + DRAIN_TIMEOUT)
        else:
            self._process.after("session", self._world.between(0.0, 0.3), self._open_stream)

    def _await_drained(self, until: float) -> None:
        if self._world.now < until and self._process.rooms.in_flight:
            self._process.after("session", 0.05, self._await_drained, until)
            return
        self._register()

    # --- the rest ---

    def fetch_links(self, wanted: FetchLinks) -> None:
        if self._ref is None:
            return
        request = pb.GetLinksRequest(
            engine_id=self._registration.engine_id,
            dp_rank=self._registration.rank.dp_rank,
            peer_engine_id=wanted.change.engine_id,
            peer_dp_rank=wanted.change.dp_rank,
            worker_id=self._ref.worker_id,
        )

        def answered(result: bytes | KVTransferError) -> None:
            self._process.after("session", 0.0, self._links_answered, wanted, result)

        self._network.call(self._service().handler("GetLinks"), request.SerializeToString(), answered)

    def _links_answered(self, wanted: FetchLinks, result: bytes | KVTransferError) -> None:
        with self._process.core.step() as rooms:
            if isinstance(result, KVTransferError):
                rooms.roster.failed(wanted.change.peer.instance_id, str(result), self._world.now)
            else:
                rooms.links_fetched(wanted.change, pb.GetLinksResponse.FromString(result), self._world.now)

    def leave(self) -> None:
        """Ends the stream and deregisters; the process is about to end."""
        rooms = self._process.rooms
        drained = not rooms.in_flight and not rooms.undrained
        if self.connection is not None:
            self.connection.break_off()
            self.connection = None
        self._life += 1
        if self._ref is not None and self._process.core.fatal is None:
            request = pb.DeregisterWorkerRequest(worker=self._ref, drained=drained)
            handle = self._service().handler("DeregisterWorker")
            self._network.call(handle, request.SerializeToString(), lambda result: None)
