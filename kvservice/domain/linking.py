"""Finds out who takes part in a room, once both sides are known and their engines complete."""

from kvservice.domain.errors import LayoutMismatch
from kvservice.domain.pairs import Pairs
from kvservice.domain.registry import Engine, Registry
from kvservice.domain.transfer import Room
from kvservice.domain.types import Failure, FailureReason, Role, Side


class Linking:
    """Links rooms, and remembers those that wait for an engine."""

    def __init__(self, registry: Registry, pairs: Pairs) -> None:
        self._registry = registry
        self._pairs = pairs
        self._waiting: dict[str, dict[int, None]] = {}  # rooms by engine

    def __len__(self) -> int:
        return len(self._waiting)

    def link(self, room: Room, now: float) -> None:
        """Links a room, to be settled then, if that is possible by now; two engines that do not fit make it fail."""
        prefill, decode = room.prefill, room.decode
        if prefill is None or decode is None or prefill.dp_rank is None or decode.dp_rank is None:
            return
        sender, receiver = self._ready(prefill, room), self._ready(decode, room)
        if sender is None or receiver is None:
            return
        for role, engine in ((Role.PREFILL, sender), (Role.DECODE, receiver)):
            if engine.role is not role:
                message = f"role: engine {engine.engine_id} is {engine.role.name}, {role.name} is needed"
                room.ask(Failure(FailureReason.LAYOUT_MISMATCH, message), now)
                return
        try:
            wiring = self._pairs.wiring(sender, prefill.dp_rank, receiver, decode.dp_rank)
        except LayoutMismatch as mismatch:
            room.ask(Failure(FailureReason.LAYOUT_MISMATCH, mismatch.message), now)
        else:
            room.link(wiring, now)

    def _ready(self, side: Side, room: Room) -> Engine | None:
        """The engine of a side; if it is incomplete, the room waits for it."""
        engine = self._registry.engines.get(side.engine_id)
        if engine is not None and engine.ready:
            return engine
        self._waiting.setdefault(side.engine_id, {})[room.room] = None
        return None

    def take(self, engine_id: str) -> list[int]:
        """Rooms that waited for an engine; they wait no more."""
        return list(self._waiting.pop(engine_id, ()))

    def forget(self, number: int) -> None:
        """A room has closed."""
        for engine_id, waiting in list(self._waiting.items()):
            waiting.pop(number, None)
            if not waiting:
                del self._waiting[engine_id]
