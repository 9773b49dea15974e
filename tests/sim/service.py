"""kvservice without gRPC: the real service, servicer and streams, on a loop whose time is the world's."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest import mock

from google.rpc import status_pb2
from kvtransfer import v1 as pb

import kvservice.service.service
from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.errors import DomainError
from kvservice.domain.policy import Policy
from kvservice.service.service import Service
from kvservice.transport.servicer import Servicer
from kvservice.transport.session import serve
from kvservice.transport.statuses import status_of

from .loop import WorldLoop
from .network import Connection, Network, Pipe
from .world import World

Observer = Callable[[pb.WorkerRef | None, str, Callable[[], None]], None]
"""Wraps each call: who calls (None if it is no worker's call), what it is, and the call itself."""

_REQUESTS = {
    name: getattr(pb, f"{name}Request")
    for name in ("RegisterWorker", "DeregisterWorker", "GetLinks", "Handshake", "Report", "Cleanup", "Poll", "Abort")
}


class WorldClock:
    """The service's clock: the world's time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.now

    def wall_offset(self) -> float:
        return 0.0


class SimulatedService:
    """One life of the service. Made anew, it would be another life."""

    def __init__(self, world: World, policy: Policy, observe: Observer) -> None:
        self.world = world
        self.loop = WorldLoop(world, self._stirred)
        self._running = False
        self._touched = False
        self._calls: set[asyncio.Task[None]] = set()
        self._observer = observe
        born = SimpleNamespace(time_ns=lambda: int(world.now * 1e9), time=lambda: world.now)
        with mock.patch.object(kvservice.service.service, "time", born):
            self.service = Service(policy, 100, clock=WorldClock(world))  # type: ignore[arg-type] # same two methods
        self._servicer = Servicer(self.service, ())
        self._alarm = float("inf")

    @property
    def control(self) -> ControlPlane:
        return self.service.control

    def observe(self, ref: pb.WorkerRef | None, what: str, call: Callable[[], None]) -> None:
        """Everything that reaches the service passes here."""
        self._touched = True
        self._observer(ref, what, call)

    def handler(self, method: str) -> Callable[[bytes], bytes | status_pb2.Status]:
        """A unary method, from bytes to bytes or to an error."""

        def handle(raw: bytes) -> bytes | status_pb2.Status:
            request = _REQUESTS[method].FromString(raw)
            worker = request.worker if "worker" in request.DESCRIPTOR.fields_by_name else None
            result: list[bytes | status_pb2.Status] = []

            def call() -> None:
                try:
                    result.append(getattr(self._servicer, method)(request).SerializeToString())
                except DomainError as error:
                    self.world.note("service refuses {}: {}", method, error)
                    self.world.seen[f"refused {error.reason}"] += 1
                    result.append(status_of(error))

            self.observe(worker, method, call)
            return result[0]

        return handle

    def copies_of(self, network: Network, ref: pb.WorkerRef, batch: pb.SessionRequest) -> None:
        """What a batch carries, a simple client sends as unary calls: some of those may come late, and twice."""
        for join in batch.joins:
            network.copy(self.handler("Handshake"), pb.HandshakeRequest(worker=ref, join=join).SerializeToString())
        if batch.progress:
            request = pb.ReportRequest(worker=ref, progress=batch.progress)
            network.copy(self.handler("Report"), request.SerializeToString())
        if batch.cleanups:
            network.copy(
                self.handler("Cleanup"), pb.CleanupRequest(worker=ref, items=batch.cleanups).SerializeToString()
            )

    def accept(self, connection: Connection) -> None:
        """A worker opens a stream."""
        ServerEnd(self, connection)

    def run(self, call: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs a call that takes its time, until it ends or nobody looks any more."""
        task = self.loop.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    def close(self) -> None:
        """Nobody looks any more."""
        for call in self._calls:
            call.cancel()
        self.loop.run_ready()

    def look(self) -> None:
        """Sees to what the last step brought about: sessions with news, and the next expiry."""
        if not self._touched:
            return
        self._touched = False
        if not (self.loop.idle or self._running):
            self._running = True
            self.world.after(self.world.between(0.0, 0.002), self._run)
        due = self.control.next_due()
        if due is not None and due < self._alarm:
            self._alarm = due
            self.world.after(max(0.0, due - self.world.now) + self.world.between(0.0, 0.02), self._expire)

    def _run(self) -> None:
        self._running = False
        self.observe(None, "answers", self.loop.run_ready)

    def _stirred(self) -> None:
        self._touched = True

    def _expire(self) -> None:
        self._alarm = float("inf")
        self.observe(None, "time", self._expire_now)

    def _expire_now(self) -> None:
        with self.service.changing() as now:
            self.control.expire(now)


class ServerEnd:
    """The service's end of one stream: what the real method reads from and writes to."""

    def __init__(self, service: SimulatedService, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        self._arrived: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ref: pb.WorkerRef | None = None
        self._over = False
        connection.up = Pipe(service.world, self._received, lambda reason: self._broke())
        self._task = service.run(serve(service.service, self))  # type: ignore[arg-type] # a Stream
        self._task.add_done_callback(self._ended)

    async def read(self) -> pb.SessionRequest:
        """The next batch."""
        while not self._arrived:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return pb.SessionRequest.FromString(self._arrived.popleft())

    async def write(self, message: pb.SessionResponse) -> None:
        """What the stream writes leaves at once."""
        self._connection.down.send(message.SerializeToString())

    def _received(self, raw: bytes) -> None:
        if self._over:
            return
        self._ref = self._ref or pb.SessionRequest.FromString(raw).worker
        self._arrived.append(raw)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._service.observe(self._ref, "batch", self._service.loop.run_ready)

    def _broke(self) -> None:
        """The worker is not there any more, which ends the method."""
        self._task.cancel()
        self._service.observe(None, "end of a stream", self._service.loop.run_ready)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._over = True
        self._connection.up.cut(0.0, None)
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._connection.down.cut(0.0, None)
        elif isinstance(error, DomainError):
            world = self._service.world
            world.note("service ends the stream of {}: {}", self._ref and self._ref.worker_id, error)
            world.seen[f"refused {error.reason}"] += 1
            self._connection.down.finish(status_of(error))
        else:
            raise error
