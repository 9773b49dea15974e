"""The control plane in an asyncio loop: it is told the time, ended things end by themselves, and who waits is woken."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Iterator

from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.errors import Draining, LimitReached
from kvservice.domain.policy import Policy
from kvservice.domain.registry import Engine, Worker
from kvservice.domain.transfer import Room
from kvservice.domain.types import CleanupItem, Join, Poll, Progress, Registration, Release, Role, WorkerRef
from kvservice.service.bell import Bell
from kvservice.service.clock import TICK, Clock
from kvservice.service.session import Session
from kvservice.service.watch import Watcher

_log = logging.getLogger(__name__)


class Changing:
    """The one context of all calls that may change something: to make a generator for each takes too long."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    def __enter__(self) -> float:
        return self._service.clock.now()

    def __exit__(self, *raised: object) -> None:
        self._service.changed()


class Service:
    """All calls, for one event loop. `run` must be running beside them.

    Methods raise what the domain raises for the same call, and never wait.
    """

    def __init__(self, policy: Policy, max_watches: int, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.control = ControlPlane(policy, time.time_ns() // 1000, self._ring)
        self.server_id = str(uuid.uuid4())
        self.started = time.time()
        self.stopping = False
        self._max_watches = max_watches
        self._watchers: set[Watcher] = set()
        self._watchers_of: dict[int, set[Watcher]] = {}  # by room, those of certain rooms
        self._published = self.control.changes.revision
        self._bells: dict[int, Bell] = {}  # of open sessions, by epoch
        self._idle = asyncio.Event()
        self._alarm = asyncio.Event()
        self._alarm_due = 0.0
        self._changing = Changing(self)

    # --- running ---

    async def run(self) -> None:
        """Ends what has run out of time, for ever. Looks at the clock every TICK, so that a stop is noticed."""
        while True:
            await asyncio.sleep(0)  # input that has arrived is older than any deadline
            with self.changing() as now:
                try:
                    self.control.expire(now)
                except Exception:  # noqa: BLE001 - time goes on for the others
                    _log.exception("something that ran out of time could not be ended")
            due = self.control.next_due()
            self._alarm_due = min(now + TICK, now + TICK if due is None else due)
            self._alarm.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._alarm.wait(), self._alarm_due - self.clock.now())

    def changing(self) -> "Changing":
        """For a call that may change something: `with` gives it the time, and in the end sees to who waits for that."""
        return self._changing

    def changed(self) -> None:
        """Sees to who waits for a change."""
        if self._published != self.control.changes.revision:
            self._publish()
        if self.control.draining and not self.control.open_rooms:
            self._idle.set()
        due = self.control.next_due()
        if due is not None and due < self._alarm_due:
            self._alarm.set()

    def _publish(self) -> None:
        """Wakes those who watch what changed, and nobody else: a router may watch each of its rooms by itself."""
        changes, before = self.control.changes, self._published
        self._published = changes.revision
        for watcher in self._watchers:
            if not watcher.rooms:
                watcher.bell.set()
        if self._watchers_of:
            numbers = [room.room for room in changes.since(before)]
            numbers += [forgotten.room for forgotten in changes.forgotten_since(before)]
            for number in numbers:
                for watcher in self._watchers_of.get(number, ()):
                    watcher.bell.set()

    def drain(self) -> None:
        """No new workers and rooms from now on; watches end."""
        with self.changing():
            self.control.draining = True
        for watcher in self._watchers:
            watcher.bell.set()

    async def idle(self) -> None:
        """Waits until the service is drained and no room is open."""
        await self._idle.wait()

    def stop(self) -> None:
        """Sessions end."""
        self.stopping = True
        for bell in self._bells.values():
            bell.ring()

    # --- workers ---

    def register(self, said: Registration) -> Worker:
        with self.changing() as now:
            return self.control.register(said, now)

    def heartbeat(self, ref: WorkerRef, draining: bool | None) -> Worker:
        with self.changing() as now:
            worker = self.control.caller(ref, now)
            self.control.renew(worker, draining, now)
            return worker

    def deregister(self, ref: WorkerRef, drained: bool) -> None:
        with self.changing() as now:
            self.control.deregister(ref, drained, now)

    def engines(self, role: Role | None, model: str, after: str) -> Iterator[Engine]:
        """Engines of a role (any if None) and a model (any if empty), by id, after one."""
        for engine_id, engine in sorted(self.control.registry.engines.items()):
            if engine_id > after and role in (None, engine.role) and model in ("", engine.model):
                yield engine

    # --- rooms ---

    def join(self, ref: WorkerRef, join: Join) -> tuple[Worker, Room]:
        with self.changing() as now:
            worker = self.control.caller(ref, now)
            return worker, self.control.join(worker, join, now)

    def caller(self, ref: WorkerRef) -> Worker:
        """The worker that calls, for calls of several items."""
        with self.changing() as now:
            return self.control.caller(ref, now)

    def report(self, worker: Worker, progress: Progress) -> Room:
        with self.changing() as now:
            return self.control.report(worker, progress, now)

    def cleanup(self, worker: Worker, item: CleanupItem) -> Release:
        with self.changing() as now:
            return self.control.cleanup(worker, item, now)

    def abort(self, room: int, message: str) -> Room:
        with self.changing() as now:
            return self.control.abort(room, message, now)

    def transfers(self, engine_id: str, polls: frozenset[Poll], request_id: str, before: int | None) -> Iterator[Room]:
        """Rooms of an engine, with one of the polls, of a request (any if empty), opened before one; newest first."""
        for room in reversed(self.control.rooms.values()):
            if (
                (before is None or room.sequence < before)
                and request_id in ("", room.request_id)
                and (not polls or room.poll in polls)
                and (not engine_id or engine_id in room.engines)
            ):
                yield room

    # --- streams ---

    @contextlib.contextmanager
    def session(self, ref: WorkerRef) -> Iterator[Session]:
        """A worker's stream. Ends an older one of the worker; once it ends, the worker has a grace to come back."""
        with self.changing() as now:
            worker = self.control.caller(ref, now)
            older = self._bells.get(ref.epoch)
            bell = self._bells[ref.epoch] = Bell()
            session = Session(self, worker, self.control.open_session(worker), bell)
        if older is not None:
            older.ring()
        try:
            yield session
        finally:
            bell.silence()
            if self._bells.get(ref.epoch) is bell:
                del self._bells[ref.epoch]
            with self.changing() as now:
                self.control.session_broken(worker, session.token, now)

    @contextlib.contextmanager
    def watch(self, rooms: frozenset[int], engine_id: str, after: int) -> Iterator[Watcher]:
        """Follows rooms; see Watcher. Raises LimitReached, Draining."""
        if self.control.draining:
            raise Draining("the server is shutting down")
        if len(self._watchers) >= self._max_watches:
            raise LimitReached(f"{self._max_watches} watches are open", limit="max_watches")
        watcher = Watcher(self.control, rooms, engine_id, after)
        self._watchers.add(watcher)
        for number in rooms:
            self._watchers_of.setdefault(number, set()).add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            for number in rooms:
                self._watchers_of[number].discard(watcher)
                if not self._watchers_of[number]:
                    del self._watchers_of[number]

    def _ring(self, worker: Worker, urgent: bool) -> None:
        bell = self._bells.get(worker.ref.epoch)
        if bell is not None and urgent:
            bell.ring()
        elif bell is not None:
            bell.ring_soon()
