"""A peer's NIXL agent, the lists prepared for it, and the writes to it that have not ended."""

from collections.abc import Callable, Sequence

from kvtransfer.nixl_agent import Handle, NixlAgent, is_disconnect
from kvtransfer.plan import Lane, Piece


class Connection:
    """From `add_remote_agent` to `remove_remote_agent`.

    Attributes:
        usable: False once NIXL lost the peer, or nothing more is to be written to it. NIXL then refuses its lists for
            good: only a new connection helps.
    """

    usable: bool

    def __init__(self, agent: NixlAgent, name: str, metadata: bytes, lanes: Sequence[Lane]) -> None:
        """Load the peer's metadata and prepare `lanes`; blocks for 8 to 18 ms (measured, first peer).

        Raises:
            Exception: whatever NIXL raises; nothing is left behind then.
        """
        self.usable = True
        self._agent = agent
        self._name = name
        self._lists: list[tuple[Handle, Handle]] = []
        self._open: list[Handle] = []
        agent.add_remote(metadata, name)
        try:
            for lane in lanes:
                local = agent.prepare_local(lane.sender_table, lane.sender_memory)
                remote = agent.prepare_remote(name, lane.receiver_table, lane.receiver_memory)
                self._lists.append((local, remote))
        except Exception:
            self.close()
            raise

    @property
    def open_handles(self) -> Sequence[Handle]:
        """Writes that have not ended."""
        return self._open

    def prepare(self, piece: Piece) -> Handle:
        """Make the write of a piece, without beginning it.

        Raises:
            Exception: whatever NIXL raises; nothing was posted.
        """
        local, remote = self._lists[piece.lane]
        try:
            return self._agent.make_write(local, piece.sender, remote, piece.receiver)
        except Exception as error:
            self._note(error)
            raise

    def post(self, handle: Handle) -> bool:
        """Begin a prepared write; True if it ended well within the call. Otherwise `check` it until it has ended.

        Raises:
            Exception: whatever NIXL raises. The write has ended, but bytes may still be landing.
        """
        self._open.append(handle)
        return self._finish(handle, self._agent.post)

    def check(self, handle: Handle) -> bool:
        """Whether a write has ended well.

        Raises:
            Exception: as `post`.
        """
        return self._finish(handle, self._agent.check)

    def notify(self, payload: bytes) -> None:
        """Send a notification.

        Raises:
            Exception: whatever NIXL raises.
        """
        try:
            self._agent.notify(self._name, payload)
        except Exception as error:
            self._note(error)
            raise

    def close(self) -> None:
        """Release the lists and forget the peer's agent. No write may be open."""
        self.usable = False
        for pair in self._lists:
            for prepared in pair:
                self._agent.release(prepared)
        self._lists.clear()
        self._agent.remove_remote(self._name)

    def abandon(self) -> None:
        """Close though writes are open. Only right before the agent is deleted: that is what ends them."""
        for handle in self._open:
            self._agent.release(handle)
        self._open.clear()
        self.close()

    def _finish(self, handle: Handle, ask: Callable[[Handle], bool]) -> bool:
        try:
            ended = ask(handle)
        except Exception as error:
            self._note(error)
            self._forget(handle)
            raise
        if ended:
            self._forget(handle)
        return ended

    def _forget(self, handle: Handle) -> None:
        self._open.remove(handle)
        self._agent.release(handle)

    def _note(self, error: Exception) -> None:
        if is_disconnect(error):
            self.usable = False
