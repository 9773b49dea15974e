"""What engines and routers do: open rooms in any order, send and offer when it suits them, close at any time."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from kvtransfer import v1 as pb
from kvtransfer.handles import KVReceiver, KVSender
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.sending import SenderRoom

from .cluster import Cluster
from .config import Config
from .memory import PAGE_TOKENS, Item
from .process import Held, Process, Seat
from .world import World

DURATION = 20.0
"""Seconds over which requests come."""


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt of a router."""

    attempt: int
    room: int
    decode_engine: str
    tokens: int
    prefix_tokens: int
    forgotten: bool
    """Whether an earlier attempt had this room, and the service has forgotten it."""


class Traffic:
    """Schedules all requests of a run; each rank of each engine then goes its own way."""

    def __init__(self, world: World, config: Config, cluster: Cluster) -> None:
        self._world = world
        self._config = config
        self._cluster = cluster
        self.attempts_of: defaultdict[int, set[int]] = defaultdict(set)
        """Attempts by room: more than one where a router used an id again."""
        for attempt in range(config.requests):
            world.after(world.between(0.0, DURATION), self._request, attempt)

    def _on(self, fault: str, probability: float) -> bool:
        return fault in self._config.faults and self._world.faulty(probability)

    # --- routers ---

    def _request(self, attempt: int) -> None:
        world, config = self._world, self._config
        if world.calm:
            return
        room = world.chance.getrandbits(62) + 1
        if self.attempts_of and self._on("reuse", 0.45):
            room = self._used_room()
        forgotten = room in self.attempts_of and room not in self._cluster.service().control.rooms
        self.attempts_of[room].add(attempt)
        tokens = world.chance.randint(1, 24)
        prefix = world.chance.choice((0, 0, 0, tokens, tokens // 2 // PAGE_TOKENS * PAGE_TOKENS))
        decode_engine = f"d{world.chance.randrange(config.decode_engines)}"
        if self._on("misfits", 0.2):
            decode_engine = world.chance.choice(("misfit", "p0"))
        request = Request(attempt, room, decode_engine, tokens, prefix, forgotten)
        replicas = {engine: world.chance.randrange(config.dp) for engine in ("p0", decode_engine)}
        world.note("request {}: room {} to {}, {} tokens, {} held", attempt, room, replicas, tokens, prefix)
        slow = 4.0 if world.odds(0.2) else 0.05
        for seat in self._cluster.exited:
            takes_part = seat.engine_id in replicas and seat.dp_rank == replicas[seat.engine_id]
            astray = seat.engine_id in replicas and self._on("misfits", 0.02)
            if (takes_part or astray) and not self._on("neglect", 0.1):
                world.after(world.between(0.0, slow), self._open, seat, request)
        if self._on("aborts", 0.2):
            world.after(world.between(0.0, world.chance.choice((0.02, 0.5, 4.0))), self.abort, room)

    def _used_room(self) -> int:
        """A room id of an earlier attempt, rather one that the service has forgotten."""
        world, rooms = self._world, list(self.attempts_of)
        forgotten = [room for room in rooms if room not in self._cluster.service().control.rooms]
        world.seen["room id used again"] += 1
        return world.chance.choice(forgotten if forgotten and world.odds(0.7) else rooms)

    def abort(self, room: int) -> None:
        """A router asks a room to end, open or not."""
        handle = self._cluster.service().handler("Abort")
        request = pb.AbortRequest(rooms=[room], message="the caller hung up")
        self._cluster.network.call(handle, request.SerializeToString(), lambda result: None)

    def poll(self) -> None:
        """Somebody polls all rooms there ever were, which must change nothing."""
        if self.attempts_of:
            request = pb.PollRequest(rooms=self.attempts_of)
            self._cluster.service().handler("Poll")(request.SerializeToString())

    # --- engines ---

    def _open(self, seat: Seat, request: Request) -> None:
        process = self._cluster.running.get(seat)
        if process is not None:
            process.after("engine", 0.0, self._join, process, request)

    def _join(self, process: Process, request: Request) -> None:
        world = self._world
        joined: dict[str, Any] = {
            "room": request.room,
            "join_id": world.chance.getrandbits(64) or 1,
            "joined_at": world.now,
            "request_id": f"attempt-{request.attempt}",
        }
        with process.core.step() as rooms:
            if process.core.fatal is not None or request.room in rooms.rooms:
                world.seen["refused locally"] += 1
                return
            room: SenderRoom | ReceiverRoom
            if process.seat.role == "prefill":
                peer = request.decode_engine if world.odds(0.5) else ""
                room = SenderRoom(**joined, peer_engine_id=peer, tokens=request.tokens)
            else:
                room = ReceiverRoom(**joined, peer_engine_id="p0")
            rooms.open(room)
        handle = KVSender(process.core, room) if isinstance(room, SenderRoom) else KVReceiver(process.core, room)
        held = Held(handle, room, request.attempt)
        process.held.append(held)
        world.note("{} joins room {} ({:x})", process.name, room.room, room.join_id)
        if request.forgotten:
            self._cluster.fabric.hurry(process.instance_id, room.room)
        if isinstance(handle, KVReceiver):
            self._later(process, held, 0.5, self._offer, process, held, request)
        else:
            self._later(process, held, 0.3, self._send, process, held, 0)
        if self._on("neglect", 0.12) or self._on("aborts", 0.05):
            process.after("engine", world.between(0.0, 2.5), self._close, process, held)
        if self._on("aborts", 0.1):
            process.after("engine", world.between(0.0, 2.0), self._give_up, process, held)

    def _later(self, process: Process, held: Held, most: float, happens: Any, *args: Any) -> None:
        """In a moment, or, where an engine neglects its rooms, perhaps never."""
        if self._on("neglect", 0.1):
            return
        delay = self._world.between(0.0, most) if self._world.odds(0.3) else self._world.between(0.0, 0.01)
        process.after("engine", delay, happens, *args)

    def _offer(self, process: Process, held: Held, request: Request) -> None:
        world, memory, handle = self._world, process.memory, held.handle
        if held.ending or not isinstance(handle, KVReceiver):
            return
        prefix, tokens = request.prefix_tokens, request.tokens
        count = 0 if prefix == tokens else -(-tokens // PAGE_TOKENS) - prefix // PAGE_TOKENS
        pages, slots = memory.take("kv", count, world.chance), memory.take("aux", 1, world.chance)
        if pages is None or slots is None:
            memory.untake("kv", pages or ())
            memory.untake("aux", slots or ())
            handle.abort("out of memory")
            return
        memory.lend(held.room, "kv", pages)
        memory.lend(held.room, "aux", slots)
        world.note("{} offers {} and {} for room {}", process.name, pages, slots, handle.room)
        handle.offer(tokens, {"kv": pages}, slots={"aux": slots[0]}, prefix_tokens=prefix)

    def _send(self, process: Process, held: Held, sent: int) -> None:
        world, memory, handle = self._world, process.memory, held.handle
        if held.ending or not isinstance(handle, KVSender):
            return
        room = held.room
        assert isinstance(room, SenderRoom)
        left = room.tokens - sent
        tokens = world.chance.randint(0, left // PAGE_TOKENS) * PAGE_TOKENS if world.odds(0.6) else left
        last = tokens == left
        pages = memory.take("kv", -(-tokens // PAGE_TOKENS), world.chance)
        slots = memory.take("aux", 1, world.chance) if last else []
        if pages is None or slots is None:
            memory.untake("kv", pages or ())
            memory.untake("aux", slots or ())
            handle.abort("out of memory")
            return
        memory.lend(room, "kv", pages)
        memory.lend(room, "aux", slots)
        first = sent // PAGE_TOKENS
        written = {("kv", index): Item(room.room, room.join_id, "kv", first + at) for at, index in enumerate(pages)}
        written |= {("aux", index): Item(room.room, room.join_id, "aux", 0) for index in slots}
        ready_at = world.now + (world.between(0.0, 0.5) if world.odds(0.3) else 0.0)

        def ready() -> bool:
            if world.now < ready_at:
                return False
            for place, item in written.items():
                if memory.lent.get(place) is room:
                    memory.contents[place] = item
            return True

        world.note("{} sends {} and {} for room {}{}", process.name, pages, slots, room.room, ", the last" * last)
        handle.send({"kv": pages}, slots={"aux": slots[0]} if slots else None, tokens=tokens, last=last, ready=ready)
        if not last:
            self._later(process, held, 0.5, self._send, process, held, sent + tokens)

    def ended(self, process: Process, held: Held) -> None:
        """A rank sees that its part, or the room, has ended: it closes, at once or later."""
        if not held.closing_planned:
            held.closing_planned = True
            most = self._world.chance.choice((0.0, 0.05, 0.05, 1.0, 3.0))
            process.after("engine", self._world.between(0.0, most), self._close, process, held)

    def close_all(self, process: Process) -> None:
        """The engine ends."""
        for held in process.held:
            self._close(process, held)

    def _close(self, process: Process, held: Held) -> None:
        if not held.ending:
            held.ending = True
            self._world.note("{} closes room {}", process.name, held.handle.room)
            held.handle.close()

    def _give_up(self, process: Process, held: Held) -> None:
        if not held.ending:
            self._world.note("{} aborts room {}", process.name, held.handle.room)
            held.handle.abort("given up")
