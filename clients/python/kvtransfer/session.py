"""The shell around a worker's rooms that talks gRPC: registers, keeps one stream, comes back after a break."""

import logging
import threading
import time
from collections.abc import Iterator

import grpc
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_random_exponential

from kvtransfer import v1 as pb
from kvtransfer.core import Core, boottime
from kvtransfer.errors import Internal, InvalidField, KVTransferError, StaleEpoch, WorkerNotFound, from_rpc_error
from kvtransfer.roster import FetchLinks
from kvtransfer.v1 import service_pb2_grpc

log = logging.getLogger("kvtransfer")

CALL_TIMEOUT = 10.0
"""Seconds allowed to a unary call."""
LINGER = 0.01
"""Seconds that what nobody waits for is kept back, so that it leaves together with other news."""
END_TIMEOUT = 5.0
"""Seconds allowed to the session's thread to end: it may be held in a call of NIXL, or in an event."""
DRAIN_TIMEOUT = 30.0
"""Seconds that a fenced worker gives its writes to end before it registers again; NIXL notices dead peers in 6."""

CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A channel of one's own: two managers of a process do not share a connection's fate.
    ("grpc.use_local_subchannel_pool", 1),
]


class Session:
    """One thread that keeps a worker registered and its stream open until `close`."""

    def __init__(
        self,
        core: Core,
        target: str,
        registration: pb.RegisterWorkerRequest,
        credentials: grpc.ChannelCredentials | None,
    ) -> None:
        self._core = core
        self._registration = registration
        if credentials is None:
            self._channel = grpc.insecure_channel(target, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(target, credentials, CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.KVTransferStub(self._channel)
        self._closing = threading.Event()
        self._ref: pb.WorkerRef | None = None
        self._lease_ttl = 0.0
        self._call: grpc.Call | None = None
        self.open = False
        """Whether the stream has answered since it was opened."""
        self._thread = threading.Thread(target=self._run, name="kvtransfer-session", daemon=True)

    def start(self) -> None:
        """Begins to register."""
        self._thread.start()

    def close(self, drained: bool) -> None:
        """Ends the stream, deregisters (`drained`: no write of this worker's is in flight) and ends the thread.

        A thread that does not end in time is left: closing the mover tells why.
        """
        self._closing.set()
        self._hang_up()
        self._thread.join(END_TIMEOUT)
        if self._ref is not None and self._core.fatal is None:
            request = pb.DeregisterWorkerRequest(worker=self._ref, drained=drained)
            try:
                self._stub.DeregisterWorker(request, timeout=2)
            except grpc.RpcError as error:
                log.info("not deregistered, the lease will end: %s", from_rpc_error(error))
        self._channel.close()

    def fetch_links(self, wanted: FetchLinks) -> None:
        """Asks for the links with a peer; the answer comes on a thread of gRPC's."""
        if self._ref is None or self._closing.is_set():
            return
        request = pb.GetLinksRequest(
            engine_id=self._registration.engine_id,
            dp_rank=self._registration.rank.dp_rank,
            peer_engine_id=wanted.change.engine_id,
            peer_dp_rank=wanted.change.dp_rank,
            worker_id=self._ref.worker_id,
        )
        future = self._stub.GetLinks.future(request, timeout=CALL_TIMEOUT)

        def answered(call: "grpc.Future[pb.GetLinksResponse]") -> None:
            with self._core.step() as rooms:
                try:
                    rooms.links_fetched(wanted.change, call.result(), boottime())
                except grpc.RpcError as error:
                    rooms.roster.failed(wanted.change.peer.instance_id, str(from_rpc_error(error)), boottime())
                except grpc.FutureCancelledError:
                    pass  # closing

        future.add_done_callback(answered)

    # --- the thread ---

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:
            log.exception("the session's thread ended")
            self._give_up(Internal(f"the session's thread ended: {error!r}"))

    def _give_up(self, error: KVTransferError) -> None:
        with self._core.step() as rooms:
            self._core.fatal = error
            rooms.give_up(str(error))

    def _keep(self) -> None:
        registered = False
        pause = wait_random_exponential(multiplier=0.05, max=1)
        breaks = 0
        while not self._closing.is_set():
            if not registered:
                if not self._register():
                    return
                registered = True
            error = self._stream()
            if self._closing.is_set():
                return
            breaks = 0 if self.open else breaks + 1
            self.open = False
            with self._core.step() as rooms:
                fenced = rooms.fenced
            if fenced or isinstance(error, StaleEpoch | WorkerNotFound):
                log.warning("registering again: %s", "the lease lapsed" if fenced else error)
                self._drain()
                registered = False
            else:
                if breaks in (0, 1, 5, 25):
                    log.warning("session broke, coming back: %s", error)
                state = RetryCallState(Retrying(), None, (), {})
                state.attempt_number = breaks + 1
                self._closing.wait(pause(state))

    def _register(self) -> bool:
        """Registers, however long it takes. False when closing, or when it never will."""
        retrying = Retrying(
            retry=retry_if_exception(_worth_retrying),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            stop=stop_when_event_set(self._closing),
            sleep=self._sleep,
            before_sleep=_log_retry,
            reraise=True,
        )
        try:
            retrying(self._register_once)
        except KVTransferError as error:
            if not self._closing.is_set():
                log.error("cannot register: %s", error)
                self._give_up(error)
            return False
        return True

    def _sleep(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def _register_once(self) -> None:
        request = pb.RegisterWorkerRequest()
        request.CopyFrom(self._registration)
        # No stream is open from here to the answer: no join is sent in between.
        with self._core.step() as rooms:
            sent_at = boottime()
            request.birth_epoch = rooms.birth_epoch
            request.rooms.extend(rooms.room_states(sent_at))
        call = self._call = self._stub.RegisterWorker.future(request, timeout=CALL_TIMEOUT)
        if self._closing.is_set():  # whoever closes may have looked for the call before there was one
            call.cancel()
        try:
            answer = call.result()
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        except grpc.FutureCancelledError:
            raise KVTransferError("closing") from None
        with self._core.step() as rooms:
            self._ref = answer.worker
            self._lease_ttl = answer.lease_ttl.ToNanoseconds() / 1e9
            rooms.registered(answer, sent_at, boottime())
        log.info("registered as %s, epoch %d", answer.worker.worker_id, answer.worker.epoch)

    def _stream(self) -> KVTransferError:
        """Keeps a stream until it breaks; returns why."""
        over = threading.Event()
        with self._core.step() as rooms:
            rooms.stream_opened()
        call = self._stub.Session(self._batches(over))
        self._call = call
        try:
            for news in call:
                self._core.received(news)
                self.open = True
        except grpc.RpcError as error:
            return from_rpc_error(error)
        finally:
            over.set()
            with self._core.changed:
                self._core.changed.notify_all()
        return KVTransferError("the service ended the session")

    def _batches(self, over: threading.Event) -> Iterator[pb.SessionRequest]:
        """Batches as they come up; an empty one in time to keep the lease. Runs on a thread of gRPC's."""
        assert self._ref is not None
        worker: pb.WorkerRef | None = self._ref
        next_at = time.monotonic()
        while True:
            with self._core.step() as rooms:
                while not (over.is_set() or self._closing.is_set() or rooms.fenced or rooms.outgoing.urgent):
                    now = time.monotonic()
                    if rooms.outgoing.pending:
                        next_at = min(next_at, now + LINGER)
                    if now >= next_at:
                        break
                    self._core.changed.wait(next_at - now)
                if over.is_set() or self._closing.is_set():
                    return
                if rooms.fenced:
                    self._hang_up()
                    return
                batch = rooms.batch(boottime())
            if worker is not None:
                batch.worker.CopyFrom(worker)
                worker = None
            next_at = time.monotonic() + self._lease_ttl / 4  # twice before the fence, at two thirds or later
            yield batch

    def _drain(self) -> None:
        """Posts nothing more and waits for what was posted to end."""
        with self._core.step() as rooms:
            rooms.stop_posting()
        until = time.monotonic() + DRAIN_TIMEOUT
        while time.monotonic() < until and not self._closing.wait(0.01):
            with self._core.step() as rooms:
                if not rooms.in_flight:
                    return

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.cancel()


def _worth_retrying(error: BaseException) -> bool:
    """A refusal that more of the same cannot change is not: a bad field, or a later process at this rank."""
    return isinstance(error, KVTransferError) and not isinstance(error, InvalidField | StaleEpoch)


def _log_retry(state: RetryCallState) -> None:
    outcome = state.outcome
    if outcome is not None and state.attempt_number in (1, 5, 25):
        log.warning("not registered yet (attempt %d): %s", state.attempt_number, outcome.exception())
