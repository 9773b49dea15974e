"""The stream of Watch."""

from functools import partial

from kvtransfer import v1 as pb

from kvservice.service.service import Service
from kvservice.service.watch import Changes
from kvservice.transport import answers, convert, paging
from kvservice.transport.rpc import Stream

MAX_ROOMS = 1000

PAGE = 100
"""Rooms of a message: the others have their turn in between."""


async def serve(service: Service, request: pb.WatchRequest, stream: Stream) -> None:
    """One call of the method Watch: until the caller ends it, or the service is drained."""
    full = convert.full_transfer(request.view, default=False)
    rooms = convert.room_numbers(request.rooms, 0, MAX_ROOMS)
    after = convert.past_revision(request.after_revision, service.control.changes.revision)
    with service.watch(frozenset(rooms), request.engine_id, after) as watcher:
        while True:
            await _tell(await watcher.next(), full, service, stream)


async def _tell(changes: Changes, full: bool, service: Service, stream: Stream) -> None:
    """Only the last message of several carries the revision: whoever breaks off before has not seen all."""
    left, forgotten = changes.rooms, changes.forgotten
    while True:
        wall = service.clock.wall_offset()
        transfers, more = paging.take(left, PAGE, partial(answers.transfer, full=full, wall=wall))
        left = left[len(transfers) :]
        revision = changes.revision if more is None else 0
        await stream.write(pb.WatchResponse(transfers=transfers, forgotten_rooms=forgotten, revision=revision))
        if more is None:
            return
        forgotten = []
