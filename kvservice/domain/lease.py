"""A queue of expiries. Knows nothing of what expires."""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class ExpiryQueue(Generic[Key]):
    """Instants by key, set, moved or dropped in O(log n); a moved entry leaves a stale one in the heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._tie = 0  # keys need not be comparable

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, due: float) -> None:
        """Sets or moves the expiry of `key`."""
        if self._due.get(key) == due:
            return
        self._due[key] = due
        self._tie += 1
        heapq.heappush(self._heap, (due, self._tie, key))
        if len(self._heap) > 64 + 2 * len(self._due):
            self._compact()

    def drop(self, key: Key) -> None:
        """Forgets `key`; unknown keys are fine."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """The earliest expiry, None if there is none."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Iterator[Key]:
        """Removes and yields each key whose time has come. Keys set meanwhile are seen too."""
        while (due := self.next_due()) is not None and due <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            yield key

    def _compact(self) -> None:
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)
