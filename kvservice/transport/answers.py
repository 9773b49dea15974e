"""Values of the domain to messages."""

from collections.abc import Iterable
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


def wire(value: IntEnum | None) -> Any:
    """An enum's number, which the generated stubs do not take for one."""
    return 0 if value is None else int(value)


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
        prefill=_side(value.sides.get(types.Role.PREFILL)),
        decode=_side(value.sides.get(types.Role.DECODE)),
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
    worker_id = caller.ref.worker_id
    answer = pb.HandshakeResponse(transfer=transfer(room, True, wall))
    if caller.engine.role is types.Role.PREFILL:
        answer.offers.extend(offer(value) for value in room.offers_to(worker_id))
    else:
        held = room.participants[worker_id].completions.values()
        answer.completions.extend(completion(value) for value in held)
    return answer


def offer(value: types.Offer) -> pb.Offer:
    destination = value.destination
    return pb.Offer(
        receivers=[pb.Offerer(receiver=peer(receiver), offer_id=offer_id) for receiver, offer_id in value.receivers],
        destination=pb.Destination(
            tokens=destination.tokens,
            prefix_tokens=destination.prefix_tokens,
            groups=[
                pb.GroupIndices(group=group.group, first_token=group.first_token, indices=group.indices)
                for group in destination.groups
            ],
        ),
    )


def completion(value: types.Completion) -> pb.Completion:
    return pb.Completion(
        room=value.room,
        sender=value.sender,
        receiver=value.receiver,
        offer_id=value.offer_id,
        sender_join_id=value.sender_join_id,
        groups=[
            pb.GroupRanges(group=group, ranges=[pb.Range(first=first, count=count) for first, count in ranges])
            for group, ranges in value.groups
        ],
        bytes=value.bytes,
    )


def room_update(value: types.RoomUpdate) -> pb.RoomUpdate:
    return pb.RoomUpdate(
        room=value.room,
        join_id=value.join_id,
        poll=wire(value.poll),
        own_poll=wire(value.own_poll),
        failure=failure(value.failure),
        senders=[peer(sender) for sender in value.senders],
        revision=value.revision,
        confirmed=value.confirmed,
    )


def update_for(room: Room, caller: Worker) -> pb.RoomUpdate:
    """A room as one of its workers needs to know it."""
    return room_update(update_of(room, room.participants[caller.ref.worker_id], caller.ref.epoch))


def update_for_anybody(room: Room) -> pb.RoomUpdate:
    """A room as one who takes no part may know it."""
    return pb.RoomUpdate(room=room.room, poll=wire(room.poll), failure=failure(room.failure), revision=room.revision)


def release(value: types.Release) -> pb.Release:
    return pb.Release(
        room=value.room,
        join_id=value.join_id,
        state=wire(value.state),
        waiting_for=value.waiting_for,
    )


# --- sessions ---


def news(value: News, applied: int, lease_ttl: Duration, errors: list[pb.ItemError]) -> pb.SessionResponse:
    return pb.SessionResponse(
        applied_batch=applied,
        lease_ttl=lease_ttl,
        rooms=[room_update(update) for update in value.updates],
        offers=[pb.RoomOffers(room=room, offers=[offer(one) for one in offers]) for room, offers in value.offers],
        completions=[completion(one) for one in value.completions],
        releases=[release(one) for one in value.releases],
        errors=errors,
        peers=[_peer_change(change) for change in value.peers],
    )


def _peer_change(value: types.PeerChange) -> pb.PeerChange:
    return pb.PeerChange(
        peer=peer(value.peer),
        kind=wire(value.kind),
        engine_id=value.engine_id,
        dp_rank=value.dp_rank,
        message=value.message,
    )


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
