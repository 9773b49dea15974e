"""A prefill and a decode engine that have met, over the real service and over raw NIXL."""

import itertools
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from kvtransfer.client import Client

from benchmarks.processes import Child, Service, Span, kvservice, together
from benchmarks.shapes import Shape
from benchmarks.worker import Worker

MAX_POLLED = 256
"""Rooms of one Poll, by the protocol."""


class WrongBytes(Exception):
    """Pages do not hold what was sent to them, or others were written."""


Pages = Sequence[int]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two engines, each in one or several processes, and the service between them."""

    service: Service
    client: Client
    prefills: tuple[Child, ...]
    decodes: tuple[Child, ...]
    ranks: int
    """Of each engine."""
    transport: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(secrets.randbits(40) + 1))

    @property
    def prefill(self) -> Child:
        """The process with rank 0, often the only one. As the next."""
        return self.prefills[0]

    @property
    def decode(self) -> Child:
        return self.decodes[0]

    def transfer(self, sources: Sequence[Pages], targets: Sequence[Pages], in_flight: int) -> list[Span]:
        """Rooms, one for each list of pages, so many at a time; the senders of each have joined and sent beforehand.

        Returns, of each, the first receiver's join and the last one's Success. All rooms are cleaned up.
        """
        rooms = self.numbers(len(sources))
        together(self.prefills, "send", dict(zip(rooms, sources, strict=True)))
        self.wait_joined(rooms)
        received = together(self.decodes, "receive", dict(zip(rooms, targets, strict=True)), in_flight)
        together((*self.prefills, *self.decodes), "finish")
        return [overall([spans[room] for spans in received]) for room in received[0]]

    def awaited_transfer(self, sources: Pages, targets: Pages) -> Span:
        """A room whose receivers have offered, and whose senders have joined, before any page is ready.

        From the moment when the first sender is given its pages to the last receiver's Success.
        """
        (room,) = self.numbers(1)
        together(self.decodes, "offer", {room: targets})
        for decode in self.decodes:
            decode.begin("arrived", room)
        began = together(self.prefills, "send_awaited", room, sources)
        ended = [decode.end() for decode in self.decodes]
        together((*self.prefills, *self.decodes), "finish")
        return min(began), max(ended)

    def meet_raw(self) -> None:
        """Connects the raw agents of the processes, rank by rank."""
        both = (*self.prefills, *self.decodes)
        introductions = together(both, "raw.introduction")
        count = len(self.prefills)
        for side, other in zip(both, introductions[count:] + introductions[:count], strict=True):
            side.begin("raw.meet", other)
        for side in both:
            side.end()

    def numbers(self, count: int) -> list[int]:
        """Rooms that were never used."""
        return list(itertools.islice(self._numbers, count))

    def wait_joined(self, rooms: Sequence[int]) -> None:
        """Until all ranks of one side have joined each of the rooms."""
        # Joins come in order: asking for the last alone spares the service, whose CPU may be being measured.
        for some in (rooms[-1:], *(rooms[at : at + MAX_POLLED] for at in range(0, len(rooms), MAX_POLLED))):
            while self._joins(some) < len(some) * self.ranks:
                time.sleep(0.005)

    def _joins(self, rooms: Sequence[int]) -> int:
        known = self.client.poll(rooms).transfers
        return sum(participant.worker.epoch > 0 for room in known for participant in room.participants)

    def checked_transfer(self, sources: Sequence[Pages], targets: Sequence[Pages], in_flight: int) -> list[Span]:
        """As `transfer`, into pages that were cleared before. Raises WrongBytes."""
        into, out_of = list(itertools.chain(*targets)), list(itertools.chain(*sources))
        together(self.decodes, "clear", into)
        spans = self.transfer(sources, targets, in_flight)
        self.check(into, out_of)
        return spans

    def check(self, targets: Pages, sources: Pages) -> None:
        """Looks at every byte of the receiver's pages. Raises WrongBytes."""
        if wrong := sum(together(self.decodes, "wrong_pieces", targets, sources)):
            raise WrongBytes(f"{wrong} pieces do not hold what was sent to them")


def overall(spans: Sequence[Span]) -> Span:
    """From the first beginning to the last end."""
    return min(began for began, _ in spans), max(ended for _, ended in spans)


@contextmanager
def met(shape: Shape, processes: int = 1) -> Iterator[Pair]:
    """Service and workers started and ready; each engine in so many processes, which share its ranks evenly."""
    each = shape.ranks // processes
    with ExitStack() as stack:
        service = stack.enter_context(kvservice())
        client = stack.enter_context(Client(service.target))
        prefills, decodes = (
            tuple(
                stack.enter_context(Child(Worker, role, service.target, shape, range(first, first + each)))
                for first in range(0, shape.ranks, each)
            )
            for role in ("prefill", "decode")
        )
        transport = together((*prefills, *decodes), "wait_ready")[0]
        yield Pair(service, client, prefills, decodes, shape.ranks, transport)


@contextmanager
def running(shape: Shape, processes: int = 1) -> Iterator[Pair]:
    """As `met`, with raw agents that have met too."""
    with met(shape, processes) as pair:
        pair.meet_raw()
        yield pair
