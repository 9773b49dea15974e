"""Invariants of a worker: looked at after everything that happened in its process."""

from collections.abc import Callable

from kvtransfer.polls import KVPoll, Released
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.sending import SenderRoom

from kvservice.domain.control_plane import ControlPlane
from kvservice.domain.types import Poll

from .memory import Item, offered_places, places_of
from .nixl import Fabric
from .process import Held, Process
from .world import Violation, World


class WorkerChecks:
    """Looks at what engines see and at the contents of their pages."""

    def __init__(
        self, world: World, fabric: Fabric, control: Callable[[], ControlPlane], used_once: Callable[[int], bool]
    ) -> None:
        self._world = world
        self._fabric = fabric
        self._control = control
        self._used_once = used_once
        self._attempts: dict[int, int] = {}

    def look(self, process: Process, ended: Callable[[Process, Held], None]) -> None:
        """Checks a process in which something happened; `ended` is told of each room that has ended."""
        for held in process.held:
            self._attempts.setdefault(held.room.join_id, held.attempt)
            if not held.released:
                self._look_at(process, held)
                if held.polls[2].final and not held.closing_planned:
                    ended(process, held)
        for released in process.rooms.take_released():
            self._take_back(process, released)

    def room_ended(self, number: int) -> None:
        """The service gives its verdict: SUCCESS if every receiver holds all of it, FAILED only if one does not."""
        verdict = self._control().rooms[number]
        for participant in verdict.receivers():
            process = self._fabric.processes.get(participant.instance_id)
            room = process.rooms.rooms.get(number) if process is not None and process.alive else None
            if not isinstance(room, ReceiverRoom) or process is None or room.join_id != participant.join_id:
                continue
            if verdict.poll is Poll.SUCCESS:
                self._check_contents(process, room)
            elif participant.poll is Poll.FAILED and room.poll is KVPoll.SUCCESS:
                voted_in_time = self._world.now < verdict._vote_due
                if voted_in_time and not participant.gone:
                    raise Violation(1, f"room {number} is FAILED by {process.name}, which says SUCCESS")

    def _look_at(self, process: Process, held: Held) -> None:
        handle, room = held.handle, held.room
        polls = (room.poll, handle.room_poll(), handle.poll())
        whose = f"{process.name} in room {room.room}"
        if polls != held.polls:
            self._world.note("{} polls {}", whose, "/".join(poll.name for poll in polls))
            for old, new in zip(held.polls, polls, strict=True):
                if new is not old and (old.final or (new is not KVPoll.FAILED and new < old)):
                    raise Violation(1, f"a poll of {whose} went from {old.name} to {new.name}")
            if room.poll is KVPoll.SUCCESS and held.polls[0] is not KVPoll.SUCCESS:
                self._check_success(process, room)
            held.refused = held.refused or (polls[1].final and not room.accepted)
            held.polls = polls
        failure = handle.failure()
        if held.failure is not None and failure != held.failure:
            raise Violation(2, f"the failure of {whose} went from {held.failure} to {failure}")
        held.failure = failure
        if KVPoll.FAILED in polls and (failure is None or not failure.reason or not failure.message):
            raise Violation(2, f"{whose} failed, and says {failure}")
        self._check_verdict(process, held, polls[1])

    def _check_verdict(self, process: Process, held: Held, told: KVPoll) -> None:
        server_room = self._control().rooms.get(held.room.room)
        if not told.final or server_room is None or held.refused:
            return
        participant = server_room.participants.get(process.seat.worker_id)
        ours = participant is not None and participant.join_id == held.room.join_id
        if ours and int(server_room.poll) != int(told):
            raise Violation(
                1, f"{process.name} was told {told.name} of room {server_room.room}, which is {server_room.poll.name}"
            )

    def _check_success(self, process: Process, room: SenderRoom | ReceiverRoom) -> None:
        if isinstance(room, ReceiverRoom):
            self._check_contents(process, room)
        elif room.posts:
            raise Violation(1, f"{process.name} says SUCCESS in room {room.room} with {len(room.posts)} open posts")

    def _check_contents(self, process: Process, room: ReceiverRoom) -> None:
        """The pages hold one attempt of the sender, all of it and nothing else."""
        assert room.destination is not None
        senders = {done.sender_join_id for done in room.completions.values()}
        for place, group, position in offered_places(room):
            item = process.memory.contents.get(place)
            if item is None or (item.room, item.group, item.position) != (room.room, group, position):
                raise Violation(1, f"{process.name} is SUCCESS in room {room.room} with {item} on {place}")
            if senders and item.sender_join_id not in senders:
                raise Violation(1, f"{process.name} is SUCCESS in room {room.room} with {item}, not by {senders}")
            senders.add(item.sender_join_id)
            self._check_attempt(process, room, item)

    def _check_attempt(self, process: Process, room: ReceiverRoom, item: Item) -> None:
        mine, theirs = self._attempts.get(room.join_id), self._attempts.get(item.sender_join_id)
        if self._used_once(room.room) and mine is not None and mine != theirs:
            raise Violation(1, f"{process.name}, attempt {mine} in room {room.room}, holds attempt {theirs}")

    def _take_back(self, process: Process, released: Released) -> None:
        self._world.note("{} gets back {} of room {}", process.name, places_of(released), released.room)
        held = next((h for h in process.held if h.room.room == released.room and not h.released and h.ending), None)
        if held is None:
            raise Violation(6, f"{process.name} gets back {released}, which it had not closed")
        for place in places_of(released):
            if process.memory.lent.get(place) is not held.room:
                raise Violation(6, f"{process.name} gets back {place} of room {released.room}, which is not lent to it")
            if self._fabric.may_land(process.instance_id, place):
                raise Violation(6, f"{process.name} gets back {place} of room {released.room}: a write may still land")
            if self._fabric.is_read(process.instance_id, place):
                raise Violation(6, f"{process.name} gets back {place} of room {released.room}: it is still read")
        process.memory.give_back(places_of(released))
        held.released = True
        process.held.remove(held)
        self._world.seen["released"] += 1
