"""kvservice without gRPC and asyncio's loop: the real service, servicer and session streams, called step by step."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest import mock

from google.rpc import status_pb2
from kvtransfer import v1 as pb

import kvservice.service.service
from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.errors import DomainError, InvalidField
from kvservice.domain.policy import Policy
from kvservice.service.service import Service
from kvservice.transport import convert
from kvservice.transport.servicer import Servicer
from kvservice.transport.session import SessionStream
from kvservice.transport.statuses import status_of

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


class WorldLoop:
    """In place of asyncio's loop: its timers are the world's."""

    def __init__(self, world: World, service: Callable[[], "SimulatedService"]) -> None:
        self._world = world
        self._service = service

    def get_running_loop(self) -> "WorldLoop":
        return self

    def call_later(self, delay: float, happens: Callable[[], None]) -> "WorldTimer":
        timer = WorldTimer(happens)
        self._world.after(delay, lambda: self._service().observe(None, "answer", timer.ring))
        return timer


class WorldTimer:
    """What `call_later` returns."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens: Callable[[], None] | None = happens

    def ring(self) -> None:
        if self._happens is not None:
            self._happens()

    def cancel(self) -> None:
        self._happens = None


class SimulatedService:
    """One life of the service. Made anew, it would be another life."""

    def __init__(self, world: World, policy: Policy, observe: Observer) -> None:
        self._world = world
        self._touched = False
        self._observer = observe
        born = SimpleNamespace(time_ns=lambda: int(world.now * 1e9), time=lambda: world.now)
        with mock.patch.object(kvservice.service.service, "time", born):
            self.service = Service(policy, 100, clock=WorldClock(world))  # type: ignore[arg-type] # same two methods
        self._servicer = Servicer(self.service)
        self._ends: list[ServerEnd] = []
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
                    self._world.note("service refuses {}: {}", method, error)
                    self._world.seen[f"refused {error.reason}"] += 1
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
        self._ends.append(ServerEnd(self._world, self, connection))

    def forget(self, end: "ServerEnd") -> None:
        """A stream is over."""
        self._ends.remove(end)

    def look(self) -> None:
        """Sees to what the last step brought about: sessions with news, and the next expiry."""
        if not self._touched:
            return
        self._touched = False
        for end in self._ends:
            end.look()
        due = self.control.next_due()
        if due is not None and due < self._alarm:
            self._alarm = due
            self._world.after(max(0.0, due - self._world.now) + self._world.between(0.0, 0.02), self._expire)

    def _expire(self) -> None:
        self._alarm = float("inf")
        self.observe(None, "time", lambda: self.control.expire(self._world.now))


class ServerEnd:
    """The service's end of one stream: what `SessionStream.run` does, a message at a time."""

    def __init__(self, world: World, service: SimulatedService, connection: Connection) -> None:
        self._world = world
        self._service = service
        self._connection = connection
        self._life = contextlib.ExitStack()
        self._stream: SessionStream | None = None
        self._bell: asyncio.Event | None = None
        self._ref: pb.WorkerRef | None = None
        self._answering = False
        self._over = False
        connection.up = Pipe(world, self._received, lambda reason: self._end(None))

    def look(self) -> None:
        if self._bell is not None and self._bell.is_set() and not self._answering:
            self._answering = True
            self._world.after(self._world.between(0.0, 0.002), self._answer)

    async def write(self, message: pb.SessionResponse) -> None:
        """What the stream writes leaves at once."""
        self._connection.down.send(message.SerializeToString())

    def _received(self, raw: bytes) -> None:
        if not self._over:
            request = pb.SessionRequest.FromString(raw)
            self._ref = request.worker if request.HasField("worker") else self._ref
            self._guard("batch", lambda: self._apply(request))

    def _apply(self, request: pb.SessionRequest) -> None:
        if self._stream is None:
            session = self._life.enter_context(self._service.service.session(convert.worker_ref(request)))
            self._stream, self._bell = SessionStream(session, self), session.bell  # type: ignore[arg-type] # writes
        elif request.HasField("worker"):
            raise InvalidField("worker", "must be set in the first message only")
        assert self._bell is not None
        self._bell.set()
        self._stream._apply(request)

    def _answer(self) -> None:
        self._answering = False
        if self._over or self._stream is None or self._bell is None:
            return
        self._bell.clear()
        stream = self._stream
        self._guard("answer", lambda: _finish(stream._answer()))

    def _guard(self, what: str, call: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                call()
            except DomainError as error:
                self._world.note("service ends the stream of {}: {}", self._ref and self._ref.worker_id, error)
                self._world.seen[f"refused {error.reason}"] += 1
                self._end(status_of(error))

        self._service.observe(self._ref if what == "batch" else None, what, guarded)

    def _end(self, status: status_pb2.Status | None) -> None:
        """The stream is over, by an error of the service's or because it broke."""
        if self._over:
            return
        self._over = True
        self._connection.up.cut(0.0, None)
        if status is None:
            self._connection.down.cut(0.0, None)
        else:
            self._connection.down.finish(status)
        self._service.forget(self)
        self._service.observe(None, "end of a stream", self._life.close)


def _finish(call: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine that never has to wait."""
    try:
        call.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")
