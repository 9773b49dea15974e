"""Open streams: what was heard on each, as JSON."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from kvtransfer import calls
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import KVTransferError, from_rpc_error
from kvtransfer.v1 import service_pb2_grpc

from vectors import client as unary
from vectors.client import Json

LIMIT = 10.0
"""Seconds that anything may take to be heard."""


class Open(Protocol):
    """A stream that is open."""

    heard: "Heard"

    def send(self, said: Json) -> None: ...

    def close(self) -> None: ...


class Heard:
    """Reads messages in a thread until their stream ends."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self._messages = messages
        self._said: list[Json] = []
        self._error: KVTransferError | None = None
        self._over = False
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="vector's stream")
        self._reader.start()

    def wait(self, missing: Callable[[list[Json]], str | None]) -> str | None:
        """What is missing still when nothing more comes; None once nothing is."""
        with self._news:
            self._news.wait_for(lambda: self._over or missing(self._said) is None, LIMIT)
            found = missing(self._said)
            return found if found is None or self._error is None else f"{found}; it ended: {self._error!r}"

    def end(self) -> KVTransferError | None:
        """Why the stream ended; None if it has not, or if there was nothing more to say."""
        with self._news:
            self._news.wait_for(lambda: self._over, LIMIT)
            return self._error

    def join(self) -> None:
        self._reader.join(LIMIT)

    def _read(self) -> None:
        error: KVTransferError | None = None
        try:
            for message in self._messages:
                with self._news:
                    self._said.append(unary.as_json(message))
                    self._news.notify_all()
        except KVTransferError as raised:
            error = raised
        with self._news:
            self._error, self._over = error, True
            self._news.notify_all()


class OpenWatch:
    """By the client's method."""

    def __init__(self, client: Client, said: Json) -> None:
        self._watch = unary.watch(client, said)
        self.heard = Heard(self._watch)

    def send(self, said: Json) -> None:
        raise AssertionError("a Watch says nothing after its request")

    def close(self) -> None:
        self._watch.close()
        self.heard.join()


class OpenSession:
    """By the generated stub: the clients have no method for it."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, calls.channel_options())
        self._out: queue.SimpleQueue[pb.SessionRequest | None] = queue.SimpleQueue()
        self._call: Any = service_pb2_grpc.KVTransferStub(self._channel).Session(iter(self._out.get, None))
        self.heard = Heard(self._answers())

    def send(self, said: Json) -> None:
        self._out.put(json_format.ParseDict(said, pb.SessionRequest()))

    def close(self) -> None:
        self._call.cancel()
        self._out.put(None)
        self.heard.join()
        self._channel.close()

    def _answers(self) -> Iterator[Message]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
