"""Between gRPC's bytes and the servicer: the one place where messages are decoded and calls are aborted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message
from kvtransfer.v1 import service_pb2

from kvservice.domain.errors import DomainError, Draining, LimitReached
from kvservice.transport.answers import MESSAGE_BYTES
from kvservice.transport.statuses import internal, status_of

SERVICE = service_pb2.DESCRIPTOR.services_by_name["KVTransfer"]

M = TypeVar("M", bound=Message)

Context = grpc.aio.ServicerContext[bytes, bytes]

Trailers = tuple[tuple[str, str | bytes], ...]

# UNAVAILABLE is worth retrying where nobody answered, and not where somebody said that he is leaving.
_NO_RETRY = ("grpc-retry-pushback-ms", "-1")

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_log = logging.getLogger(__name__)


class Stream:
    """The messages of a call that streams, either way."""

    def __init__(self, context: Context, request_type: type[Message]) -> None:
        self._context = context
        self._type = request_type

    async def read(self) -> Any | None:
        """The next request; None when the caller has no more."""
        raw: Any = await self._context.read()
        return None if raw is grpc.aio.EOF else self._type.FromString(raw)

    async def write(self, message: Message) -> None:
        """Waits while the caller does not read."""
        try:
            await self._context.write(_encode(message))
        except grpc.aio.BaseError:  # a caller that read nothing is gone; gRPC cancels the task of any other
            raise asyncio.CancelledError from None


def handlers(servicer: object) -> grpc.GenericRpcHandler:
    """The methods of the service, each bound to the servicer's method of that name.

    A method that streams takes its request, if it has but one, and a Stream; the others take a request and return the
    answer.
    """
    methods: dict[str, Any] = {}
    for method in SERVICE.methods:
        call = getattr(servicer, method.name)
        request_type = message_factory.GetMessageClass(method.input_type)
        if method.client_streaming:
            methods[method.name] = grpc.stream_stream_rpc_method_handler(_stream_stream(call, request_type))
        elif method.server_streaming:
            methods[method.name] = grpc.unary_stream_rpc_method_handler(_unary_stream(call, request_type))
        else:
            methods[method.name] = grpc.unary_unary_rpc_method_handler(_unary_unary(call, request_type))
    return grpc.method_handlers_generic_handler(SERVICE.full_name, methods)


def _unary_unary(call: Callable[[Any], Message], request_type: type[Message]) -> Any:
    async def handle(raw: bytes, context: Context) -> bytes:
        try:
            return _encode(call(request_type.FromString(raw)))
        except Exception as error:  # noqa: BLE001 - the boundary
            await _abort(context, error)

    return handle


def _unary_stream(call: Callable[[Any, Stream], Awaitable[None]], request_type: type[Message]) -> Any:
    async def handle(raw: bytes, context: Context) -> None:
        try:
            await call(request_type.FromString(raw), Stream(context, request_type))
        except Exception as error:  # noqa: BLE001 - the boundary
            _end(context, error)

    return handle


def _stream_stream(call: Callable[[Stream], Awaitable[None]], request_type: type[Message]) -> Any:
    async def handle(_requests: object, context: Context) -> None:
        try:
            await call(Stream(context, request_type))
        except Exception as error:  # noqa: BLE001 - the boundary
            _end(context, error)

    return handle


def _encode(message: Message) -> bytes:
    raw = message.SerializeToString()
    if len(raw) > MESSAGE_BYTES:
        raise LimitReached(f"the answer takes {len(raw)} bytes, {MESSAGE_BYTES} are allowed", limit="message_bytes")
    return raw


async def _abort(context: Context, error: Exception) -> NoReturn:
    code, message, trailers = _outcome(error)
    await context.abort(code, message, trailers)


def _end(context: Context, error: Exception) -> None:
    """Of a stream: by `abort` gRPC would keep all that the stream had in a cycle, and streams grow old."""
    code, message, trailers = _outcome(error)
    context.set_code(code)
    context.set_details(message)
    context.set_trailing_metadata(trailers)


def _outcome(error: Exception) -> tuple[grpc.StatusCode, str, Trailers]:
    status = internal()
    if isinstance(error, DomainError):
        status = status_of(error)
    elif isinstance(error, DecodeError):
        _log.warning("a message could not be decoded: %s", error)
    else:
        _log.error("a call failed", exc_info=error)
    trailers: list[tuple[str, str | bytes]] = [("grpc-status-details-bin", status.SerializeToString())]
    if isinstance(error, Draining):
        trailers.append(_NO_RETRY)
    return _CODES[status.code], status.message, tuple(trailers)
