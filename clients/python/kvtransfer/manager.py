"""What an engine holds: a KVManager per process, a KVSender or KVReceiver per room.

    manager = KVManager("127.0.0.1:50051", engine_id="decode-0", role="decode", model="llama", groups=[...])
    receiver = manager.receiver(room, "prefill-0")
    receiver.offer(tokens, {"kv": pages}, slots={"aux": row})
    ...
    receiver.poll()      # KVPoll.SUCCESS: the bytes are there
    receiver.close()
    for released in manager.released(): ...  # the only way for pages back to the engine

Nothing here waits for the network: calls leave a mark, `poll` and the like read what is known. What the process itself
can know is checked in the call; what only the service knows fails that one room and is told by `failure()`.
"""

import logging
import os
import re
import secrets
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

import grpc

from kvtransfer import v1 as pb
from kvtransfer._version import __version__
from kvtransfer.core import Core, boottime
from kvtransfer.errors import InvalidField, KVTransferError, LimitReached, RoomReused
from kvtransfer.handles import KVReceiver, KVSender
from kvtransfer.layout import Group, LocalMemory
from kvtransfer.memory import Buffer
from kvtransfer.mover import Mover
from kvtransfer.policy import Policy
from kvtransfer.polls import Released
from kvtransfer.receiving import ReceiverRoom
from kvtransfer.rooms import Rooms
from kvtransfer.sending import SenderRoom
from kvtransfer.session import Session

log = logging.getLogger("kvtransfer")

MAX_ROOMS = 8192
"""Rooms of a worker at once: what it tells when it registers again must stay under 3 MiB."""
MAX_REGISTRATION_BYTES = 1 << 20
"""Of a registration without its rooms: together they must fit a message of 4 MiB."""
MAX_REQUEST_ID_BYTES = 128
MAX_TRACEPARENT_BYTES = 64
CLOSE_TIMEOUT = 10.0
"""Seconds that `KVManager.close` gives writes to end and cleanups to be acknowledged."""

Role = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Topology:
    """Parallel sizes of an engine."""

    tp_size: int = 1
    pp_size: int = 1
    dp_size: int = 1


@dataclass(frozen=True, slots=True)
class Rank:
    """Position of a worker in its engine, counted from 0."""

    tp_rank: int = 0
    pp_rank: int = 0
    dp_rank: int = 0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds allowed to a room; what is None is left to the service. The shortest of all that asked counts."""

    bootstrapping: float | None = None
    waiting_for_input: float | None = None
    no_progress: float | None = None
    total: float | None = None

    def to_message(self) -> pb.Timeouts:
        """To the wire. Raises InvalidField."""
        message = pb.Timeouts()
        for name in ("bootstrapping", "waiting_for_input", "no_progress", "total"):
            seconds = getattr(self, name)
            if seconds is None:
                continue
            if not 0 < seconds <= 86400:
                raise InvalidField(f"timeouts.{name}", f"must be in (0, 86400] seconds, got {seconds}")
            getattr(message, name).FromNanoseconds(int(seconds * 1e9))
        return message


@dataclass(frozen=True, slots=True)
class PeerLink:
    """A worker of the other side that this one has links with."""

    worker_id: str
    instance_id: str
    ready: bool
    """Met, and warmed up."""
    error: str
    """Why it could not be met, if so."""
    transport: str
    """How bytes reach it, by UCX's name; empty if not known or nothing is sent to it."""
    bandwidth_bytes_s: float
    """Seen at warm-up; 0 if not known or nothing is sent to it."""
    descriptors: Mapping[str, int]
    """Group -> descriptors that one page or slot takes, before neighbours are merged."""
    moved_bytes: int
    """Written to it so far, warm-up not counted."""


