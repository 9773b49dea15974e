"""Values of the domain to messages."""

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from kvtransfer import v1 as pb

from kvservice.domain import types
from kvservice.domain.errors import DomainError
from kvservice.domain.links import Link
from kvservice.domain.news import update_of
from kvservice.domain.outbox import News
from kvservice.domain.participant import Participant
from kvservice.domain.policy import Policy
from kvservice.domain.registry import Engine, Worker
from kvservice.domain.transfer import Room
from kvservice.transport.statuses import status_of

MESSAGE_BYTES = 4 << 20
"""No message may be larger, either way: gRPC's own default."""


wire: Callable[[IntEnum], Any] = int
"""An enum's number, which the generated stubs do not take for one."""


def duration(span: float) -> Duration:
    """From seconds."""
    whole = int(span)
    return Duration(seconds=whole, nanos=int((span - whole) * 1e9))


def timestamp(instant: float) -> Timestamp:
    """From seconds since 1970."""
    whole = int(instant)
    return Timestamp(seconds=whole, nanos=int((instant - whole) * 1e9))


def peer(value: types.Peer) -> pb.Peer:
    return pb.Peer(worker_id=value.worker_id, instance_id=value.instance_id)


def worker_ref(value: types.WorkerRef) -> pb.WorkerRef:
    return pb.WorkerRef(worker_id=value.worker_id, epoch=value.epoch)


# --- engines ---


def engine(value: Engine, full: bool, now: float) -> pb.Engine:
    """`full` brings layouts too."""
    shape = value.topology
    state = pb.ENGINE_STATE_INCOMPLETE
    if value.ready:
        state = pb.ENGINE_STATE_DRAINING if value.draining else pb.ENGINE_STATE_READY
    return pb.Engine(
        engine_id=value.engine_id,
        role=wire(value.role),
        topology=pb.Topology(tp_size=shape.tp_size, pp_size=shape.pp_size, dp_size=shape.dp_size),
        workers=[worker(value.workers[rank], full, now) for rank in sorted(value.workers)],
        state=state,
        model=value.model,
    )


def worker(value: Worker, full: bool, now: float) -> pb.Worker:
    """`full` brings the layout, never the metadata."""
    rank = value.rank
    return pb.Worker(
        ref=worker_ref(value.ref),
        rank=pb.Rank(tp_rank=rank.tp_rank, pp_rank=rank.pp_rank, dp_rank=rank.dp_rank),
        layout=layout(value.layout) if full else None,
        lease_left=duration(max(value.lease_until - now, 0.0)),
        instance_id=value.peer.instance_id,
        draining=value.draining,
        endpoint=value.endpoint,
        labels=value.labels,
        user_agent=value.user_agent,
        open_rooms=len(value.instance.joins),
    )


def layout(value: types.Layout) -> pb.Layout:
    return pb.Layout(
        model=value.model,
        groups=[_group(group) for group in value.groups],
        scratch=_region(value.scratch) if value.scratch is not None else None,
    )


def _group(value: types.BufferGroup) -> pb.BufferGroup:
    return pb.BufferGroup(
        name=value.name,
        kind=wire(value.kind),
        page_tokens=value.page_tokens,
        allow_missing=value.allow_missing,
        parts=[_part(part) for part in value.parts],
    )


def _part(value: types.Part) -> pb.Part:
    return pb.Part(
        name=value.name,
        dtype=value.dtype,
        order=wire(value.order),
        total_heads=value.total_heads,
        first_head=value.first_head,
        head_count=value.head_count,
        item_bytes=value.item_bytes,
        regions=[_region(region) for region in value.regions],
    )


def _region(value: types.Region) -> pb.Region:
    return pb.Region(
        layer=value.layer,
        address=value.address,
        item_count=value.item_count,
        item_stride=value.item_stride,
        memory=wire(value.memory),
        device=value.device,
    )


def links(
    found: Iterable[Link], peers: Iterable[Worker], workers: dict[str, Worker], now: float
) -> pb.GetLinksResponse:
    """The only answer that carries NIXL metadata."""
    answer = pb.GetLinksResponse()
    for link in found:
        answer.links.add(
            sender=peer(workers[link.sender].peer),
            receiver=peer(workers[link.receiver].peer),
            spans=[
                pb.Span(
                    group=span.group,
                    part=span.part,
                    layers=span.layers,
                    sender_first_head=span.sender_first_head,
                    receiver_first_head=span.receiver_first_head,
                    head_count=span.head_count,
                )
                for span in link.spans
            ],
        )
    for value in peers:
        message = worker(value, True, now)
        message.nixl_metadata = value.nixl_metadata
        answer.peers.append(message)
    return answer


# --- rooms ---


def transfer(value: Room, full: bool, wall: float) -> pb.Transfer:
    """`full` brings participants. `wall` added to an instant of the domain gives seconds since 1970."""
    message = pb.Transfer(
        room=value.room,
        poll=wire(value.poll),
        failure=failure(value.failure),
        prefill=_side(value.prefill),
        decode=_side(value.decode),
        tokens=value.tokens,
        request_id=value.request_id,
        traceparent=value.traceparent,
        revision=value.revision,
        create_time=timestamp(value.opened + wall),
        update_time=timestamp(value.updated + wall),
    )
    if full:
        message.participants.extend(
            _participant(value.participants[worker_id], wall) for worker_id in sorted(value.participants)
        )
    return message


