"""NIXL: writes land item by item, nothing calls one back, and what was in a socket when it broke may still land."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvtransfer import v1 as pb
from kvtransfer.actions import NOTIFICATION_PREFIX
from kvtransfer.polls import KVPoll
from kvtransfer.receiving import ReceiverRoom

from .config import LINGER, LINGER_AFTER_EXIT
from .memory import Item, Place
from .world import Violation, World

if TYPE_CHECKING:
    from .process import Process

Ended = Callable[[str, bool], None]
"""The end of a handle: an error (empty: every byte is there), and whether NIXL lost the peer."""


@dataclass(slots=True)
class _Landing:
    """One item on its way."""

    source: Place
    target: Place
    lands_at: float
    left: Item | None = None
    """What is in the socket, once the sender's memory is not read any more."""
    in_socket: bool = False
    over: bool = False


@dataclass(slots=True, eq=False)
class Flight:
    """One handle that was given to NIXL."""

    sender: "Process"
    receiver: str
    landings: list[_Landing]
    ended: Ended
    over: bool = False
    """Whether the handle has ended."""


class Fabric:
    """All processes' memories and what is on its way between them."""

    def __init__(self, world: World, failing: bool) -> None:
        self._world = world
        self._failing = failing
        self._flights: list[Flight] = []
        self._into: Counter[tuple[str, Place]] = Counter()
        self._out_of: Counter[tuple[str, Place]] = Counter()
        self._held: dict[tuple[str, int], list[tuple[str, bytes]]] = {}
        """Late notifications that wait for the worst moment, by receiver and room; lost if it does not come."""
        self.posting: Callable[[Process], None] = lambda sender: None
        """Told of each post, so that a fault can strike at the worst moment."""
        self.processes: dict[str, Process] = {}

    def may_land(self, instance: str, place: Place) -> bool:
        """Whether a write to this place is on its way."""
        return self._into[instance, place] > 0

    def is_read(self, instance: str, place: Place) -> bool:
        """Whether a handle that has not ended reads this place."""
        return self._out_of[instance, place] > 0

    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._flights

    # --- writes ---

    def write(self, sender: "Process", receiver: str, pairs: Sequence[tuple[Place, Place]], ended: Ended) -> None:
        """Posts a handle."""
        world = self._world
        slow = world.faulty(0.1)
        landings = [_Landing(*pair, world.now + world.between(0.0002, 1.0 if slow else 0.01)) for pair in pairs]
        flight = Flight(sender, receiver, landings, ended)
        self._flights.append(flight)
        for landing in landings:
            self._into[receiver, landing.target] += 1
            self._out_of[sender.instance_id, landing.source] += 1
            world.after(landing.lands_at - world.now, self._land, flight, landing)
        self.posting(sender)
        if self._failing and world.faulty(0.06):
            world.after(world.between(0.0, 0.01), self._fail, flight, "NIXL_ERR_BACKEND", False)

    def exited(self, process: "Process") -> None:
        """A process is gone: what it had handed to the kernel may land for a little while, the rest never does."""
        until = self._world.now + LINGER_AFTER_EXIT
        for flight in list(self._flights):
            if flight.sender is process:
                flight.over = True
                self._leave(flight, until)
                self._tidy(flight)

    def _land(self, flight: Flight, landing: _Landing) -> None:
        world = self._world
        if landing.over or world.now < landing.lands_at:
            return
        target = self.processes[flight.receiver]
        if not landing.in_socket:
            held_up = max(flight.sender.resumes_at, target.resumes_at)
            if held_up > world.now and world.odds(0.5):
                landing.lands_at = held_up + world.between(0.0, 0.01)
                world.after(landing.lands_at - world.now, self._land, flight, landing)
                return
        self._finish(flight, landing)
        if not target.alive:
            if not flight.over:
                world.after(world.between(0.05, 1.5), self._fail, flight, "NIXL_ERR_REMOTE_DISCONNECT", True)
            self._tidy(flight)
            return
        item = landing.left if landing.in_socket else flight.sender.memory.contents.get(landing.source)
        self._check_landing(target, landing.target, item)
        if landing.in_socket:
            world.seen["late landing"] += 1
        target.memory.contents[landing.target] = item
        if not flight.over and all(landing.over for landing in flight.landings):
            flight.over = True
            flight.sender.after("mover", world.between(0.0, 0.003), flight.ended, "", False)
        self._tidy(flight)

    def _check_landing(self, target: "Process", place: Place, item: Item | None) -> None:
        room = target.memory.lent.get(place)
        if room is None:
            raise Violation(6, f"{item} lands on {place} of {target.name}, which was handed back")
        if item is not None and item.room != room.room:
            raise Violation(6, f"{item} lands on {place} of {target.name}, which is lent to room {room.room}")
        if isinstance(room, ReceiverRoom) and room.poll is KVPoll.SUCCESS:
            raise Violation(1, f"{item} lands on {place} of {target.name} after its SUCCESS")

    def _fail(self, flight: Flight, error: str, disconnected: bool) -> None:
        if flight.over or not flight.sender.alive:
            return
        world = self._world
        if disconnected and flight.sender.resumes_at > world.now:
            world.after(flight.sender.resumes_at - world.now, self._fail, flight, error, disconnected)
            return
        world.seen["failed write"] += 1
        flight.over = True
        self._leave(flight, world.now + LINGER)
        flight.sender.after("mover", world.between(0.0, 0.003), flight.ended, error, disconnected)
        self._tidy(flight)

    def _leave(self, flight: Flight, until: float) -> None:
        """Nobody reads the sender's memory any more; what is in sockets lands by `until` or never."""
        world = self._world
        for landing in flight.landings:
            if landing.over:
                continue
            if not landing.in_socket:
                landing.left = flight.sender.memory.contents.get(landing.source)
                landing.in_socket = True
                self._out_of[flight.sender.instance_id, landing.source] -= 1
                landing.lands_at = until + 1 if world.odds(0.5) else world.between(world.now, until)
                world.after(landing.lands_at - world.now, self._land, flight, landing)
            if landing.lands_at > until:
                self._finish(flight, landing)

    def _finish(self, flight: Flight, landing: _Landing) -> None:
        landing.over = True
        self._into[flight.receiver, landing.target] -= 1
        if not landing.in_socket:
            self._out_of[flight.sender.instance_id, landing.source] -= 1

    def _tidy(self, flight: Flight) -> None:
        if flight.over and all(landing.over for landing in flight.landings) and flight in self._flights:
            self._flights.remove(flight)

    # --- notifications ---

    def notify(self, sender: "Process", receiver: str, payload: bytes) -> None:
        """Sends a notification, best effort."""
        world = self._world
        if self._failing and world.faulty(0.1):
            world.seen["notification lost"] += 1
            return
        delay = world.between(0.0005, 0.004)
        if self._failing and world.faulty(0.4):
            world.seen["notification late"] += 1
            if world.odds(0.7):
                room = pb.Notification.FromString(payload[len(NOTIFICATION_PREFIX) :]).completion.room
                self._held.setdefault((receiver, room), []).append((sender.instance_id, payload))
                return
            delay = world.between(0.0, 14.0)
        elif world.faulty(0.1):
            delay = world.between(0.0, 0.5)
        world.after(delay, self._arrive, sender.instance_id, receiver, payload)

    def hurry(self, receiver: str, room: int) -> None:
        """The worst moment for late notifications: the process joins a room of that number once more. They arrive."""
        for sender, payload in self._held.pop((receiver, room), ()):
            self._world.after(self._world.between(0.0, 0.01), self._arrive, sender, receiver, payload)

    def _arrive(self, sender: str, receiver: str, payload: bytes) -> None:
        process = self.processes.get(receiver)
        if process is not None and process.alive:
            process.mover.arrived(sender, payload)