class KVManager:
    """A worker: one rank of an engine, in this process. Registers by itself, however long that takes.

    Safe to use from several threads. Make it after any fork.
    """

    def __init__(
        self,
        target: str,
        *,
        engine_id: str,
        role: Role,
        model: str,
        groups: Sequence[Group],
        topology: Topology = Topology(),
        rank: Rank = Rank(),
        allocations: Iterable[Buffer] | None = None,
        lease_ttl: float | None = None,
        endpoint: str = "",
        labels: Mapping[str, str] | None = None,
        exited_instances: Sequence[str] = (),
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """Registers memory with NIXL and starts to register with the service at `target`, `host:port`.

        Args:
            engine_id: 1 to 63 of a-z, 0-9 and '-'; the same for all ranks of the engine.
            role: `prefill` sends, `decode` receives.
            model: must be equal on both sides of a transfer.
            groups: the memory lent to transfers, see `kvtransfer.layout`.
            topology, rank: shape of the engine and this worker's place in it.
            allocations: the memory to register with NIXL; by default whatever lies behind the groups.
            lease_ttl: seconds; the service's default if None.
            endpoint: where the engine serves requests, for routers.
            labels: free text for people and routers.
            exited_instances: former processes of this rank that the caller saw exit: their writes are over.
            credentials: TLS; plain text if None.

        Raises:
            InvalidField: names the argument and its value.
            RuntimeError: NIXL could not be set up.
        """
        if role not in ("prefill", "decode"):
            raise InvalidField("role", f"must be 'prefill' or 'decode', got {role!r}")
        _check_engine("engine_id", engine_id)
        _check_rank(topology, rank)
        if lease_ttl is not None and not 0 < lease_ttl <= 86400:
            raise InvalidField("lease_ttl", f"must be in (0, 86400] seconds, got {lease_ttl}")
        self.instance_id = str(uuid.uuid4())
        self.role: Role = role
        self._memory = LocalMemory(model, groups, allocations)
        self._core = Core(Rooms(self._memory, Policy()))
        self._mover = Mover(self.instance_id, self._memory, self._core)
        self._core.mover = self._mover
        registration = pb.RegisterWorkerRequest(
            engine_id=engine_id,
            role=pb.ROLE_PREFILL if role == "prefill" else pb.ROLE_DECODE,
            topology=pb.Topology(tp_size=topology.tp_size, pp_size=topology.pp_size, dp_size=topology.dp_size),
            rank=pb.Rank(tp_rank=rank.tp_rank, pp_rank=rank.pp_rank, dp_rank=rank.dp_rank),
            instance_id=self.instance_id,
            layout=self._memory.layout,
            exited_instances=exited_instances,
            endpoint=endpoint,
            labels=labels,
            user_agent=f"kvtransfer/{__version__} pid/{os.getpid()}",
        )
        if lease_ttl is not None:
            registration.lease_ttl.FromNanoseconds(int(lease_ttl * 1e9))
        if registration.ByteSize() > MAX_REGISTRATION_BYTES:
            raise InvalidField(
                "registration", f"must take at most {MAX_REGISTRATION_BYTES} bytes, got {registration.ByteSize()}"
            )
        registration.nixl_metadata = self._mover.start()  # the last that may raise, for it leaves a thread
        self._session = Session(self._core, target, registration, credentials)
        self._core.fetch_links = self._session.fetch_links
        self._closed = False
        self._core.start()
        self._session.start()

    # --- rooms ---

    def sender(
        self,
        room: int,
        tokens: int,
        *,
        decode_engine: str = "",
        timeouts: Timeouts | None = None,
        request_id: str = "",
        traceparent: str = "",
    ) -> KVSender:
        """Joins a room as a prefill worker, for a request of `tokens` tokens.

        Raises InvalidField, RoomReused (the room is open here), LimitReached, KVTransferError (this worker cannot
        serve).
        """
        self._check_room(room, "prefill")
        _check_texts(request_id, traceparent)
        if decode_engine:
            _check_engine("decode_engine", decode_engine)
        if not 1 <= tokens < 2**31:
            raise InvalidField("tokens", f"must be in [1, 2^31), got {tokens}")
        joined = SenderRoom(
            room=room,
            join_id=_new_join_id(),
            joined_at=boottime(),
            peer_engine_id=decode_engine,
            timeouts=timeouts.to_message() if timeouts is not None else None,
            request_id=request_id,
            traceparent=traceparent,
            tokens=tokens,
        )
        self._open(joined)
        return KVSender(self._core, joined)

    def receiver(
        self,
        room: int,
        prefill_engine: str,
        *,
        timeouts: Timeouts | None = None,
        request_id: str = "",
        traceparent: str = "",
    ) -> KVReceiver:
        """Joins a room as a decode worker, to receive from a prefill engine. Raises as `sender` does."""
        self._check_room(room, "decode")
        _check_texts(request_id, traceparent)
        _check_engine("prefill_engine", prefill_engine)
        joined = ReceiverRoom(
            room=room,
            join_id=_new_join_id(),
            joined_at=boottime(),
            peer_engine_id=prefill_engine,
            timeouts=timeouts.to_message() if timeouts is not None else None,
            request_id=request_id,
            traceparent=traceparent,
        )
        self._open(joined)
        return KVReceiver(self._core, joined)

    def _check_room(self, room: int, role: Role) -> None:
        if not 1 <= room < 2**63:
            raise InvalidField("room", f"must be in [1, 2^63), got {room}")
        if self.role != role:
            what = "sender" if role == "prefill" else "receiver"
            raise InvalidField("role", f"a {what} takes a {role} worker, this one is {self.role}")

    def _open(self, joined: SenderRoom | ReceiverRoom) -> None:
        with self._core.step() as rooms:
            if self._core.fatal is not None:
                raise self._core.fatal
            if self._closed:
                raise KVTransferError("this manager is closed")
            if joined.room in rooms.rooms:
                raise RoomReused(f"room {joined.room} is open in this worker")
            if len(rooms.rooms) >= MAX_ROOMS:
                raise LimitReached(f"{MAX_ROOMS} rooms are open in this worker")
            rooms.open(joined)

    def drain(self, draining: bool = True) -> None:
        """Tells routers to send this worker's engine no new rooms, or, with False, that they may again.

        Rooms that are open go on, and joins are still accepted. It holds until the next call, also over new
        registrations, and may come before the first.
        """
        with self._core.step() as rooms:
            rooms.outgoing.drain(draining)

    def released(self) -> list[Released]:
        """Pages and slots that came back since the last call; each once. There is no other way back for them."""
        with self._core.step() as rooms:
            return rooms.take_released()

    # --- what is known ---

    def ready(self) -> bool:
        """Registered, and every peer that fits is met; at least one. If it stays False, `links` and the log say why.

        Raises KVTransferError if this worker can never serve: refused for good, or replaced by a later process.
        """
        with self._core.step() as rooms:
            if self._core.fatal is not None:
                raise self._core.fatal
            if rooms.died:
                raise KVTransferError(rooms.died)
            peers = [peer for peer in rooms.roster.peers.values() if not peer.unfit]
            return self._session.open and bool(peers) and all(peer.stats is not None for peer in peers)

    def links(self) -> list[PeerLink]:
        """Workers of the other side, ordered by name."""
        with self._core.step() as rooms:
            found = []
            for instance_id, peer in rooms.roster.peers.items():
                stats = peer.stats
                found.append(
                    PeerLink(
                        peer.change.peer.worker_id,
                        instance_id,
                        stats is not None,
                        peer.error,
                        stats.transport if stats is not None else "",
                        stats.bandwidth_bytes_s if stats is not None else 0.0,
                        stats.descriptors if stats is not None else {},
                        rooms.counters.moved_bytes.get(instance_id, 0),
                    )
                )
        return sorted(found, key=lambda link: link.worker_id)

    @property
    def worker_id(self) -> str:
        """Assigned by the service; empty until registered."""
        with self._core.step() as rooms:
            return rooms.worker_id

    # --- the end ---

    def close(self) -> None:
        """Closes what is open, waits a bounded time for writes to end, deregisters, gives NIXL's resources back.

        Pages that are not proven free by then are never handed back: the memory must stay as it is, or go with the
        process. Nothing the second time.

        Raises:
            KVTransferError: a signal's handler calls it, and interrupted a `poll`; the manager goes on.
        """
        if self._mover.has_turn:  # to wait for the mover here would be to wait for oneself
            raise KVTransferError("close: called by a signal's handler in the midst of a poll; close outside of it")
        with self._core.step() as rooms:
            if self._closed:
                return
            self._closed = True
            for room in list(rooms.rooms.values()):
                rooms.close(room, boottime())
        until = time.monotonic() + CLOSE_TIMEOUT
        over = False
        while not over and self._core.fatal is None and time.monotonic() < until:
            with self._core.step() as rooms:
                over = not rooms.rooms and not rooms.in_flight
            if not over:
                time.sleep(0.005)
        with self._core.step() as rooms:
            drained = not rooms.in_flight and not rooms.undrained
        self._session.close(drained)
        self._core.close()
        self._mover.close()

    def __enter__(self) -> "KVManager":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _new_join_id() -> int:
    return secrets.randbits(64) or 1


def _check_engine(name: str, engine_id: str) -> None:
    if not re.fullmatch(r"[a-z0-9-]{1,63}", engine_id):
        raise InvalidField(name, f"must be 1 to 63 of a-z, 0-9 and '-', got {engine_id!r:.100}")


def _check_texts(request_id: str, traceparent: str) -> None:
    for name, text, most in (
        ("request_id", request_id, MAX_REQUEST_ID_BYTES),
        ("traceparent", traceparent, MAX_TRACEPARENT_BYTES),
    ):
        try:
            fits = len(text.encode()) <= most
        except UnicodeEncodeError:
            fits = False
        if not fits:
            raise InvalidField(name, f"must be text of at most {most} bytes, got {text!r:.100}")


def _check_rank(topology: Topology, rank: Rank) -> None:
    for name in ("tp", "pp", "dp"):
        size, place = getattr(topology, f"{name}_size"), getattr(rank, f"{name}_rank")
        if size < 1:
            raise InvalidField(f"topology.{name}_size", f"must be at least 1, got {size}")
        if not 0 <= place < size:
            raise InvalidField(f"rank.{name}_rank", f"must be in [0, {size}), got {place}")
