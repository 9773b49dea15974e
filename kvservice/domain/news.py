"""Composes what a worker's session is told, from the newest state."""

from itertools import islice
from typing import TypeVar

from kvservice.domain.outbox import News, Outbox
from kvservice.domain.registry import Worker
from kvservice.domain.transfer import Participant, Room
from kvservice.domain.types import Peer, Role, RoomUpdate

# Bounds of one message, far below 4 MiB: an index takes at most 5 bytes, an update or a release about 100.
MAX_ITEMS = 1000
MAX_INDICES = 400_000

Key = TypeVar("Key")
Told = TypeVar("Told")


def compose(worker: Worker, outbox: Outbox, rooms: dict[int, Room]) -> News:
    """Takes one message's worth of marks. Call again while `outbox.pending`."""
    news = News(updates=_take(outbox.strangers), releases=_take(outbox.releases), peers=_take(outbox.peers))
    indices = 0
    while outbox.rooms and len(news.updates) < MAX_ITEMS and indices < MAX_INDICES:
        number = next(iter(outbox.rooms))
        del outbox.rooms[number]
        room = rooms.get(number)
        participant = None if room is None else room.participants.get(worker.ref.worker_id)
        if room is not None and participant is not None and participant.joined:
            indices += _tell_room(room, participant, worker, outbox, news)
    return news


def _take(waiting: dict[Key, Told]) -> list[Told]:
    """Takes the first that wait."""
    return [waiting.pop(key) for key in list(islice(waiting, MAX_ITEMS))]


def update_of(room: Room, participant: Participant, epoch: int) -> RoomUpdate:
    """What one participant needs to know of a room."""
    senders: tuple[Peer, ...] = ()
    if participant.role is Role.DECODE:
        known = room.senders_of(participant.worker_id)
        if all(sender.joined for sender in known):
            senders = tuple(sender.peer for sender in known)
    confirmed = participant.role is Role.PREFILL and participant.epoch == epoch
    return RoomUpdate(
        room.room,
        participant.join_id,
        room.poll,
        participant.poll,
        room.failure,
        senders,
        room.revision,
        confirmed,
    )


def _tell_room(room: Room, participant: Participant, worker: Worker, outbox: Outbox, news: News) -> int:
    """Adds what changed of one room; returns the indices that this takes."""
    indices = 0
    if participant.role is Role.PREFILL:
        offers = room.offers_to(worker.ref.worker_id)
        receivers = sum(len(offer.receivers) for offer in offers)
        if receivers != outbox.told_offers.get(room.room, 0):
            outbox.told_offers[room.room] = receivers
            if offers:
                news.offers.append((room.room, offers))
                indices = sum(len(group.indices) for offer in offers for group in offer.destination.groups)
    elif len(participant.completions) != outbox.told_completions.get(room.room, 0):
        outbox.told_completions[room.room] = len(participant.completions)
        news.completions.extend(participant.completions.values())
    update = update_of(room, participant, worker.ref.epoch)
    told = outbox.told_update.get(room.room)
    if told is None or _key(told) != _key(update):
        outbox.told_update[room.room] = update
        news.updates.append(update)
    return indices


def _key(update: RoomUpdate) -> tuple[object, ...]:
    """All but the revision, which other workers' progress moves too."""
    return (
        update.join_id,
        update.poll,
        update.own_poll,
        update.failure,
        update.senders,
        update.confirmed,
    )