def _participant(value: Participant, wall: float) -> pb.Participant:
    return pb.Participant(
        worker=pb.WorkerRef(worker_id=value.worker_id, epoch=value.epoch),
        role=wire(value.role),
        poll=wire(value.poll),
        transferred_bytes=value.transferred_bytes,
        released=value.released,
        update_time=timestamp(value.updated + wall),
    )


def _side(value: types.Side | None) -> pb.Side | None:
    return None if value is None else pb.Side(engine_id=value.engine_id, dp_rank=value.dp_rank)


def failure(value: types.Failure | None) -> pb.Failure | None:
    if value is None:
        return None
    return pb.Failure(reason=wire(value.reason), message=value.message, worker_id=value.worker_id)


def handshake(room: Room, caller: Worker, wall: float) -> pb.HandshakeResponse:
    """What a worker that joined a room may know of it."""
    participant = room.participants[caller.ref.worker_id]
    answer = pb.HandshakeResponse(transfer=transfer(room, True, wall))
    if caller.engine.role is types.Role.PREFILL:
        for offer in room.offers_to(participant):
            _fill_offer(answer.offers.add(), offer)
    else:
        for held in participant.completions.values():
            _fill_completion(answer.completions.add(), held)
    return answer


# A message of a session is filled from the outside to the inside: a message that is made and then put into another is
# copied, and so slower by a factor of three.


def _fill_offer(message: pb.Offer, value: types.Offer) -> None:
    for receiver, offer_id in value.receivers:
        offerer = message.receivers.add(offer_id=offer_id)
        _fill_peer(offerer.receiver, receiver)
    destination, told = value.destination, message.destination
    told.tokens = destination.tokens
    told.prefix_tokens = destination.prefix_tokens
    for group in destination.groups:
        told.groups.add(group=group.group, first_token=group.first_token, indices=group.indices)


def _fill_completion(message: pb.Completion, value: types.Completion) -> None:
    message.room = value.room
    message.sender = value.sender
    message.receiver = value.receiver
    message.offer_id = value.offer_id
    message.sender_join_id = value.sender_join_id
    message.bytes = value.bytes
    for group, ranges in value.groups:
        told = message.groups.add(group=group).ranges
        for first, count in ranges:
            told.add(first=first, count=count)


def _fill_update(message: pb.RoomUpdate, value: types.RoomUpdate) -> None:
    message.room = value.room
    message.join_id = value.join_id
    message.poll = wire(value.poll)
    if value.own_poll is not None:
        message.own_poll = wire(value.own_poll)
    message.revision = value.revision
    message.confirmed = value.confirmed
    for sender in value.senders:
        _fill_peer(message.senders.add(), sender)
    if (told := failure(value.failure)) is not None:
        message.failure.CopyFrom(told)


def _fill_peer(message: pb.Peer, value: types.Peer) -> None:
    message.worker_id = value.worker_id
    message.instance_id = value.instance_id


def update_for(room: Room, caller: Worker) -> pb.RoomUpdate:
    """A room as one of its workers needs to know it."""
    message = pb.RoomUpdate()
    _fill_update(message, update_of(room, room.participants[caller.ref.worker_id], caller.ref.epoch))
    return message


def update_for_anybody(room: Room) -> pb.RoomUpdate:
    """A room as one who takes no part may know it."""
    return pb.RoomUpdate(room=room.room, poll=wire(room.poll), failure=failure(room.failure), revision=room.revision)


def release(value: types.Release) -> pb.Release:
    message = pb.Release()
    _fill_release(message, value)
    return message


def _fill_release(message: pb.Release, value: types.Release) -> None:
    message.room = value.room
    message.join_id = value.join_id
    message.state = wire(value.state)
    message.waiting_for.extend(value.waiting_for)


# --- sessions ---


def news(value: News, applied: int, lease_ttl: Duration, errors: list[pb.ItemError]) -> pb.SessionResponse:
    message = pb.SessionResponse(applied_batch=applied, lease_ttl=lease_ttl)
    for update in value.updates:
        _fill_update(message.rooms.add(), update)
    for room, offers in value.offers:
        told = message.offers.add(room=room).offers
        for offer in offers:
            _fill_offer(told.add(), offer)
    for completion in value.completions:
        _fill_completion(message.completions.add(), completion)
    for release in value.releases:
        _fill_release(message.releases.add(), release)
    for change in value.peers:
        _fill_peer_change(message.peers.add(), change)
    if errors:
        message.errors.extend(errors)
    return message


def _fill_peer_change(message: pb.PeerChange, value: types.PeerChange) -> None:
    _fill_peer(message.peer, value.peer)
    message.kind = wire(value.kind)
    message.engine_id = value.engine_id
    message.dp_rank = value.dp_rank
    message.message = value.message


def item_error(batch: int, kind: pb.ItemError.Kind, room: int, error: DomainError) -> pb.ItemError:
    return pb.ItemError(batch=batch, kind=kind, room=room, error=status_of(error))


# --- the server ---


def limits(policy: Policy) -> pb.Limits:
    """Without `quarantine`: only proof gives pages back."""
    timeouts = policy.timeouts
    return pb.Limits(
        open_rooms=policy.max_open_rooms,
        room_indices=policy.max_room_indices,
        message_bytes=MESSAGE_BYTES,
        max_lease_ttl=duration(policy.max_lease_ttl),
        timeouts=pb.Timeouts(
            bootstrapping=duration(timeouts.bootstrapping),
            waiting_for_input=duration(timeouts.waiting_for_input),
            no_progress=duration(timeouts.no_progress),
            total=duration(timeouts.total),
        ),
        retention=duration(policy.retention),
        vote=duration(policy.vote),
        reconnect_grace=duration(policy.reconnect_grace),
    )
