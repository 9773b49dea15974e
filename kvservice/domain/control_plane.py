"""The aggregate: engines, workers, rooms, tombstones and limits.

Synchronous and pure: `now` is in seconds on any clock that never goes back. After each call the rooms that changed have
a new revision and the outboxes of their workers are marked.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kvservice.domain.changes import ChangeLog
from kvservice.domain.errors import (
    Draining,
    InvalidField,
    LimitReached,
    NotAParticipant,
    RoomNotFound,
)
from kvservice.domain.joining import check_join, check_room, check_sides, is_others, settle_sides
from kvservice.domain.lease import ExpiryQueue
from kvservice.domain.linking import Linking
from kvservice.domain.links import Link
from kvservice.domain.pages import PageLedger
from kvservice.domain.pairs import Pairs, check_replica
from kvservice.domain.policy import Policy
from kvservice.domain.registry import Registry, Worker, worker_id_of
from kvservice.domain.telling import Telling, Wake
from kvservice.domain.transfer import Room
from kvservice.domain.types import (
    CleanupItem,
    Failure,
    FailureReason,
    Join,
    PeerNews,
    Progress,
    Registration,
    Release,
    ReleaseState,
    Role,
    RoomState,
    WorkerRef,
)

Timer = tuple[Literal["room", "lease", "grace", "instance"], str | int]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Entries in each table, for tests and metrics."""

    engines: int
    workers: int
    instances: int
    rooms: int
    open_rooms: int
    pending_pages: int
    timers: int


