"""Whatever happens, in whatever order: each open session is told, in the end, what a new stream would be told.

A worker keeps what it was told over its streams and registrations; what was written to a stream that broke is lost.
"""

import contextlib
import random
from dataclasses import dataclass, field

import pytest

from domain.plane import Plane, destination
from kvservice.domain.errors import DomainError
from kvservice.domain.news import compose, update_of
from kvservice.domain.outbox import News
from kvservice.domain.policy import Policy
from kvservice.domain.registry import Worker
from kvservice.domain.types import (
    CleanupItem,
    Completion,
    Failure,
    FailureReason,
    Join,
    Offer,
    PeerNews,
    Poll,
    Progress,
    Rank,
    Release,
    ReleaseState,
    Role,
    RoomState,
    RoomUpdate,
    Timeouts,
)

POLICY = Policy(timeouts=Timeouts(6, 8, 4, 20), vote=1, reconnect_grace=1, lease_ttl=3, retention=5)
ENGINES = [("p", Role.PREFILL, 2), ("d", Role.DECODE, 2), ("e", Role.DECODE, 1)]


@dataclass
class Process:
    """A worker's process: its registration, what it holds, and what it has heard."""

    worker: Worker
    joins: dict[int, Join] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    """Rooms that it has cleaned up."""
    unheard: list[News] = field(default_factory=list)
    """Written to its stream, not read yet."""
    updates: dict[tuple[int, int], RoomUpdate] = field(default_factory=dict)
    offers: dict[int, list[Offer]] = field(default_factory=dict)
    completions: dict[int, dict[str, Completion]] = field(default_factory=dict)
    releases: dict[tuple[int, int], Release] = field(default_factory=dict)
    peers: dict[str, PeerNews] = field(default_factory=dict)

    def hear(self) -> None:
        """Reads what was written."""
        for news in self.unheard:
            self.updates |= {(update.room, update.join_id): update for update in news.updates}
            self.offers |= dict(news.offers)
            for completion in news.completions:
                self.completions.setdefault(completion.room, {})[completion.sender] = completion
            self.releases |= {(release.room, release.join_id): release for release in news.releases}
            self.peers |= {change.peer.instance_id: change.kind for change in news.peers}
        self.unheard.clear()


