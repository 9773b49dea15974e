"""What the prefill engine computes next."""

from .rank import Rank
from .scheduler import Job, Scheduler


class PrefillScheduler(Scheduler[Job]):
    """A chunk of the prompt with the least left to compute, so that a long one does not hold up the short."""

    def __init__(self, rank: Rank, max_rooms: int) -> None:
        super().__init__(rank, max_rooms)
        self._left: dict[int, int] = {}
        """Tokens not computed yet, by room."""

    def _on_open(self, job: Job) -> None:
        self._left[job.room] = len(job.arguments["tokens"])

    def _compute(self) -> bool:
        if not self._left:
            return False
        room = min(self._left, key=self._left.__getitem__)
        self._left[room] = self._command("step", room=room)
        if not self._left[room]:
            del self._left[room]
        return True

    def _on_success(self, job: Job) -> None:
        self._command("sent", room=job.room)
        self._close(job.room)

    def _on_failure(self, job: Job, message: str) -> None:
        self._left.pop(job.room, None)
