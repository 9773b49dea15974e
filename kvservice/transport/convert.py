"""Messages to values of the domain.

Raises InvalidField, with the field's path in its message, for what the domain's types cannot hold: an unknown value of
an enum, a required message that is not set, a duration that is no time span. Everything else is the domain's to judge.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from kvtransfer import v1 as pb

from kvservice.domain import types
from kvservice.domain.errors import InvalidField

MAX_DURATION = 366 * 86400.0
MAX_FAILURE_MESSAGE = 1024  # bytes, as the next
MAX_WORKER_ID = 256
MAX_ROOM = 2**63 - 1
MAX_TOLD_ROOMS = 16384

E = TypeVar("E", bound=IntEnum)

_FromWorker = (
    pb.HeartbeatRequest
    | pb.DeregisterWorkerRequest
    | pb.HandshakeRequest
    | pb.ReportRequest
    | pb.CleanupRequest
    | pb.SessionRequest
)

_INFINITY = float("inf")
_PROGRESS = {int(poll): poll for poll in (types.Poll.TRANSFERRING, types.Poll.SUCCESS, types.Poll.FAILED)}


class _WorkerView(IntEnum):
    BASIC = pb.WORKER_VIEW_BASIC
    FULL = pb.WORKER_VIEW_FULL


class _TransferView(IntEnum):
    BASIC = pb.TRANSFER_VIEW_BASIC
    FULL = pb.TRANSFER_VIEW_FULL


def enum(kind: type[E], value: int, path: str) -> E:
    """A value of an enum of the domain, whose numbers are the wire's."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidField(path, f"must be a known {kind.__name__} other than unspecified", value) from None


def seconds(duration: Duration, path: str) -> float:
    """A span of time above 0, at most a year."""
    span = duration.seconds + duration.nanos / 1e9
    if not 0 < span <= MAX_DURATION:
        raise InvalidField(path, f"must be above 0 s and at most {MAX_DURATION:.0f} s", f"{span:g} s")
    return span


def room_numbers(rooms: Iterable[int], least: int, most: int) -> list[int]:
    """The field `rooms` of a request, each named once."""
    numbers = list(dict.fromkeys(rooms))
    if not least <= len(numbers) <= most:
        raise InvalidField("rooms", f"must have {least} to {most} entries", len(numbers))
    for number in numbers:
        if not 1 <= number <= MAX_ROOM:
            raise InvalidField("rooms", "must be in [1, 2^63)", number)
    return numbers


def at_most(entries: int, most: int, path: str) -> None:
    """Refuses a batch of more than `most` entries."""
    if entries > most:
        raise InvalidField(path, f"must have at most {most} entries", entries)


def past_revision(asked: int, present: int) -> int:
    """The field `after_revision` of a request."""
    if not 0 <= asked <= present:
        raise InvalidField("after_revision", f"must be in [0, {present}]", asked)
    return asked


def full_worker(view: int) -> bool:
    """Whether a WorkerView asks for layouts; the default does not."""
    return bool(view) and enum(_WorkerView, view, "view") is _WorkerView.FULL


def full_transfer(view: int, default: bool) -> bool:
    """Whether a TransferView asks for participants."""
    return enum(_TransferView, view, "view") is _TransferView.FULL if view else default


def any_role(role: int) -> types.Role | None:
    """A filter by role; None for all."""
    return enum(types.Role, role, "role") if role else None


def polls(wanted: Iterable[int]) -> frozenset[types.Poll]:
    """A filter by poll; empty for all."""
    return frozenset(enum(types.Poll, poll, "polls") for poll in wanted)


# --- workers ---


def worker_ref(request: _FromWorker) -> types.WorkerRef:
    """The caller of a worker's call."""
    if not request.HasField("worker"):
        raise InvalidField("worker", "must be set")
    return types.WorkerRef(request.worker.worker_id, request.worker.epoch)


def draining(request: pb.HeartbeatRequest | pb.SessionRequest) -> bool | None:
    """Whether the caller says that it drains; None if it says nothing of it."""
    return request.draining if request.HasField("draining") else None


def registration(request: pb.RegisterWorkerRequest) -> types.Registration:
    for name, present in (
        ("topology", request.HasField("topology")),
        ("rank", request.HasField("rank")),
        ("layout", request.HasField("layout")),
    ):
        if not present:
            raise InvalidField(name, "must be set")
    at_most(len(request.rooms), MAX_TOLD_ROOMS, "rooms")
    shape, rank = request.topology, request.rank
    return types.Registration(
        engine_id=request.engine_id,
        role=enum(types.Role, request.role, "role"),
        topology=types.Topology(shape.tp_size, shape.pp_size, shape.dp_size),
        rank=types.Rank(rank.dp_rank, rank.pp_rank, rank.tp_rank),
        instance_id=request.instance_id,
        layout=layout(request.layout),
        nixl_metadata=request.nixl_metadata,
        lease_ttl=seconds(request.lease_ttl, "lease_ttl") if request.HasField("lease_ttl") else None,
        birth_epoch=request.birth_epoch,
        rooms=tuple(_room_state(state) for state in request.rooms),
        exited_instances=tuple(request.exited_instances),
        endpoint=request.endpoint,
        labels=dict(request.labels),
        user_agent=request.user_agent,
    )


