"""One post on its way: fence, pieces, handles, end. Driven by the mover, on its thread."""

from collections import deque
from collections.abc import Callable, Iterator

from kvtransfer.actions import MoverEvents, Outcome, Post, completion_notification
from kvtransfer.connection import Connection
from kvtransfer.errors import InvalidField
from kvtransfer.nixl_agent import Handle, is_disconnect
from kvtransfer.peers import Peer
from kvtransfer.plan import PIECE_BYTES, Piece

WINDOW_BYTES = 4 * PIECE_BYTES
"""Most bytes of one post in flight: enough to keep a network busy while a piece is acknowledged."""


TELL_EVERY_S = 0.1
"""Between two signs of life of a long post."""


class PostRun:
    """A post from its submission to its end.

    Attributes:
        post: what was asked for.
        moved: bytes known to be written.
        waiting: whether it waits for its fence or its peer, rather than for NIXL.
        moving: whether the next step may bring it on at once: bytes were written in the last one, or it is the first.
    """

    post: Post
    moved: int
    waiting: bool
    moving: bool

    def __init__(self, post: Post) -> None:
        """Nothing is looked at before the first `step`."""
        self.post = post
        self.waiting = True
        self.moving = True
        self._told_at = float("-inf")
        self._fence = post.ready
        self._connection: Connection | None = None
        self._pieces: Iterator[Piece] = iter(())
        self._next: Piece | None = None
        self._flights: deque[tuple[Handle, int]] = deque()
        self.moved = 0
        self._end: Outcome | None = None
        """How it will end once nothing is in flight; None while it goes on."""
        self._error = ""
        self._disconnected = False

    @property
    def fenced(self) -> bool:
        """Whether the engine has yet to say that its items may be read."""
        return self._fence is not None

    def stop(self, outcome: Outcome, error: str, *, disconnected: bool = False) -> None:
        """Post no further piece. The first cause stays, unless bytes may be landing: FAILED outdoes it."""
        if self._end is None or (outcome is Outcome.FAILED and self._end is not Outcome.FAILED):
            self._end, self._error = outcome, error
            self._disconnected = disconnected

    def step(self, peer: Peer | None, now: float, events: MoverEvents) -> bool:
        """See what has ended and post at most one piece. True once the post has ended and that was told."""
        moved = self.moved
        self._check_flights()
        if self._end is None and self.waiting:
            self._begin(peer)
        if self._end is None and self._connection:
            self._post_piece(self._connection, events)
        if self._end is None or self._flights:
            self.moving = self.moved > moved
            if self.moving and now >= self._told_at + TELL_EVERY_S:
                self._told_at = now
                events.post_progress(self.post.post_id, self.moved)
            return False
        if self._end is Outcome.DONE and self.post.completion is not None and peer is not None:
            self.post.completion.bytes += self.moved
            peer.notify(completion_notification(self.post.completion))
        events.post_ended(self.post.post_id, self._end, self.moved, self._error, self._disconnected)
        return True

    def abandon(self, events: MoverEvents) -> None:
        """Tell the end of a post whose mover ends: the agent's deletion stops what is in flight, half done."""
        outcome = Outcome.FAILED if self._flights else Outcome.CANCELLED
        self.stop(outcome, "the mover was closed")
        events.post_ended(self.post.post_id, self._end or outcome, self.moved, self._error, self._disconnected)

    def _begin(self, peer: Peer | None) -> None:
        """Leave `waiting` once the fence and the peer allow it."""
        if self._fence is not None:
            try:
                if not _is_ready(self._fence):
                    return
            except BaseException as error:  # noqa: BLE001  the engine's code: anything may come
                self.stop(Outcome.REFUSED, f"the data-ready fence raised {error!r}")
                return
            self._fence = None
        if not any(len(items.sender) or len(items.receiver) for items in self.post.items):
            self.stop(Outcome.DONE, "")
        elif peer is None:
            self.stop(Outcome.REFUSED, f"no such peer: {self.post.receiver}")
        elif peer.error:
            self.stop(Outcome.REFUSED, peer.error)
        elif peer.ready:
            try:
                self._connection, self._pieces = peer.begin(self.post.items)
            except InvalidField as error:
                self.stop(Outcome.REFUSED, str(error))
                return
            self._next = next(self._pieces, None)
            self.waiting = False

    def _post_piece(self, connection: Connection, events: MoverEvents) -> None:
        if not connection.usable:
            self.stop(Outcome.REFUSED, f"the connection to {self.post.receiver} was lost", disconnected=True)
            return
        piece = self._next
        if piece is None or self._bytes_in_flight() + piece.nbytes > WINDOW_BYTES:
            return
        if not events.may_post(self.post.post_id):
            self.stop(Outcome.CANCELLED, "the next piece was not allowed")
            return
        try:
            handle = connection.prepare(piece)
        except Exception as error:  # noqa: BLE001  NIXL's exceptions have no root of their own
            self.stop(Outcome.REFUSED, _text(error), disconnected=is_disconnect(error))
            return
        try:
            ended = connection.post(handle)
        except Exception as error:  # noqa: BLE001
            self.stop(Outcome.FAILED, _text(error), disconnected=is_disconnect(error))
            return
        if ended:
            self.moved += piece.nbytes
        else:
            self._flights.append((handle, piece.nbytes))
        self._next = next(self._pieces, None)
        self._end_if_done()

    def _check_flights(self) -> None:
        if not self._flights or self._connection is None:
            return
        for _ in range(len(self._flights)):
            handle, nbytes = self._flights.popleft()
            try:
                if self._connection.check(handle):
                    self.moved += nbytes
                else:
                    self._flights.append((handle, nbytes))
            except Exception as error:  # noqa: BLE001  NIXL's exceptions have no root of their own
                self.stop(Outcome.FAILED, _text(error), disconnected=is_disconnect(error))
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._next is None and not self._flights and self._end is not Outcome.FAILED:
            # Also for a post that was stopped after its last piece: every byte is there.
            self._end, self._error, self._disconnected = Outcome.DONE, "", False

    def _bytes_in_flight(self) -> int:
        return sum(nbytes for _, nbytes in self._flights)


def _is_ready(fence: object) -> bool:
    if callable(fence):
        return bool(fence())
    query: Callable[[], bool] = fence.query  # type: ignore[attr-defined]  # torch.cuda.Event; if not, `error` says so
    return bool(query())


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
