"""One room, as an engine holds it."""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from kvtransfer.core import Core, boottime
from kvtransfer.polls import Failure, KVPoll
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.sending import SenderRoom

Room = TypeVar("Room", bound=SenderRoom | ReceiverRoom)


class _Handle(Generic[Room]):
    """What both ends offer. Nothing here waits for the network."""

    def __init__(self, core: Core, room: Room) -> None:
        self._core = core
        self._room: Room = room

    @property
    def room(self) -> int:
        """The room's number."""
        return self._room.room

    def poll(self) -> KVPoll:
        """This worker's own progress; FAILED when the room is, unless it already said SUCCESS, which stays.

        SUCCESS of a receiver means that its own bytes are there: an engine of several ranks acts on the least over
        them.
        """
        return self._room.shown_poll

    def room_poll(self) -> KVPoll:
        """The room's progress over all its workers, as the service told last."""
        return self._room.room_poll

    def failure(self) -> Failure | None:
        """Why the room failed, or was asked to end; None if it was not."""
        return self._room.failure

    def abort(self, message: str) -> None:
        """Asks the room to end. Nothing if this worker's part has ended."""
        with self._core.step() as rooms:
            rooms.abort(self._room, message, boottime())

    def close(self) -> None:
        """Gives this worker's part up: what has not ended is aborted.

        Pages and slots come back through `KVManager.released`, once nothing reads or writes them any more.
        """
        with self._core.step() as rooms:
            rooms.close(self._room, boottime())


class KVSender(_Handle[SenderRoom]):
    """A room of a prefill worker. Made by `KVManager.sender`."""

    def send(
        self,
        pages: Mapping[str, Sequence[int]],
        *,
        tokens: int | None = None,
        slots: Mapping[str, int] | None = None,
        ready: object | None = None,
        last: bool = False,
    ) -> None:
        """Hands over a chunk of the request, from its first token on, in order.

        Args:
            pages: page indices by paged group. They must stay as they are until `KVManager.released` names them.
            tokens: tokens that the chunk covers, a multiple of every page size unless it is the last. If None, what the
                pages hold, or for the last chunk the rest.
            slots: slot by slot group; all of them with or before the last chunk.
            ready: when the memory is written: a CUDA event, a callable that returns a bool, or None if it already is.
            last: whether this ends the request.

        Raises:
            InvalidField: names the argument and its value; nothing of the chunk is taken.
        """
        with self._core.step() as rooms:
            rooms.send(self._room, pages, tokens, slots or {}, ready, last, boottime())


class KVReceiver(_Handle[ReceiverRoom]):
    """A room of a decode worker. Made by `KVManager.receiver`."""

    def poll(self) -> KVPoll:
        """As every handle's. Looks for what has arrived itself: no other thread has to wake up for that."""
        if not self._room.poll.final and self._room.destination is not None:
            self._core.look()
        return super().poll()

    def offer(
        self,
        tokens: int,
        pages: Mapping[str, Sequence[int]],
        *,
        slots: Mapping[str, int] | None = None,
        prefix_tokens: int = 0,
    ) -> None:
        """Names where to write, once.

        Args:
            tokens: tokens of the request.
            pages: page indices by paged group, of the tokens from `prefix_tokens` on, none twice.
            slots: slot by slot group; all of them.
            prefix_tokens: leading tokens that are there already: a multiple of every page size, or all of them.

        Raises:
            InvalidField: names the argument and its value; nothing is offered.
        """
        with self._core.step() as rooms:
            rooms.offer(self._room, tokens, pages, slots or {}, prefix_tokens, boottime())
