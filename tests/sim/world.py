"""One time, one source of chance, one queue of what happens next, one trace of what happened."""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

TRACE_LINES = 4000


class Violation(Exception):
    """An invariant of the protocol does not hold. `invariant` is its number there, 0 for a crash."""

    def __init__(self, invariant: int, message: str) -> None:
        super().__init__(f"invariant {invariant}: {message}")
        self.invariant = invariant


class World:
    """Everything that happens goes through `after`; two worlds of one seed are the same to the last step."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 1000.0
        self.steps = 0
        self.seen: Counter[str] = Counter()
        """How often things happened that a run is made for."""
        self.calm = False
        """Whether the faults are over: the network heals, nobody dies any more."""
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._trace: deque[tuple[float, str, tuple[Any, ...]]] = deque(maxlen=TRACE_LINES)

    def after(self, delay: float, happens: Callable[..., None], *args: Any) -> None:
        """Calls `happens(*args)` in `delay` seconds."""
        self._sequence += 1
        heapq.heappush(self._queue, (self.now + delay, self._sequence, happens, args))

    def next_at(self) -> float:
        """When something happens next; infinity if never."""
        return self._queue[0][0] if self._queue else float("inf")

    def step(self) -> None:
        """The next thing happens."""
        self.now, _, happens, args = heapq.heappop(self._queue)
        self.steps += 1
        happens(*args)

    def odds(self, probability: float) -> bool:
        return self.chance.random() < probability

    def faulty(self, probability: float) -> bool:
        """Whether a fault strikes that strikes with this probability; never once all is calm."""
        return not self.calm and self.chance.random() < probability

    def between(self, least: float, most: float) -> float:
        return least + (most - least) * self.chance.random()

    def note(self, text: str, *args: Any) -> None:
        """Adds to the trace; `text` is a format string."""
        self._trace.append((self.now, text, args))

    def trace(self) -> str:
        """What happened, a line each."""
        return "\n".join(f"{at - 1000:9.4f}  {text.format(*args)}" for at, text, args in self._trace)
