"""Eight bugs, each put into the real code while a run goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from kvtransfer import v1 as pb
from kvtransfer.outgoing import JoinKey, Outgoing
from kvtransfer.polls import KVPoll
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.rooms import Rooms

from kvservice.domain.changes import ChangeLog
from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.registry import Registry, Worker
from kvservice.domain.transfer import Room
from kvservice.domain.types import Failure, Poll, WorkerRef
from kvservice.transport.servicer import Servicer

Method = Callable[..., Any]


@dataclass(frozen=True)
class Mutant:
    """A method replaced by one that is wrong, and what must notice it under which faults."""

    name: str
    owner: type
    method: str
    wrong: Callable[[Method], Method]
    """Makes the wrong method from the right one."""
    invariant: int
    noticed: str
    """In the message of the violation."""
    faults: frozenset[str]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with mock.patch.object(self.owner, self.method, self.wrong(getattr(self.owner, self.method))):
            yield


def _poll_removes(right: Method) -> Method:
    def poll(self: Servicer, request: pb.PollRequest) -> pb.PollResponse:
        answer: pb.PollResponse = right(self, request)
        for transfer in answer.transfers:
            if transfer.poll == pb.KV_POLL_SUCCESS:
                del self._service.control.rooms[transfer.room]
        return answer

    return poll


def _success_overwritten(right: Method) -> Method:
    def ask(self: Room, failure: Failure, now: float) -> None:
        if not self.poll.final:
            for receiver in self.receivers():
                if receiver.poll is Poll.SUCCESS:
                    receiver.poll = Poll.FAILED
        right(self, failure, now)

    return ask


def _first_cleanup_forgets(right: Method) -> Method:
    def release(self: ControlPlane, worker: Worker, room: Room, drained: bool, now: float) -> None:
        right(self, worker, room, drained, now)
        self._timers.drop(("room", room.room))
        if self.rooms.pop(room.room, None) is not None:
            self.changes.forget(room)

    return release


def _no_epoch_check(right: Method) -> Method:
    def caller(self: Registry, ref: WorkerRef) -> Worker:
        worker = self.workers.get(ref.worker_id)
        return worker if worker is not None else right(self, ref)

    return caller


def _any_offer(right: Method) -> Method:
    def take(self: ReceiverRoom, completion: pb.Completion, worker_id: str) -> bool:
        renamed = pb.Completion()
        renamed.CopyFrom(completion)
        renamed.offer_id = self.join_id
        return bool(right(self, renamed, worker_id))

    return take


def _revision_unchanged(right: Method) -> Method:
    def record(self: ChangeLog, room: Room) -> None:
        revision = self.revision
        right(self, room)
        if room.poll is Poll.TRANSFERRING:
            self.revision = room.revision = revision

    return record


def _handed_back_at_failed(right: Method) -> Method:
    def close(self: Rooms, room: Any, now: float) -> None:
        right(self, room, now)
        if isinstance(room, ReceiverRoom) and room.poll is KVPoll.FAILED and room.room in self.rooms:
            self._forget(room)
            self._hand_back(room)
            self._orphan(*room.key)

    return close


def _progress_left_behind(right: Method) -> Method:
    def cleanup(self: Outgoing, key: JoinKey) -> None:
        right(self, key)
        self._marks.cleanups[key] = False

    return cleanup


MUTANTS = (
    Mutant("poll removes", Servicer, "Poll", _poll_removes, 1, "Poll changed something", frozenset()),
    Mutant(
        "success overwritten",
        Room,
        "ask",
        _success_overwritten,
        1,
        "from SUCCESS to FAILED",
        frozenset({"aborts"}),
    ),
    Mutant(
        "first cleanup forgets the room",
        ControlPlane,
        "_release",
        _first_cleanup_forgets,
        1,
        "is forgotten too early",
        frozenset(),
    ),
    Mutant(
        "no epoch check",
        Registry,
        "caller",
        _no_epoch_check,
        3,
        "though its epoch is superseded",
        frozenset({"copies", "pauses"}),
    ),
    Mutant(
        "completion of another offer",
        ReceiverRoom,
        "take",
        _any_offer,
        1,
        "is SUCCESS in room",
        frozenset({"reuse", "nixl"}),
    ),
    Mutant("revision unchanged", ChangeLog, "record", _revision_unchanged, 4, "the revision went from", frozenset()),
    Mutant(
        "handed back at FAILED",
        Rooms,
        "close",
        _handed_back_at_failed,
        6,
        "",
        frozenset({"aborts", "nixl", "neglect"}),
    ),
    Mutant(
        "cleanup leaves its progress behind",
        Outgoing,
        "cleanup",
        _progress_left_behind,
        1,
        "is FAILED by",
        frozenset({"nixl", "breaks", "leaving", "copies"}),
    ),
)
