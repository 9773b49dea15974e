"""One open stream of a worker, without its wire."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvservice.domain.errors import Draining, SessionReplaced
from kvservice.domain.news import compose
from kvservice.domain.outbox import News
from kvservice.domain.registry import Worker
from kvservice.domain.types import CleanupItem, Join, Progress
from kvservice.service.bell import Bell

if TYPE_CHECKING:
    from kvservice.service.service import Service


class Session:
    """Batches in, news out. `bell` rings when there may be news, or when the session has to end."""

    def __init__(self, service: "Service", worker: Worker, token: int, bell: Bell) -> None:
        self.worker = worker
        self.token = token
        self.bell = bell
        self._service = service
        self._control = service.control
        self._now = 0.0  # of the batch being applied

    def check(self) -> None:
        """Raises StaleEpoch, WorkerNotFound, SessionReplaced or Draining when the session has to end."""
        if self._control.registry.workers.get(self.worker.ref.worker_id) is not self.worker:
            self._control.registry.caller(self.worker.ref)
        if self.worker.session != self.token:
            raise SessionReplaced(f"a newer session of {self.worker.ref.worker_id} is open")
        if self._service.stopping:
            raise Draining("the server is shutting down")

    def batch(self, draining: bool | None, apply: Callable[[], None]) -> None:
        """A batch has come, which renews the lease; `apply` applies its items. Raises as `check`."""
        self.check()
        with self._service.changing() as self._now:
            self._control.caller(self.worker.ref, self._now)
            self._control.renew(self.worker, draining, self._now)
            apply()

    def join(self, join: Join) -> None:
        if not self.worker.instance.is_over((join.room, join.join_id)):
            self._control.join(self.worker, join, self._now)

    def report(self, progress: Progress) -> None:
        self._control.report(self.worker, progress, self._now)

    def cleanup(self, item: CleanupItem) -> None:
        """What became of it is told with the news."""
        release = self._control.cleanup(self.worker, item, self._now)
        if self.worker.outbox is not None:
            self.worker.outbox.releases[item.room, item.join_id] = release

    @property
    def pending(self) -> bool:
        """Whether there is news."""
        return self.worker.outbox is not None and self.worker.outbox.pending

    def news(self) -> News:
        """One message's worth of the newest state. Raises as `check`."""
        self.check()
        assert self.worker.outbox is not None  # it has one while its session is open
        return compose(self.worker, self.worker.outbox, self._control.rooms)
