"""What the two ends of a room have in common on a worker."""

from dataclasses import dataclass, field, replace
from typing import cast

from kvtransfer import v1 as pb
from kvtransfer.errors import InvalidField
from kvtransfer.outgoing import JoinKey
from kvtransfer.polls import Failure, KVPoll

STATE_MESSAGE = 64
"""Characters of a failure's message that are told again in the list of all rooms, which must fit one message."""


@dataclass(slots=True, kw_only=True)
class WorkerRoom:
    """One join of this worker."""

    room: int
    join_id: int
    joined_at: float
    peer_engine_id: str = ""
    request_id: str = ""
    traceparent: str = ""
    timeouts: pb.Timeouts | None = None
    poll: KVPoll = KVPoll.BOOTSTRAPPING
    """This worker's own."""
    room_poll: KVPoll = KVPoll.BOOTSTRAPPING
    failed_first: bool = False
    """The room failed before this worker's part succeeded, which it may still do: the engine goes on seeing FAILED."""
    failure: Failure | None = None
    sent: bool = False
    """The join may have reached the service."""
    accepted: bool = False
    """The service told something of this join."""
    closing: bool = False
    deadline: float = 0.0
    """When the worker gives the room up by itself, should the service be out of reach."""
    pages: dict[str, list[int]] = field(default_factory=dict)
    """As the engine gave them, by paged group."""
    slots: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> JoinKey:
        return self.room, self.join_id

    @property
    def shown_poll(self) -> KVPoll:
        """What the engine sees: its own poll; FAILED when the room is, unless it already succeeded."""
        return KVPoll.FAILED if self.failed_first else self.poll

    @property
    def ending(self) -> bool:
        """The room was asked to end, or has ended."""
        return self.failure is not None or self.room_poll.final or self.closing

    def check_open(self) -> None:
        """Pages of a closed room may have gone back already: none are added. Raises InvalidField."""
        if self.closing:
            raise InvalidField("room", f"{self.room} is closed")

    def advance(self, poll: KVPoll) -> None:
        """Polls only move forward; final ones stay."""
        if not self.poll.final and poll > self.poll:
            self.poll = poll

    def fail(self, failure: Failure) -> bool:
        """Ends this worker's part. True if it had not ended before."""
        if self.poll.final:
            return False
        self.poll = KVPoll.FAILED
        self.failure = self.failure or failure
        return True

    def update(self, update: pb.RoomUpdate) -> None:
        """Takes what the service says of the room; final polls stay."""
        self.accepted = True
        if not self.room_poll.final:
            self.room_poll = KVPoll(update.poll)
            self.failed_first = self.room_poll is KVPoll.FAILED and self.poll is not KVPoll.SUCCESS
        if update.HasField("failure") and self.failure is None:
            self.failure = Failure.from_message(update.failure)
        if update.own_poll in (pb.KV_POLL_WAITING_FOR_INPUT, pb.KV_POLL_TRANSFERRING):
            self.advance(KVPoll(update.own_poll))

    def join_message(self) -> pb.Join:
        """This join, as the service is told."""
        return pb.Join(
            room=self.room,
            join_id=self.join_id,
            peer_engine_id=self.peer_engine_id,
            timeouts=self.timeouts,
            request_id=self.request_id,
            traceparent=self.traceparent,
        )

    def progress_message(self) -> pb.Progress | None:
        """This worker's progress; None if there is none to report."""
        if self.poll in (KVPoll.BOOTSTRAPPING, KVPoll.WAITING_FOR_INPUT):
            return None
        progress = pb.Progress(room=self.room, join_id=self.join_id, poll=wire_poll(self.poll))
        if self.poll is KVPoll.FAILED and self.failure is not None:
            progress.failure.CopyFrom(self.failure.to_message())
        return progress

    def cleanup_message(self, untold: bool) -> pb.CleanupItem:
        """The release of this join, with its last progress if that is untold."""
        last = self.progress_message() if untold else None
        return pb.CleanupItem(room=self.room, join_id=self.join_id, drained=True, last=last)

    def state_message(self, now: float) -> pb.RoomState:
        """This join, as it is told when the worker registers again."""
        state = pb.RoomState(room=self.room, join_id=self.join_id, poll=wire_poll(self.poll))
        if self.room_poll.final:
            state.verdict = wire_poll(self.room_poll)
        if self.failure is not None and self.poll is not KVPoll.SUCCESS:
            state.failure.CopyFrom(replace(self.failure, message=self.failure.message[:STATE_MESSAGE]).to_message())
        state.time_left.FromNanoseconds(max(0, int((self.deadline - now) * 1e9)))
        return state


def wire_poll(poll: KVPoll) -> pb.KVPoll:
    """The generated stubs tell enums from integers; the runtime does not."""
    return cast(pb.KVPoll, int(poll))