def layout(message: pb.Layout) -> types.Layout:
    return types.Layout(
        message.model,
        tuple(_group(group) for group in message.groups),
        _region(message.scratch, "layout.scratch") if message.HasField("scratch") else None,
    )


def _group(message: pb.BufferGroup) -> types.BufferGroup:
    path = f"layout.groups[{message.name}]"
    return types.BufferGroup(
        message.name,
        enum(types.GroupKind, message.kind, f"{path}.kind"),
        message.page_tokens,
        message.allow_missing,
        tuple(_part(part, f"{path}.parts[{part.name}]") for part in message.parts),
    )


def _part(message: pb.Part, path: str) -> types.Part:
    return types.Part(
        message.name,
        message.dtype,
        enum(types.Order, message.order, f"{path}.order"),
        message.total_heads,
        message.first_head,
        message.head_count,
        message.item_bytes,
        tuple(_region(region, f"{path}.regions[{index}]") for index, region in enumerate(message.regions)),
    )


def _region(message: pb.Region, path: str) -> types.Region:
    return types.Region(
        message.layer if message.HasField("layer") else None,
        message.address,
        message.item_count,
        message.item_stride,
        enum(types.MemoryKind, message.memory, f"{path}.memory"),
        message.device,
    )


def _room_state(message: pb.RoomState) -> types.RoomState:
    return types.RoomState(
        message.room,
        message.join_id,
        enum(types.Poll, message.poll, "rooms.poll"),
        _failure(message.failure, "rooms.failure") if message.HasField("failure") else None,
        tuple(completion(held) for held in message.completions),
    )


# --- rooms ---


def handshake_join(request: pb.HandshakeRequest) -> types.Join:
    """The join of a Handshake."""
    if not request.HasField("join"):
        raise InvalidField("join", "must be set")
    return join(request.join)


def join(message: pb.Join) -> types.Join:
    return types.Join(
        message.room,
        message.join_id,
        message.peer_engine_id,
        message.peer_dp_rank if message.HasField("peer_dp_rank") else None,
        _destination(message.destination) if message.HasField("destination") else None,
        _timeouts(message.timeouts) if message.HasField("timeouts") else None,
        message.request_id,
        message.traceparent,
    )


def _destination(message: pb.Destination) -> types.Destination:
    groups = [types.GroupIndices(group.group, group.first_token, tuple(group.indices)) for group in message.groups]
    return types.Destination(message.tokens, message.prefix_tokens, tuple(groups))


def _timeouts(message: pb.Timeouts) -> types.Timeouts:
    def asked(present: bool, duration: Duration, field: str) -> float:
        return seconds(duration, f"join.timeouts.{field}") if present else _INFINITY

    return types.Timeouts(
        asked(message.HasField("bootstrapping"), message.bootstrapping, "bootstrapping"),
        asked(message.HasField("waiting_for_input"), message.waiting_for_input, "waiting_for_input"),
        asked(message.HasField("no_progress"), message.no_progress, "no_progress"),
        asked(message.HasField("total"), message.total, "total"),
    )


def progress(message: pb.Progress) -> types.Progress:
    poll = _PROGRESS.get(message.poll)
    if poll is None:
        name = enum(types.Poll, message.poll, "progress.poll").name
        raise InvalidField("progress.poll", "must be TRANSFERRING, SUCCESS or FAILED", name)
    if message.transferred_bytes < 0:
        raise InvalidField("progress.transferred_bytes", "must not be negative", message.transferred_bytes)
    return types.Progress(
        message.room,
        message.join_id,
        poll,
        message.transferred_bytes,
        _failure(message.failure, "progress.failure") if message.HasField("failure") else None,
        tuple([completion(held) for held in message.completions]),
    )


def cleanup_item(message: pb.CleanupItem) -> types.CleanupItem:
    return types.CleanupItem(
        message.room,
        message.join_id,
        progress(message.last) if message.HasField("last") else None,
        message.drained,
    )


def completion(message: pb.Completion) -> types.Completion:
    if message.bytes < 0:
        raise InvalidField("completions.bytes", "must not be negative", message.bytes)
    groups = [(group.group, _ranges(group.ranges)) for group in message.groups]
    return types.Completion(
        message.room,
        message.sender,
        message.receiver,
        message.offer_id,
        message.sender_join_id,
        tuple(groups),
        message.bytes,
    )


def _ranges(spans: Iterable[pb.Range]) -> types.Ranges:
    """Neighbours become one, so that what is kept and told does not grow with the number of pieces written."""
    ranges: list[tuple[int, int]] = []
    for span in spans:
        first, count = ranges[-1] if ranges else (0, 0)
        if count > 0 and span.count > 0 and first + count == span.first:
            ranges[-1] = first, count + span.count
        else:
            ranges.append((span.first, span.count))
    return tuple(ranges)


def _failure(message: pb.Failure, path: str) -> types.Failure:
    # Cut, not refused: a worker that fails with much to say must be heard.
    return types.Failure(
        enum(types.FailureReason, message.reason, f"{path}.reason"),
        _cut(message.message, MAX_FAILURE_MESSAGE),
        _cut(message.worker_id, MAX_WORKER_ID),
    )


def _cut(text: str, most: int) -> str:
    """The first `most` bytes of a text, less a character that would be cut in two."""
    return text.encode()[:most].decode(errors="ignore")
