"""Whether a worker may join a room as it asks to, and which sides this settles."""

from kvservice.domain.errors import InvalidField, RoomReused
from kvservice.domain.layout import check_destination
from kvservice.domain.pairs import check_replica
from kvservice.domain.policy import Policy
from kvservice.domain.registry import Registry, Worker
from kvservice.domain.transfer import Room
from kvservice.domain.types import Join, Role

MAX_ROOM = 2**63 - 1


def check_room(field: str, number: int) -> None:
    """Raises InvalidField."""
    if not 1 <= number <= MAX_ROOM:
        raise InvalidField(field, "must be in [1, 2^63)", number)


def check_join(registry: Registry, policy: Policy, worker: Worker, join: Join) -> None:
    """What can be said without the room. Raises InvalidField, EngineNotFound."""
    check_room("join.room", join.room)
    if join.join_id == 0:
        raise InvalidField("join.join_id", "must not be 0", join.join_id)
    if len(join.request_id.encode()) > 128:
        raise InvalidField("join.request_id", "must have at most 128 bytes", join.request_id)
    if len(join.traceparent) > 64:
        raise InvalidField("join.traceparent", "must have at most 64 characters", join.traceparent)
    if worker.engine.role is Role.DECODE and not join.peer_engine_id:
        raise InvalidField("join.peer_engine_id", "must be set by a decode worker")
    if join.peer_engine_id:
        peer = registry.engine(join.peer_engine_id, "join.peer_engine_id")
        if join.peer_dp_rank is not None:
            check_replica(peer, join.peer_dp_rank, "join.peer_dp_rank")
    if join.destination is not None:
        if worker.engine.role is Role.PREFILL:
            raise InvalidField("join.destination", "must not be set by a prefill worker")
        check_destination(worker.layout, join.destination, policy.max_room_indices)


def check_sides(room: Room, worker: Worker, join: Join) -> None:
    """Raises RoomReused where the room is other engines' or replicas'."""
    engine = worker.engine
    _check_side(room, engine.role, engine.engine_id, worker.rank.dp_rank)
    if join.peer_engine_id:
        _check_side(room, engine.role.other, join.peer_engine_id, join.peer_dp_rank)


def _check_side(room: Room, role: Role, engine_id: str, dp_rank: int | None) -> None:
    held = room.side(role)
    if held is None:
        return
    replicas_differ = held.dp_rank != dp_rank and held.dp_rank is not None and dp_rank is not None
    if held.engine_id != engine_id or replicas_differ:
        raise RoomReused(
            f"room {room.room} has {role.name.lower()} engine {held.engine_id} replica {held.dp_rank}, "
            f"got {engine_id} replica {dp_rank}",
            room=room.room,
        )


def is_others(room: Room, worker: Worker) -> bool:
    """Whether a worker's side of the room is another engine's or replica's."""
    held = room.side(worker.engine.role)
    return held is not None and (
        held.engine_id != worker.engine.engine_id or held.dp_rank not in (None, worker.rank.dp_rank)
    )


def settle_sides(registry: Registry, room: Room, worker: Worker, join: Join) -> None:
    """The first joiner of a side settles its replica; one of the other side may name it."""
    role = worker.engine.role
    room.settle_side(role, worker.engine.side(worker.rank.dp_rank))
    held = room.side(role.other)
    if join.peer_engine_id and (held is None or held.dp_rank is None):
        peer = registry.engines[join.peer_engine_id]
        only = 0 if peer.topology.dp_size == 1 else None
        room.settle_side(role.other, peer.side(only if join.peer_dp_rank is None else join.peer_dp_rank))