class Life:
    """Random events, each of which could happen to a real service."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.plane = Plane.__new__(Plane)
        Plane.__init__(self.plane, 0, POLICY)
        self.now = 0.0
        self.next_id = 0
        self.processes: dict[tuple[str, int], Process] = {}
        for engine_id, _, tp in ENGINES:
            for rank in range(tp):
                self.start(engine_id, rank)

    def start(self, engine_id: str, rank: int) -> None:
        """A process starts, in the place of another if there is one."""
        role, tp = next((role, tp) for name, role, tp in ENGINES if name == engine_id)
        process = Process(self.plane.enter(engine_id, role, Rank(0, 0, rank), tp, self.now))
        self.processes[engine_id, rank] = process
        self.reopen(process)

    def reopen(self, process: Process) -> None:
        """A new stream: what was on the way on the old one is lost, and what is not free yet is asked about again."""
        process.unheard.clear()
        self.plane.open_session(process.worker)
        for (room, join_id), release in list(process.releases.items()):
            if release.state in (ReleaseState.WAITING, ReleaseState.QUARANTINED):
                self.clean(process, CleanupItem(room, join_id, drained=True))

    def again(self, process: Process) -> None:
        """The process registers again, with the complete list of its rooms."""
        states = []
        for join in process.joins.values():
            update = process.updates.get((join.room, join.join_id))
            poll = update.own_poll if update is not None and update.own_poll is not None else Poll.BOOTSTRAPPING
            states.append(RoomState(join.room, join.join_id, poll if poll is not Poll.SUCCESS else Poll.TRANSFERRING))
        known = self.plane.registry.instances  # who was forgotten while it was away is not told of any more
        process.peers = {instance: kind for instance, kind in process.peers.items() if instance in known}
        process.worker = self.plane.again(process.worker, self.now, rooms=tuple(states))
        self.reopen(process)
        for join in list(process.joins.values()):
            self.say_join(process, join)

    # --- one event ---

    def step(self) -> None:
        chance = self.chance
        self.now += chance.choice((0.0, 0.0, 0.01, 0.3))
        event = chance.choice(
            ("join",) * 12 + ("report",) * 8 + ("succeed",) * 8 + ("clean",) * 4 + ("write", "read") * 6
            + ("break", "reopen", "again") * 2 + ("kill", "start", "deregister", "abort", "expire", "drain", "lapse")
        )  # fmt: skip
        with contextlib.suppress(DomainError):
            getattr(self, f"_{event}")(*chance.choice(list(self.processes.items())))
        for process in self.processes.values():
            if self.live(process):
                with contextlib.suppress(DomainError):
                    self.plane.renew(self.plane.caller(process.worker.ref, self.now), None, self.now)

    def live(self, process: Process) -> bool:
        return self.plane.registry.workers.get(process.worker.ref.worker_id) is process.worker

    def say_join(self, process: Process, join: Join) -> None:
        """As a session applies it."""
        if not process.worker.instance.is_over((join.room, join.join_id)):
            try:
                self.plane.join(self.plane.caller(process.worker.ref, self.now), join, self.now)
            except DomainError:
                if process.worker.instance.joins.get(join.room) != join.join_id:
                    process.joins.pop(join.room, None)
                    process.over.add(join.room)

    def _join(self, key: tuple[str, int], process: Process) -> None:
        room = self.chance.randint(1, 6) + int(self.now // 4) * 6
        engine = process.worker.engine
        held = process.joins.get(room)
        self.next_id += 1
        if held is None and room in process.over:
            return
        join = held or Join(room, self.next_id, peer_engine_id="p" if engine.role is Role.DECODE else "")
        if engine.role is Role.DECODE and self.chance.random() < 0.7:
            pages = [2 * room % 60, 2 * room % 60 + 1]
            join = Join(room, join.join_id, peer_engine_id="p", destination=destination(20, pages))
        process.joins[room] = join
        self.say_join(process, join)

    def _report(self, key: tuple[str, int], process: Process) -> None:
        if process.joins:
            join = self.chance.choice(list(process.joins.values()))
            failed = self.chance.random() < 0.1
            failure = Failure(FailureReason.WORKER_REPORTED, "failed") if failed else None
            poll = Poll.FAILED if failed else Poll.TRANSFERRING
            said = Progress(join.room, join.join_id, poll, self.chance.randint(0, 9), failure, ())
            self.plane.report(self.plane.caller(process.worker.ref, self.now), said, self.now)

    def _succeed(self, key: tuple[str, int], process: Process) -> None:
        """A sender has served all of its offers; a receiver holds all completions."""
        if not process.joins:
            return
        join = self.chance.choice(list(process.joins.values()))
        worker_id = process.worker.ref.worker_id
        done: list[Completion] = []
        if process.worker.engine.role is Role.PREFILL:
            for offer in process.offers.get(join.room, ()):
                for receiver, offer_id in offer.receivers:
                    whole = (("kv", ((0, 2),)), ("aux", ((0, 1),)))
                    ids = (worker_id, receiver.worker_id, offer_id, join.join_id)
                    done.append(Completion(join.room, *ids, groups=whole, bytes=1))
        else:
            done = list(process.completions.get(join.room, {}).values())
        said = Progress(join.room, join.join_id, Poll.SUCCESS, 0, None, tuple(done))
        if done:
            self.plane.report(self.plane.caller(process.worker.ref, self.now), said, self.now)

    def _clean(self, key: tuple[str, int], process: Process) -> None:
        if process.joins:
            join = process.joins[self.chance.choice(list(process.joins))]
            self.clean(process, CleanupItem(join.room, join.join_id, drained=self.chance.random() < 0.8))
            process.joins.pop(join.room, None)
            process.over.add(join.room)

    def clean(self, process: Process, item: CleanupItem) -> None:
        """As a session applies it."""
        caller = self.plane.caller(process.worker.ref, self.now)
        release = self.plane.cleanup(caller, item, self.now)
        if caller.outbox is not None:
            caller.outbox.releases[item.room, item.join_id] = release

    def _write(self, key: tuple[str, int], process: Process) -> None:
        outbox = process.worker.outbox
        if outbox is not None and outbox.pending:
            process.unheard.append(compose(process.worker, outbox, self.plane.rooms))

    def _read(self, key: tuple[str, int], process: Process) -> None:
        process.hear()

    def _break(self, key: tuple[str, int], process: Process) -> None:
        process.unheard.clear()
        self.plane.session_broken(process.worker, process.worker.session, self.now)

    def _reopen(self, key: tuple[str, int], process: Process) -> None:
        if self.live(process):
            self.reopen(process)

    def _again(self, key: tuple[str, int], process: Process) -> None:
        self.again(process)

    def _kill(self, key: tuple[str, int], process: Process) -> None:
        """Nothing more is heard of it."""
        self._break(key, process)
        del self.processes[key]
        if not self.processes:
            self.start(*key)

    def _start(self, key: tuple[str, int], process: Process) -> None:
        engine_id, _, tp = self.chance.choice(ENGINES)
        self.start(engine_id, self.chance.randrange(tp))

    def _deregister(self, key: tuple[str, int], process: Process) -> None:
        self.plane.deregister(process.worker.ref, self.chance.random() < 0.5, self.now)
        self._kill(key, process)

    def _abort(self, key: tuple[str, int], process: Process) -> None:
        self.plane.abort(self.chance.randint(1, 6) + int(self.now // 4) * 6, "aborted", self.now)

    def _expire(self, key: tuple[str, int], process: Process) -> None:
        self.plane.expire(self.now)

    def _drain(self, key: tuple[str, int], process: Process) -> None:
        self.plane.renew(self.plane.caller(process.worker.ref, self.now), self.chance.random() < 0.5, self.now)

    def _lapse(self, key: tuple[str, int], process: Process) -> None:
        """Time goes by without a sign of anybody: at most so long that all is forgotten."""
        for _ in range(self.chance.choice((1, 1, 4))):
            self.all_hear()
            self.now += self.chance.choice((1.0, 4.0, 6.0))
            self.plane.expire(self.now)

    # --- at rest ---

    def rest(self) -> None:
        """Every process comes back, with an open stream, and hears all there is."""
        for process in self.processes.values():
            if not self.live(process):
                try:
                    self.again(process)
                except DomainError:
                    continue
            elif process.worker.outbox is None:
                self.reopen(process)
        self.all_hear()

    def all_hear(self) -> None:
        """Everybody who listens is told all there is."""
        for process in self.processes.values():
            while process.worker.outbox is not None and process.worker.outbox.pending:
                process.unheard.append(compose(process.worker, process.worker.outbox, self.plane.rooms))
            process.hear()

    def lost(self) -> list[str]:
        """What some process should know and does not."""
        return [loss for process in self.processes.values() if self.live(process) for loss in self._lost_by(process)]

    def _lost_by(self, process: Process) -> list[str]:
        worker, losses = process.worker, []
        name = worker.ref.worker_id
        for join in process.joins.values():
            key = join.room, join.join_id
            told = process.updates.get(key)
            room = self.plane.rooms.get(join.room)
            participant = None if room is None else room.participants.get(name)
            if room is None or participant is None or participant.join_id != join.join_id:
                if told is None or not told.poll.final:
                    losses.append(f"{name} holds join {key}, which nobody knows, and was told {told}")
                continue
            wanted = update_of(room, participant, worker.ref.epoch)
            if room.closed_at is not None and told is not None and told.poll.final:
                continue  # nothing more can come of it
            if told is None or told._replace(revision=0) != wanted._replace(revision=0):
                losses.append(f"{name} was told {told} of {wanted}")
            offers = room.offers_to(participant) if participant.role is Role.PREFILL else []
            if offers and process.offers.get(join.room) != offers:
                losses.append(f"{name} was told {process.offers.get(join.room)} of the offers {offers}")
            if not participant.poll.final and process.completions.get(join.room, {}) != participant.completions:
                losses.append(f"{name} was told {process.completions.get(join.room)} of {participant.completions}")
        for key in self.plane.ledger.released_by(worker.peer.instance_id):
            if process.releases.get(key) != self.plane.ledger.release(key):
                losses.append(f"{name} was told {process.releases.get(key)} of {self.plane.ledger.release(key)}")
        for key, release in process.releases.items():
            if release.state in (ReleaseState.WAITING, ReleaseState.QUARANTINED) and not self.plane.ledger.pending(key):
                losses.append(f"{name} was told {release}, and the pages are free")
        live = {one.peer.instance_id for one in self.plane.registry.workers.values()}
        known = {instance: kind for instance, kind in process.peers.items() if kind is not PeerNews.GONE}
        losses += [f"{name} was not told that {instance} is gone" for instance in known.keys() - live]
        for peer in self.plane.pairs.peers_of(worker):
            wanted_kind = PeerNews.DRAINING if peer.draining else PeerNews.READY
            if known.get(peer.peer.instance_id) is not wanted_kind:
                losses.append(f"{name} was told {known.get(peer.peer.instance_id)} of {peer.ref}, {wanted_kind}")
        return losses


@pytest.mark.parametrize("seed", range(60))
def test_at_rest_every_session_was_told_all_that_it_must_know(seed: int) -> None:
    life = Life(seed)
    for _ in range(16):
        for _ in range(25):
            life.step()
        life.rest()
        assert life.lost() == []
