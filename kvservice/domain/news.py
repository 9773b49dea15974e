"""Composes what a worker's session is told, from the newest state."""

from itertools import islice
from typing import TypeVar

from kvservice.domain.outbox import News, Outbox
from kvservice.domain.participant import Participant
from kvservice.domain.registry import Worker
from kvservice.domain.transfer import Room
from kvservice.domain.types import Peer, Role, RoomUpdate

# Bounds of one message, far below 4 MiB, which one room more does not exceed.
MAX_ITEMS = 1000
MAX_BYTES = 2_000_000

# Bytes on the wire, at most.
INDEX_BYTES = 5
GROUP_BYTES = 100
ROOM_BYTES = 700  # an update without its failure's message, or a completion without its groups
CHARACTER_BYTES = 4

Key = TypeVar("Key")
Told = TypeVar("Told")


def compose(worker: Worker, outbox: Outbox, rooms: dict[int, Room]) -> News:
    """Takes one message's worth of marks. Call again while `outbox.pending`."""
    news = News(updates=_take(outbox.strangers), releases=_take(outbox.releases), peers=_take(outbox.peers))
    size = 0
    while outbox.rooms and len(news.updates) < MAX_ITEMS and size < MAX_BYTES:
        number = next(iter(outbox.rooms))
        del outbox.rooms[number]
        room = rooms.get(number)
        participant = None if room is None else room.participants.get(worker.ref.worker_id)
        if room is not None and participant is not None and participant.joined:
            size += _tell_room(room, participant, worker, outbox, news)
    return news


def _take(waiting: dict[Key, Told]) -> list[Told]:
    """Takes the first that wait."""
    return [waiting.pop(key) for key in list(islice(waiting, MAX_ITEMS))] if waiting else []


def update_of(room: Room, participant: Participant, epoch: int) -> RoomUpdate:
    """What one participant needs to know of a room."""
    senders: tuple[Peer, ...] = ()
    confirmed = False
    if participant.role is Role.PREFILL:
        confirmed = participant.epoch == epoch
    else:
        known = room.senders_of(participant.worker_id)
        if all(sender.joined for sender in known):
            senders = tuple([sender.peer for sender in known])
    return RoomUpdate(
        room.room,
        participant.join_id,
        room.poll,
        participant.poll,
        room.failure,
        senders,
        confirmed,
        room.revision,
    )


def _tell_room(room: Room, participant: Participant, worker: Worker, outbox: Outbox, news: News) -> int:
    """Adds what changed of one room; returns about how many bytes this takes."""
    size = 0
    if participant.role is Role.PREFILL:
        offers = room.offers_to(participant)
        if offers != outbox.told_offers.get(room.room, []):
            outbox.told_offers[room.room] = offers
            if offers:
                news.offers.append((room.room, offers))
                groups = [group for offer in offers for group in offer.destination.groups]
                size += sum(GROUP_BYTES + INDEX_BYTES * len(group.indices) for group in groups)
    elif not participant.poll.final and len(participant.completions) != outbox.told_completions.get(room.room, 0):
        outbox.told_completions[room.room] = len(participant.completions)
        news.completions.extend(participant.completions.values())
        size += sum(ROOM_BYTES + GROUP_BYTES * len(held.groups) for held in participant.completions.values())
    update = update_of(room, participant, worker.ref.epoch)
    told = outbox.told_update.get(room.room)
    if told is None or told[:-1] != update[:-1]:  # the revision moves with other workers' progress too
        outbox.told_update[room.room] = update
        news.updates.append(update)
        size += ROOM_BYTES + (CHARACTER_BYTES * len(update.failure.message) if update.failure is not None else 0)
    return size
