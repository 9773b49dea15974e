"""A prefill and a decode worker that have met, over the real service and over raw NIXL."""

import itertools
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kvtransfer.client import Client

from benchmarks.processes import Child, Service, kvservice, together
from benchmarks.shapes import Shape
from benchmarks.worker import Worker

MAX_POLLED = 256
"""Rooms of one Poll, by the protocol."""


class WrongBytes(Exception):
    """Pages do not hold what was sent to them, or others were written."""


Pages = Sequence[int]
Span = tuple[float, float]
"""Beginning and end on CLOCK_MONOTONIC, in seconds."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two workers of one rank each, and the service between them."""

    service: Service
    client: Client
    prefill: Child
    decode: Child
    transport: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(secrets.randbits(40) + 1))

    def transfer(self, sources: Sequence[Pages], targets: Sequence[Pages], in_flight: int) -> list[Span]:
        """Rooms, one for each list of pages, so many at a time; the sender of each has joined and sent beforehand.

        Returns the receivers' joins and Successes. All rooms are cleaned up.
        """
        rooms = self.numbers(len(sources))
        self.prefill.call("send", dict(zip(rooms, sources, strict=True)))
        self.wait_joined(rooms)
        spans: list[Span] = self.decode.call("receive", dict(zip(rooms, targets, strict=True)), in_flight)
        together((self.prefill, self.decode), "finish")
        return spans

    def numbers(self, count: int) -> list[int]:
        """Rooms that were never used."""
        return list(itertools.islice(self._numbers, count))

    def wait_joined(self, rooms: Sequence[int]) -> None:
        """Until the service knows all of the rooms."""
        for some in (rooms[at : at + MAX_POLLED] for at in range(0, len(rooms), MAX_POLLED)):
            while len(self.client.poll(some).transfers) < len(some):
                time.sleep(0.001)

    def checked_transfer(self, sources: Sequence[Pages], targets: Sequence[Pages], in_flight: int) -> list[Span]:
        """As `transfer`, into pages that were cleared before. Raises WrongBytes."""
        into, out_of = list(itertools.chain(*targets)), list(itertools.chain(*sources))
        self.decode.call("clear", into)
        spans = self.transfer(sources, targets, in_flight)
        self.check(into, out_of)
        return spans

    def check(self, targets: Pages, sources: Pages) -> None:
        """Looks at every byte of the receiver's pages. Raises WrongBytes."""
        if wrong := self.decode.call("wrong_pieces", targets, sources):
            raise WrongBytes(f"{wrong} pieces do not hold what was sent to them")


@contextmanager
def running(shape: Shape) -> Iterator[Pair]:
    """Everything started, met and warmed up."""
    with (
        kvservice() as service,
        Client(service.target) as client,
        Child(Worker, "prefill", service.target, shape) as prefill,
        Child(Worker, "decode", service.target, shape) as decode,
    ):
        both = (prefill, decode)
        introductions = together(both, "raw.introduction")
        for side, other in zip(both, reversed(introductions), strict=True):
            side.begin("raw.meet", other)
        for side in both:
            side.end()
        transport, _ = together(both, "wait_ready")
        yield Pair(service, client, prefill, decode, transport)
