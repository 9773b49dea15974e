"""Each call is converted, made and converted back."""
# ruff: noqa: N802 - methods bear the names of the service's

from collections.abc import Sequence
from functools import partial

from kvtransfer import v1 as pb
from kvtransfer._version import __version__

from kvservice.domain.errors import DomainError, InvalidField
from kvservice.domain.registry import Worker
from kvservice.service.service import Service
from kvservice.transport import answers, convert, paging, session, watch
from kvservice.transport.rpc import Stream
from kvservice.transport.statuses import status_of

MAX_ITEMS = 1000
MAX_POLLED = 256
MAX_ABORT_MESSAGE = 1024

FEATURES: tuple[str, ...] = ()
"""Names of what this server can do beyond the first release; clients ask for them before they rely on them."""


class Servicer:
    """The methods of the service. Each raises DomainError for what it refuses."""

    def __init__(self, service: Service, features: Sequence[str] = FEATURES) -> None:
        self._service = service
        self._control = service.control
        self._features = features

    # --- workers ---

    def RegisterWorker(self, request: pb.RegisterWorkerRequest) -> pb.RegisterWorkerResponse:
        worker = self._service.register(convert.registration(request))
        return pb.RegisterWorkerResponse(
            worker=answers.worker_ref(worker.ref),
            lease_ttl=answers.duration(worker.lease_ttl),
            birth_epoch=worker.instance.birth_epoch,
        )

    def Heartbeat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        worker = self._service.heartbeat(convert.worker_ref(request), convert.draining(request))
        return pb.HeartbeatResponse(lease_ttl=answers.duration(worker.lease_ttl))

    def DeregisterWorker(self, request: pb.DeregisterWorkerRequest) -> pb.DeregisterWorkerResponse:
        self._service.deregister(convert.worker_ref(request), request.drained)
        return pb.DeregisterWorkerResponse()

    def GetEngine(self, request: pb.GetEngineRequest) -> pb.GetEngineResponse:
        full = convert.full_worker(request.view)
        engine = self._control.registry.engine(request.engine_id)
        return pb.GetEngineResponse(engine=answers.engine(engine, full, self._service.clock.now()))

    def ListEngines(self, request: pb.ListEnginesRequest) -> pb.ListEnginesResponse:
        start = paging.position(request, request.page_token, str)
        found = self._service.engines(convert.any_role(request.role), request.model, start[0] if start else "")
        now = self._service.clock.now()
        engines, last = paging.take(
            found, paging.page_size(request.page_size), partial(answers.engine, full=False, now=now)
        )
        following = paging.token(request, last.engine_id) if last is not None else ""
        return pb.ListEnginesResponse(engines=engines, next_page_token=following)

    def GetLinks(self, request: pb.GetLinksRequest) -> pb.GetLinksResponse:
        links, peers = self._control.links(
            request.engine_id, request.dp_rank, request.peer_engine_id, request.peer_dp_rank, request.worker_id
        )
        return answers.links(links, peers, self._control.registry.workers, self._service.clock.now())

    # --- rooms ---

    def Handshake(self, request: pb.HandshakeRequest) -> pb.HandshakeResponse:
        worker, room = self._service.join(convert.worker_ref(request), convert.handshake_join(request))
        return answers.handshake(room, worker, self._service.clock.wall_offset())

    def Report(self, request: pb.ReportRequest) -> pb.ReportResponse:
        convert.at_most(len(request.progress), MAX_ITEMS, "progress")
        worker = self._service.caller(convert.worker_ref(request))
        return pb.ReportResponse(results=[self._report(worker, progress) for progress in request.progress])

    def _report(self, worker: Worker, progress: pb.Progress) -> pb.RoomResult:
        try:
            room = self._service.report(worker, convert.progress(progress))
        except DomainError as error:
            return pb.RoomResult(room=progress.room, error=status_of(error))
        return pb.RoomResult(room=progress.room, update=answers.update_for(room, worker))

    def Cleanup(self, request: pb.CleanupRequest) -> pb.CleanupResponse:
        convert.at_most(len(request.items), MAX_ITEMS, "items")
        worker = self._service.caller(convert.worker_ref(request))
        return pb.CleanupResponse(results=[self._cleanup(worker, item) for item in request.items])

    def _cleanup(self, worker: Worker, item: pb.CleanupItem) -> pb.CleanupResult:
        try:
            release = self._service.cleanup(worker, convert.cleanup_item(item))
        except DomainError as error:
            return pb.CleanupResult(room=item.room, error=status_of(error))
        return pb.CleanupResult(room=item.room, release=answers.release(release))

    def Poll(self, request: pb.PollRequest) -> pb.PollResponse:
        full, wall = convert.full_transfer(request.view, default=True), self._service.clock.wall_offset()
        numbers = convert.room_numbers(request.rooms, 1, MAX_POLLED)
        known = [self._control.rooms[number] for number in numbers if number in self._control.rooms]
        return pb.PollResponse(
            transfers=[answers.transfer(room, full, wall) for room in known],
            unknown_rooms=[number for number in numbers if number not in self._control.rooms],
        )

    def Abort(self, request: pb.AbortRequest) -> pb.AbortResponse:
        if not 1 <= len(request.rooms) <= MAX_ITEMS:
            raise InvalidField("rooms", f"must have 1 to {MAX_ITEMS} entries", len(request.rooms))
        if len(request.message) > MAX_ABORT_MESSAGE:
            raise InvalidField("message", f"must have at most {MAX_ABORT_MESSAGE} characters", len(request.message))
        return pb.AbortResponse(results=[self._abort(number, request.message) for number in request.rooms])

    def _abort(self, number: int, message: str) -> pb.RoomResult:
        try:
            room = self._service.abort(number, message)
        except DomainError as error:
            return pb.RoomResult(room=number, error=status_of(error))
        return pb.RoomResult(room=number, update=answers.update_for_anybody(room))

    def ListTransfers(self, request: pb.ListTransfersRequest) -> pb.ListTransfersResponse:
        full, wall = convert.full_transfer(request.view, default=False), self._service.clock.wall_offset()
        start = paging.position(request, request.page_token, int, int)
        revision, before = start or (self._control.changes.revision, None)
        found = self._service.transfers(request.engine_id, convert.polls(request.polls), request.request_id, before)
        transfers, last = paging.take(
            found, paging.page_size(request.page_size), partial(answers.transfer, full=full, wall=wall)
        )
        following = paging.token(request, revision, last.sequence) if last is not None else ""
        return pb.ListTransfersResponse(transfers=transfers, next_page_token=following, revision=revision)

    # --- the server ---

    def GetServerInfo(self, request: pb.GetServerInfoRequest) -> pb.GetServerInfoResponse:
        return pb.GetServerInfoResponse(
            version=__version__,
            server_id=self._service.server_id,
            start_time=answers.timestamp(self._service.started),
            revision=self._control.changes.revision,
            features=self._features,
            limits=answers.limits(self._control.policy),
        )

    # --- streams ---

    async def Watch(self, request: pb.WatchRequest, stream: Stream) -> None:
        await watch.serve(self._service, request, stream)

    async def Session(self, stream: Stream) -> None:
        await session.serve(self._service, stream)
