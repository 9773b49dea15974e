"""The network: streams keep their order, calls may be lost or come late and twice, anything may break."""

from collections.abc import Callable
from typing import Any

from google.rpc import status_pb2
from kvtransfer.errors import DeadlineExceeded, KVTransferError, ServiceUnavailable, from_status

from .config import LATEST
from .world import World

CALL_TIMEOUT = 2.0


class Pipe:
    """One direction of a connection: in order, each message after a delay; `cut` loses what has not arrived."""

    def __init__(self, world: World, deliver: Callable[[bytes], None], ended: Callable[[Any], None]) -> None:
        self._world = world
        self._deliver = deliver
        self._ended = ended
        self._last = world.now
        self._cut_at: float | None = None

    def send(self, raw: bytes) -> None:
        if self._cut_at is None:
            self._world.after(self._arrival(), self._arrive, raw)

    def stall(self, seconds: float) -> None:
        """Nothing sent from now on arrives earlier."""
        self._last = max(self._last, self._world.now + seconds)

    def cut(self, delay: float, reason: Any) -> None:
        """The reader learns of the end after `delay`; what would come later is lost."""
        if self._cut_at is None:
            self._cut_at = self._world.now + delay
            self._world.after(delay, self._ended, reason)

    def finish(self, reason: Any) -> None:
        """The reader learns of the end after it has read everything."""
        self.cut(self._arrival(), reason)

    def _arrival(self) -> float:
        world = self._world
        delay = world.between(0.0002, 0.003) if not world.faulty(0.05) else world.between(0.0, 0.5)
        self._last = max(self._last, world.now + delay)
        return self._last - world.now

    def _arrive(self, raw: bytes) -> None:
        if self._cut_at is None or self._world.now <= self._cut_at:
            self._deliver(raw)


class Connection:
    """A bidirectional stream. Each end is told once that it is over."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.up: Pipe
        self.down: Pipe

    def break_off(self) -> None:
        """The connection breaks; either end notices in its own time, the service perhaps after long."""
        world = self._world
        late = 2.5 if world.faulty(0.3) else 0.1
        self.down.cut(world.between(0.0, 0.1), None)
        self.up.cut(world.between(0.0, late), None)


class Network:
    """Calls to the service, which may be another one from one moment to the next."""

    def __init__(self, world: World, losses: bool, copies: bool) -> None:
        self._world = world
        self._loss = 0.15 if losses else 0.0
        self._copy = 0.25 if copies else 0.0

    def call(
        self,
        handle: Callable[[bytes], bytes | status_pb2.Status],
        request: bytes,
        answered: Callable[[bytes | KVTransferError], None],
    ) -> None:
        """A unary call: `answered` is called once, with the answer or the error. The call itself may arrive later."""
        world = self._world
        state = {"open": True}

        def answer(result: bytes | KVTransferError) -> None:
            if state["open"]:
                state["open"] = False
                answered(result)

        def arrive() -> None:
            result = handle(request)
            if world.faulty(self._loss):
                world.seen["answer lost"] += 1
                return
            told = from_status(result) if isinstance(result, status_pb2.Status) else result
            world.after(self._delay(), answer, told)

        world.after(CALL_TIMEOUT, answer, DeadlineExceeded("no answer in time"))
        if world.faulty(self._loss):
            world.seen["call lost"] += 1
            if world.odds(0.5):
                world.after(world.between(0.0, 0.2), answer, ServiceUnavailable("connection refused"))
        else:
            world.after(self._delay(), arrive)
        self.copy(handle, request)

    def copy(self, handle: Callable[[bytes], object], request: bytes) -> None:
        """Perhaps the call arrives once more, late; nobody waits for that answer."""
        world = self._world
        if world.faulty(self._copy):
            world.seen["late copy"] += 1
            world.after(world.between(0.0, LATEST), handle, request)

    def _delay(self) -> float:
        world = self._world
        return world.between(0.0003, 0.004) if not world.faulty(0.1) else world.between(0.0, 1.5)
