"""Who may still write to whose pages.

NIXL cannot cancel a write, so a receiver's pages of a room are free only when each sender that was given its offer is
proven to have ended: by its Completion, by its release of the join with all handles done, by a deregistration after
draining, or by the exit of its process, attested by who reaped it. The ledger outlives rooms: what a gone process owes
stays.
"""

from dataclasses import dataclass, field

from kvservice.domain.types import Peer, Release, ReleaseState


@dataclass(slots=True)
class _Writer:
    worker_id: str
    lost: bool = False  # gone or released without having drained: only proof of its exit will do


@dataclass(slots=True)
class _Pages:
    receiver: Peer
    released: bool = False
    writers: dict[str, _Writer] = field(default_factory=dict)  # by instance


# A receiver's entry into a room: (room, join_id).
JoinKey = tuple[int, int]

# Released joins whose state reads otherwise now, with the process to tell.
Changed = list[tuple[Peer, JoinKey]]


class PageLedger:
    """Writes that may still land, by receiver's join."""

    def __init__(self) -> None:
        self._pages: dict[JoinKey, _Pages] = {}
        self._by_writer: dict[str, set[JoinKey]] = {}
        self._by_receiver: dict[str, set[JoinKey]] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def grant(self, key: JoinKey, receiver: Peer, sender: Peer) -> None:
        """A sender was, or may have been, told a receiver's offer."""
        pages = self._pages.get(key)
        if pages is None:
            pages = self._pages[key] = _Pages(receiver)
            self._by_receiver.setdefault(receiver.instance_id, set()).add(key)
        pages.writers.setdefault(sender.instance_id, _Writer(sender.worker_id))
        self._by_writer.setdefault(sender.instance_id, set()).add(key)

    def prove(self, key: JoinKey, sender_instance: str) -> Changed:
        """No write of this sender to this join can land any more."""
        pages = self._pages.get(key)
        if pages is None or pages.writers.pop(sender_instance, None) is None:
            return []
        self._forget(self._by_writer, sender_instance, key)
        if not pages.writers:
            del self._pages[key]
            self._forget(self._by_receiver, pages.receiver.instance_id, key)
        return [(pages.receiver, key)] if pages.released else []

    def sender_released(self, room: int, sender_instance: str, drained: bool) -> Changed:
        """A sender released its join of a room."""
        keys = [key for key in self._by_writer.get(sender_instance, ()) if key[0] == room]
        return self._end(keys, sender_instance, drained)

    def receiver_over(self, instance: str) -> None:
        """A process that will never ask for its pages again."""
        for key in self._by_receiver.pop(instance, ()):
            for writer in self._pages.pop(key).writers:
                self._forget(self._by_writer, writer, key)

    def process_over(self, instance: str, proven: bool) -> Changed:
        """A process is gone: drained or seen to exit (`proven`), or merely silent: it may be stopped, and come back."""
        return self._end(list(self._by_writer.get(instance, ())), instance, proven)

    def process_back(self, instance: str) -> Changed:
        """A silent process registered again: its release is to be waited for once more."""
        keys = self._by_writer.get(instance, ())
        for key in keys:
            self._pages[key].writers[instance].lost = False
        return [(self._pages[key].receiver, key) for key in keys if self._pages[key].released]

    def receiver_released(self, key: JoinKey) -> None:
        """A receiver released its join: it wants to know when its pages are free."""
        if key in self._pages:
            self._pages[key].released = True

    def released_by(self, instance: str) -> list[JoinKey]:
        """Joins that a process released and whose pages are not free yet."""
        return [key for key in self._by_receiver.get(instance, ()) if self._pages[key].released]

    def owes(self, instance: str) -> bool:
        """Whether writes of this process may still land."""
        return instance in self._by_writer

    def release(self, key: JoinKey) -> Release:
        """What is known of a join that its receiver released; FREE if nothing may land."""
        room, join_id = key
        pages = self._pages.get(key)
        if pages is None:
            return Release(room, join_id, ReleaseState.FREE)
        lost = any(writer.lost for writer in pages.writers.values())
        state = ReleaseState.QUARANTINED if lost else ReleaseState.WAITING
        return Release(room, join_id, state, tuple(sorted(writer.worker_id for writer in pages.writers.values())))

    def pending(self, key: JoinKey) -> bool:
        """Whether writes to this join may still land."""
        return key in self._pages

    def _end(self, keys: list[JoinKey], sender_instance: str, proven: bool) -> Changed:
        changed: Changed = []
        for key in keys:
            pages = self._pages[key]
            if proven:
                changed += self.prove(key, sender_instance)
            else:
                pages.writers[sender_instance].lost = True
                changed += [(pages.receiver, key)] if pages.released else []
        return changed

    @staticmethod
    def _forget(index: dict[str, set[JoinKey]], name: str, key: JoinKey) -> None:
        keys = index[name]
        keys.discard(key)
        if not keys:
            del index[name]
