"""What the decode engine computes next."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from .rank import Rank
from .request_errors import TransferFailed
from .scheduler import Job, Scheduler


@dataclass(frozen=True, slots=True)
class Answer:
    """What decode generated, and when. Times are in ns on CLOCK_MONOTONIC."""

    output_ids: list[int]
    """The first is prefill's."""
    stopped: bool
    """Whether the last token is the one that ends an answer."""
    prefill_ended_ns: int
    arrived_ns: int
    """Every rank had its pages."""
    checked_ns: int
    """Their digests were taken, where evidence is wanted; else the same moment."""
    stepped_ns: int
    """The first decode step was done."""


@dataclass(slots=True, eq=False)
class DecodeJob(Job):
    new_tokens: int
    answer: "Future[Answer]"
    """Ends with an Answer or TransferFailed."""
    on_token: Callable[[], object]
    """Called on the model thread when `output` has grown and is not the whole answer yet."""
    output: list[int] = field(default_factory=list, init=False)
    prefill_ended_ns: int = field(default=0, init=False)
    arrived_ns: int = field(default=0, init=False)
    checked_ns: int = field(default=0, init=False)
    stepped_ns: int = field(default=0, init=False)


class DecodeScheduler(Scheduler[DecodeJob]):
    """One token of each room in turn, never two rooms in one matmul: a batch would change the bits."""

    def __init__(self, rank: Rank, max_rooms: int, eos: int) -> None:
        super().__init__(rank, max_rooms)
        self._eos = eos
        self._turns: deque[DecodeJob] = deque()

    def _compute(self) -> bool:
        if not self._turns:
            return False
        job = self._turns.popleft()
        job.output.append(self._command("step", room=job.room, token=job.output[-1]))
        job.stepped_ns = job.stepped_ns or time.monotonic_ns()
        if self._is_complete(job):
            self._finish(job)
        else:
            self._turns.append(job)
            job.on_token()
        return True

    def _on_success(self, job: DecodeJob) -> None:
        job.arrived_ns = time.monotonic_ns()
        arrived = self._command("arrived", room=job.room)
        if arrived is None:
            self._fail(job, "the transfer ended well, but some rank's aux slot is not this room's")
            return
        first_token, job.prefill_ended_ns = arrived
        job.checked_ns = time.monotonic_ns()
        job.output.append(first_token)
        if self._is_complete(job):
            job.stepped_ns = job.checked_ns
            self._finish(job)
        else:
            self._turns.appendleft(job)  # its caller waits for a first sign
            job.on_token()

    def _on_failure(self, job: DecodeJob, message: str) -> None:
        if job in self._turns:
            self._turns.remove(job)
        job.answer.set_exception(TransferFailed(f"room {job.room}: {message}"))

    def _is_complete(self, job: DecodeJob) -> bool:
        return len(job.output) == job.new_tokens or job.output[-1] == self._eos

    def _finish(self, job: DecodeJob) -> None:
        self._close(job.room)
        job.answer.set_result(
            Answer(
                output_ids=job.output,
                stopped=job.output[-1] == self._eos,
                prefill_ended_ns=job.prefill_ended_ns,
                arrived_ns=job.arrived_ns,
                checked_ns=job.checked_ns,
                stepped_ns=job.stepped_ns,
            )
        )