class ControlPlane:
    """All that the service knows.

    `start` seeds epochs and revisions, which must grow over restarts: microseconds since 1970.
    """

    def __init__(self, policy: Policy, start: int, wake: Wake = lambda worker, urgent: None) -> None:
        self.policy = policy
        self.registry = Registry(policy, start)
        self.ledger = PageLedger()
        self.pairs = Pairs(self.registry)
        self.rooms: dict[int, Room] = {}
        self.changes = ChangeLog(start)
        self.draining = False
        self.open_rooms = 0
        self._telling = Telling(self.registry, self.pairs, self.ledger, wake)
        self._sequence = 0
        self._session = 0
        self._timers: ExpiryQueue[Timer] = ExpiryQueue()
        self.linking = Linking(self.registry, self.pairs)

    def sizes(self) -> Sizes:
        """Entries in each table."""
        return Sizes(
            len(self.registry.engines),
            len(self.registry.workers),
            len(self.registry.instances),
            len(self.rooms),
            self.open_rooms,
            len(self.ledger),
            len(self._timers),
        )

    # --- workers ---

    def register(self, said: Registration, now: float) -> Worker:
        """Registers a worker under a new epoch and takes its complete list of rooms.

        Raises InvalidField, EngineMismatch, StaleEpoch, LimitReached, Draining.
        """
        if self.draining:
            raise Draining("the server is shutting down")

        def replace(worker: Worker) -> None:
            message = f"another process registered as {worker.ref.worker_id}"
            self._lose(worker, FailureReason.WORKER_REPLACED, message, False, now)
            self.ledger.receiver_over(worker.peer.instance_id)

        worker_id = worker_id_of(said)
        former = self.registry.workers.get(worker_id)
        was_ready = said.engine_id in self.registry.engines and self.registry.engines[said.engine_id].ready
        worker = self.registry.register(said, now, replace)
        if former is not None and former.session:
            former.session = 0
            self._telling.wake(former, True)
        self._telling.forget(worker.peer.instance_id)  # if it was gone, it is back
        self._timers.drop(("grace", worker_id))
        self._timers.set(("lease", worker_id), worker.lease_until)
        for exited in said.exited_instances:
            self._exited(worker, exited)
        self._telling.releases(self.ledger.process_back(worker.peer.instance_id))
        self._take_rooms(worker, said.rooms, now)
        if worker.engine.ready:
            for engine_worker in [worker] if was_ready else list(worker.engine.workers.values()):
                self._telling.announce(engine_worker)
            for number in self.linking.take(said.engine_id):
                room = self.rooms[number]
                self.linking.link(room, now)
                room.settle(now)
                self._after(room, now)
        return worker

    def caller(self, ref: WorkerRef, now: float) -> Worker:
        """The worker that calls. Raises WorkerNotFound, StaleEpoch."""
        worker = self.registry.caller(ref)
        absent, worker.absent = worker.absent, []
        for number in absent:
            if number in self.rooms:
                self._release(worker, self.rooms[number], True, now)
        return worker

    def renew(self, worker: Worker, draining: bool | None, now: float) -> None:
        """Extends a lease; tells peers when `draining`, None for as it was, changed."""
        worker.lease_until = now + worker.lease_ttl
        self._timers.set(("lease", worker.ref.worker_id), worker.lease_until)
        if draining is not None and worker.draining != draining:
            worker.draining = draining
            kind = PeerNews.DRAINING if draining else PeerNews.READY
            for peer in self.pairs.peers_of(worker):
                self._telling.peer(peer, worker, kind)

    def deregister(self, ref: WorkerRef, drained: bool, now: float) -> None:
        """Removes a worker; an absent one or an older epoch is fine and removes nothing."""
        worker = self.registry.workers.get(ref.worker_id)
        if worker is None or ref.epoch != worker.ref.epoch:
            return
        message = f"worker {ref.worker_id} deregistered"
        self._lose(worker, FailureReason.WORKER_DEREGISTERED, message, drained, now)
        self.ledger.receiver_over(worker.peer.instance_id)

    def links(
        self, engine_id: str, dp_rank: int, peer_engine_id: str, peer_dp_rank: int, worker_id: str
    ) -> tuple[list[Link], list[Worker]]:
        """Links between two replicas; with `worker_id`, its own and its peers'.

        Raises InvalidField, EngineNotFound, LayoutMismatch.
        """
        engine = self.registry.engine(engine_id)
        peer = self.registry.engine(peer_engine_id, "peer_engine_id")
        check_replica(engine, dp_rank, "dp_rank")
        check_replica(peer, peer_dp_rank, "peer_dp_rank")
        links = list(self.pairs.links(engine, dp_rank, peer, peer_dp_rank))
        if not worker_id:
            return links, []
        links = [link for link in links if worker_id in (link.sender, link.receiver)]
        if not links:
            raise InvalidField("worker_id", f"must be a worker of replica {dp_rank} of {engine_id}", worker_id)
        others = sorted({link.receiver if link.sender == worker_id else link.sender for link in links})
        return links, [self.registry.workers[other] for other in others]

    # --- rooms ---

    def join(self, worker: Worker, join: Join, now: float) -> Room:
        """Joins a worker to a room, opening it if it is the first.

        Raises InvalidField, EngineNotFound, RoomNotFound, RoomReused, JoinConflict, LimitReached, Draining.
        """
        if worker.instance.is_over((join.room, join.join_id)):
            # As a new room it would forget its end, and who was told its offer then, and may still write.
            raise RoomNotFound(f"the service does not know this join of room {join.room}", room=join.room)
        check_join(self.registry, self.policy, worker, join)
        room = self.rooms.get(join.room)
        if room is not None and room.closed_at is not None:
            check_sides(room, worker, join)
            if room.turn_away(worker.peer, worker.engine.role, join, now):
                worker.instance.joins[join.room] = join.join_id
            self._after(room, now)
            self._telling.room(worker.peer, room.room, True)
            return room
        if room is None:
            room = self._open(join.room, now)
        else:
            check_sides(room, worker, join)
        room.join(worker.peer, worker.ref.epoch, worker.engine.role, join, now)
        if not room.participants[worker.ref.worker_id].released:
            worker.instance.joins[join.room] = join.join_id
        settle_sides(self.registry, room, worker, join)
        if not room.linked:
            self.linking.link(room, now)
        room.settle(now)
        self._after(room, now)
        return room

    def report(self, worker: Worker, progress: Progress, now: float) -> Room:
        """Records a worker's progress in one room. Raises RoomNotFound, NotAParticipant, InvalidField."""
        room = self.room(progress.room)
        participant = room.participants.get(worker.ref.worker_id)
        if participant is None or not participant.joined:
            raise NotAParticipant(f"worker {worker.ref.worker_id} is not in room {room.room}", room=room.room)
        for done in room.report(participant, progress, now):
            self._prove(room, done.receiver, done.sender)
        self._after(room, now)
        return room

    def room(self, number: int) -> Room:
        """A room by its number. Raises RoomNotFound, InvalidField."""
        check_room("room", number)
        room = self.rooms.get(number)
        if room is None:
            raise RoomNotFound(f"room {number} was never opened or was forgotten", room=number)
        return room

    def abort(self, number: int, message: str, now: float) -> Room:
        """Asks a room to end; one that is not open yet can no longer be. Raises InvalidField, LimitReached."""
        check_room("rooms", number)
        room = self.rooms.get(number)
        failure = Failure(FailureReason.ABORTED, message)
        if room is None:
            self._check_tombstones(self.policy.max_closed_rooms // 2)  # else whoever aborts at random closes the house
            room = self._new_room(number, now)
            room.ask(failure, now)
            room.close_if_over(now)
        else:
            room.ask(failure, now)
        self._after(room, now)
        return room

    def cleanup(self, worker: Worker, item: CleanupItem, now: float) -> Release:
        """Releases a worker's part in a room and says when its own pages are free. Raises InvalidField."""
        check_room("items.room", item.room)
        key = (item.room, item.join_id)
        room = self.rooms.get(item.room)
        participant = None if room is None else room.participants.get(worker.ref.worker_id)
        held = participant is not None and participant.joined and participant.join_id == item.join_id
        if item.last is not None and (item.last.room, item.last.join_id) != key:
            raise InvalidField("items.last", f"must be of room {item.room} and the same join", item.last.room)
        if room is None or participant is None or not held:
            if key in worker.instance.former:
                return Release(item.room, item.join_id, ReleaseState.UNKNOWN)
            if worker.instance.missed.pop(key, None):
                return self.ledger.release(key)
            if room is not None and room.closed_at is not None:  # its tombstone outlives late copies of this join too
                self._timers.set(("room", room.room), now + self.policy.retention)
            if participant is None or not participant.joined:
                self._bury(worker, item, now)
            return self.ledger.release(key)  # the room may be forgotten, what may land is not
        if item.last is not None and not participant.released:
            self.report(worker, item.last, now)
        self._release(worker, room, item.drained, now)
        return self.ledger.release(key)

    def _bury(self, worker: Worker, item: CleanupItem, now: float) -> None:
        """A join that was refused, or has not come yet, is given up: should it still come, it finds itself over."""
        room = self.rooms.get(item.room)
        if room is not None and is_others(room, worker):
            return  # who joins now is refused, and the room goes on
        if room is None:
            self._check_tombstones(self.policy.max_closed_rooms)
            room = self._new_room(item.room, now)
            room.bury(worker.peer, worker.ref.epoch, worker.engine.role, item.join_id, now)
            room.close_if_over(now)
        else:
            room.bury(worker.peer, worker.ref.epoch, worker.engine.role, item.join_id, now)
        self._after(room, now)

    # --- sessions ---

    def open_session(self, worker: Worker) -> int:
        """Opens a session, ending an older one, and marks all that the worker must be told. Returns its token."""
        self._session += 1
        worker.session = self._session
        self._timers.drop(("grace", worker.ref.worker_id))
        self._telling.everything(worker, self.changes.revision)
        return self._session

    def session_broken(self, worker: Worker, token: int, now: float) -> None:
        """A stream ended. Unless a newer one is open, the worker has a grace to come back."""
        if worker.session != token or self.registry.workers.get(worker.ref.worker_id) is not worker:
            return
        worker.session = 0
        worker.outbox = None
        self._timers.set(("grace", worker.ref.worker_id), now + self.policy.reconnect_grace)

    # --- time ---

    def next_due(self) -> float | None:
        """When `expire` has something to do next."""
        return self._timers.next_due()

    def expire(self, now: float) -> None:
        """Ends whatever has run out of time."""
        for kind, name in self._timers.pop_due(now):
            if kind == "room":
                self._room_due(self.rooms[int(name)], now)
            elif kind == "instance":
                self._instance_due(str(name), now)
            else:
                self._worker_due(kind, self.registry.workers[str(name)], now)

    def _room_due(self, room: Room, now: float) -> None:
        if room.closed_at is None:
            room.expire(now)
            self._after(room, now)
        elif room.awaits_release or any(
            self.ledger.pending((room.room, p.join_id)) for p in room.participants.values()
        ):
            self._timers.set(("room", room.room), now + self.policy.retention)
        else:
            del self.rooms[room.room]
            self.changes.forget(room)
            for participant in room.participants.values():
                instance = self.registry.instances.get(participant.instance_id)
                if instance is not None and instance.joins.get(room.room) == participant.join_id:
                    del instance.joins[room.room]
                    instance.missed[room.room, participant.join_id] = room.poll, room.failure
                worker = self.registry.workers.get(participant.worker_id)
                if worker is not None and worker.outbox is not None:
                    worker.outbox.forget(room.room)

    def _worker_due(self, kind: str, worker: Worker, now: float) -> None:
        worker_id = worker.ref.worker_id
        if kind == "lease":
            self._lose(worker, FailureReason.LEASE_EXPIRED, f"the lease of {worker_id} ended", False, now)
            return
        grace = self.policy.reconnect_grace
        message = f"the session of {worker_id} broke and did not come back within {grace:g} s"
        for number in list(worker.instance.joins):
            room = self.rooms.get(number)
            if room is not None:
                room.ask(Failure(FailureReason.SESSION_LOST, message, worker_id), now)
                self._after(room, now)

    def _instance_due(self, instance_id: str, now: float) -> None:
        instance = self.registry.instances.get(instance_id)
        if instance is None or instance.gone_at is None:
            return
        if self.ledger.owes(instance_id):
            self._timers.set(("instance", instance_id), now + self.policy.retention)
        else:
            del self.registry.instances[instance_id]
            self.ledger.receiver_over(instance_id)
            self._telling.forget(instance_id)

    # --- inside ---

    def _open(self, number: int, now: float) -> Room:
        if self.draining:
            raise Draining("the server is shutting down and takes no new rooms")
        if self.open_rooms >= self.policy.max_open_rooms:
            raise LimitReached(f"{self.policy.max_open_rooms} rooms are open", limit="max_open_rooms")
        self._check_tombstones(self.policy.max_closed_rooms)
        self.open_rooms += 1
        return self._new_room(number, now)

    def _check_tombstones(self, most: int) -> None:
        if len(self.rooms) - self.open_rooms >= most:
            raise LimitReached(f"{most} closed rooms are remembered", limit="max_closed_rooms")

    def _new_room(self, number: int, now: float) -> Room:
        self._sequence += 1
        room = Room(number, self._sequence, now, self.policy.timeouts, self.policy.vote)
        self.rooms[number] = room
        return room

    def _after(self, room: Room, now: float) -> None:
        """Draws the consequences of a change of one room."""
        grants = room.take_grants()
        for receiver, sender in grants:
            self.ledger.grant((room.room, receiver.join_id), receiver.peer, sender.peer)
        if room.close_if_over(now):
            self.open_rooms -= 1
            self.linking.forget(room.room)
        due = now + self.policy.retention if room.closed_at is not None else room.due()
        if due is None:
            self._timers.drop(("room", room.room))
        elif room.changed or room.closed_at is None:
            self._timers.set(("room", room.room), due)
        if room.changed:
            room.changed = False
            room.updated = now
            self.changes.record(room)
            urgent = bool(grants) or room.failure is not None
            for participant in room.take_touched():
                self._telling.room(participant.peer, room.room, urgent)

    def _release(self, worker: Worker, room: Room, drained: bool, now: float) -> None:
        participant = room.participants[worker.ref.worker_id]
        first = not participant.released
        room.release(participant, now)
        worker.instance.joins.pop(room.room, None)
        if worker.outbox is not None:
            worker.outbox.forget(room.room)
        if first and participant.role is Role.PREFILL:
            self._telling.releases(self.ledger.sender_released(room.room, worker.peer.instance_id, drained))
        if first and participant.role is Role.DECODE:
            self.ledger.receiver_released((room.room, participant.join_id))
        self._after(room, now)

    def _prove(self, room: Room, receiver_id: str, sender_id: str) -> None:
        receiver, sender = room.participants[receiver_id], room.participants[sender_id]
        key = (room.room, receiver.join_id)
        self._telling.releases(self.ledger.prove(key, sender.instance_id))

    def _lose(self, worker: Worker, reason: FailureReason, message: str, drained: bool, now: float) -> None:
        """A worker's registration ends: its rooms are asked to end, its peers are told."""
        worker_id, instance = worker.ref.worker_id, worker.instance
        self.registry.remove(worker, now)
        self._timers.drop(("lease", worker_id))
        self._timers.drop(("grace", worker_id))
        self._timers.set(("instance", instance.peer.instance_id), now + self.policy.retention)
        if worker.engine.engine_id not in self.registry.engines:
            self.pairs.forget(worker.engine.engine_id)
        self._telling.releases(self.ledger.process_over(instance.peer.instance_id, drained))
        for number in list(instance.joins):
            room = self.rooms.get(number)
            participant = None if room is None else room.participants.get(worker_id)
            if room is not None and participant is not None and participant.instance_id == instance.peer.instance_id:
                room.worker_gone(participant, Failure(reason, message, worker_id), now)
                self._after(room, now)
        self._telling.gone(worker)
        worker.outbox = None
        worker.session = 0
        self._telling.wake(worker, True)

    def _exited(self, caller: Worker, instance_id: str) -> None:
        """A launcher saw a former process of this rank exit: its writes are over."""
        instance = self.registry.instances.get(instance_id)
        if instance is not None and instance.gone_at is not None and instance.peer.worker_id == caller.ref.worker_id:
            self._telling.releases(self.ledger.process_over(instance_id, True))

    def _take_rooms(self, worker: Worker, told: Iterable[RoomState], now: float) -> None:
        """Takes a worker's complete list of rooms."""
        listed = {state.room: state for state in told}
        for number, state in listed.items():
            room = self.rooms.get(number)
            participant = None if room is None else room.participants.get(worker.ref.worker_id)
            if room is None or participant is None or participant.join_id != state.join_id:
                continue  # its session is told how it ended, or it never arrived: it is sent again
            worker.instance.former.discard((number, state.join_id))
            room.registered(participant, worker.ref.epoch, now)
            worker.instance.joins.setdefault(number, state.join_id)
            self._after(room, now)
            if state.poll.final:
                progress = Progress(number, state.join_id, state.poll, 0, state.failure, state.completions)
                self.report(worker, progress, now)
        told_joins = {(state.room, state.join_id) for state in listed.values()}
        worker.instance.former &= told_joins
        for key in worker.instance.missed.keys() - told_joins:
            del worker.instance.missed[key]
        worker.absent = [number for number in worker.instance.joins if number not in listed and number in self.rooms]
