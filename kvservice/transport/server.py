"""The gRPC server: starts, is healthy, stops gracefully."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from kvservice.config import Config
from kvservice.service.service import Service
from kvservice.transport.answers import MESSAGE_BYTES
from kvservice.transport.rpc import SERVICE, handlers
from kvservice.transport.servicer import FEATURES, Servicer

STOP_GRACE = 1.0
"""Seconds in which calls under way are answered at the end."""

OPTIONS = (
    ("grpc.so_reuseport", 0),  # else a second server on the port would start too, and split the state
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    # Clients may ping when nothing moves: a worker's session is silent between rooms.
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Streams of clients that vanished without a word end; later than the longest lease, which ends workers.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)

_log = logging.getLogger(__name__)


class AddressTaken(Exception):
    """Nothing can listen there."""


class Server:
    """One server on one port, in the running event loop. `features`: what it says it can do, see `FEATURES`."""

    def __init__(self, config: Config, features: Sequence[str] = FEATURES) -> None:
        self.config = config
        self._features = features
        self.host = f"[{config.host}]" if ":" in config.host else config.host
        self.service = Service(config.policy(), config.max_watches)
        self._health = health.aio.HealthServicer()
        self._grpc = grpc.aio.server(options=OPTIONS)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listens, and returns the port. Raises AddressTaken."""
        self._grpc.add_generic_rpc_handlers((handlers(Servicer(self.service, self._features)),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        reflection.enable_server_reflection(
            (SERVICE.full_name, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME),
            self._grpc,
        )
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        try:
            port = self._grpc.add_insecure_port(f"{self.host}:{self.config.port}")
        except RuntimeError as error:
            raise AddressTaken(f"cannot listen on {self.host}:{self.config.port}: {error}") from error
        await self._grpc.start()
        self._running = asyncio.create_task(self.service.run())
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        return port

    async def stop(self) -> None:
        """No new rooms, watches end, open rooms get the grace, then all calls end."""
        _log.info("stopping; rooms open: %d", self.service.control.open_rooms)
        await self._health.enter_graceful_shutdown()
        self.service.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.service.idle(), self.config.drain_grace)
        if self.service.control.open_rooms:
            _log.warning("rooms that are still open and are left: %d", self.service.control.open_rooms)
        self.service.stop()
        await self._grpc.stop(STOP_GRACE)
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running

    async def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus.ValueType) -> None:
        for name in ("", SERVICE.full_name):
            await self._health.set(name, status)
