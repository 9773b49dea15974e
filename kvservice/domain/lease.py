"""A queue of expiries. Knows nothing of what expires."""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class ExpiryQueue(Generic[Key]):
    """Instants by key, set, moved or dropped in O(log n).

    The heap has an entry of each key that is at most as late as its instant. A key that moves to later, as most do, or
    is dropped leaves its entry as it is: it is put right when its time comes.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Key]] = []
        self._entered: dict[Key, float] = {}  # the entry of each key that counts
        self._due: dict[Key, float] = {}
        self._tie = 0  # keys need not be comparable

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, due: float) -> None:
        """Sets or moves the expiry of `key`."""
        self._due[key] = due
        entered = self._entered.get(key)
        if entered is None or due < entered:
            self._enter(key, due)
            if len(self._heap) > 64 + 3 * len(self._due):
                self._compact()

    def drop(self, key: Key) -> None:
        """Forgets `key`; unknown keys are fine."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """The earliest expiry, None if there is none."""
        while self._heap:
            entered, _, key = self._heap[0]
            due = self._due.get(key)
            if due == entered:
                return due
            heapq.heappop(self._heap)
            if self._entered.get(key) == entered:
                del self._entered[key]
                if due is not None:
                    self._enter(key, due)
        return None

    def pop_due(self, now: float) -> Iterator[Key]:
        """Removes and yields each key whose time has come. Keys set meanwhile are seen too."""
        while (due := self.next_due()) is not None and due <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key], self._entered[key]
            yield key

    def _enter(self, key: Key, due: float) -> None:
        self._entered[key] = due
        self._tie += 1
        heapq.heappush(self._heap, (due, self._tie, key))

    def _compact(self) -> None:
        self._entered = {key: entered for key, entered in self._entered.items() if key in self._due}
        self._heap = [entry for entry in self._heap if self._entered.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)
