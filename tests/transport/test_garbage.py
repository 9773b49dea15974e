"""Searches for garbage: none among all rooms while they move, and nothing of a stream waits for one."""

import asyncio
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from kvtransfer import v1 as pb
from kvtransfer.client import Client
from kvtransfer.errors import InvalidField, SessionReplaced
from kvtransfer.v1 import service_pb2_grpc
from waiting import wait_for

from kvservice.service import garbage
from kvservice.service.session import Session
from kvservice.service.watch import Watcher
from kvservice.transport import rpc
from kvservice.transport.session import SessionStream
from transport.blocking import Connect
from transport.command import Command
from transport.running import RunningServer
from transport.worker import Stream, Worker

OLD = 300_000
"""Objects that make the interpreter search among all if nobody tells it not to."""

TELLING_OF_SEARCHES = """
import gc, sys
from kvservice.cli import main
def tell(phase, about):
    if (phase, about["generation"]) == ("stop", 2):
        print("searched", file=sys.stderr)
gc.callbacks.append(tell)
main()
"""


@pytest.fixture
def connect() -> Connect:
    """The client is but a tool here."""
    return Client


@pytest.fixture
def searches() -> Iterator[list[int]]:
    """Of each search that ends, how far it went: 2 is among all."""
    seen: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(about["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


def test_what_is_old_is_searched_once_nothing_moves_and_not_before(
    searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "STILL", 0.02)
    monkeypatch.setattr(garbage, "SELDOM", 0.0)
    before = gc.get_threshold()

    async def serve() -> None:
        held: list[list[object]] = []
        searching = asyncio.create_task(garbage.search_while_still(lambda: len(held)))
        await asyncio.sleep(0)  # it begins
        searches.clear()
        for _ in range(30):
            held += [[] for _ in range(OLD // 30)]
            await asyncio.sleep(0.01)
        assert 1 in searches, "the young are searched as ever"
        assert 2 not in searches
        await asyncio.to_thread(wait_for, lambda: 2 in searches)
        searches.clear()
        await asyncio.sleep(15 * garbage.STILL)  # as often as it looks whether something has changed
        assert not searches, "nothing has changed since"
        searching.cancel()

    asyncio.run(serve())
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_what_is_old_is_searched_at_the_latest_though_rooms_move(
    searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "STILL", 0.01)
    monkeypatch.setattr(garbage, "LATEST", 0.1)

    async def serve() -> None:
        revisions = itertools.count()
        searching = asyncio.create_task(garbage.search_while_still(lambda: next(revisions)))
        await asyncio.to_thread(wait_for, lambda: searches.count(2) >= 3)
        searching.cancel()

    asyncio.run(serve())


def test_the_command_searches_once_at_its_start_however_many_rooms_come() -> None:
    with Command("-c", TELLING_OF_SEARCHES, "--port", "0", command=Path(sys.executable)) as command:
        with Client(command.target) as client:
            for first in range(1, 60_001, 1000):
                client.abort(range(first, first + 1000))
        status, logged = command.stop()
    assert (status, logged.count("searched") <= 2) == (0, True), logged[-2000:]  # at the end there is another


# --- ends of streams ---


def watch_cancelled(server: RunningServer, worker: Worker) -> None:
    with grpc.insecure_channel(server.target) as channel:
        call = service_pb2_grpc.KVTransferStub(channel).Watch(pb.WatchRequest(rooms=[7]))
        next(call)
        call.cancel()


def watch_refused(server: RunningServer, worker: Worker) -> None:
    with grpc.insecure_channel(server.target) as channel, pytest.raises(grpc.RpcError, match="INVALID_FIELD"):
        next(service_pb2_grpc.KVTransferStub(channel).Watch(pb.WatchRequest(rooms=[0])))


def session_finished(server: RunningServer, worker: Worker) -> None:
    with Stream(server.target, worker.ref) as stream:
        stream.send()
        stream.finish()
        assert stream.wait_end() is None


def session_cut(server: RunningServer, worker: Worker) -> None:
    with Stream(server.target, worker.ref) as stream:
        stream.wait_applied(stream.send(joins=[pb.Join(room=0, join_id=1)]))


def session_replaced(server: RunningServer, worker: Worker) -> None:
    with Stream(server.target, worker.ref) as older, Stream(server.target, worker.ref) as newer:
        older.wait_applied(older.send())
        newer.wait_applied(newer.send())
        assert isinstance(older.wait_end(), SessionReplaced)


def session_refused(server: RunningServer, worker: Worker) -> None:
    with Stream(server.target, worker.ref) as stream:
        stream.wait_applied(stream.send())
        stream.send_raw(pb.SessionRequest(batch=9))
        assert isinstance(stream.wait_end(), InvalidField)


@pytest.mark.parametrize(
    "end",
    [watch_cancelled, watch_refused, session_finished, session_cut, session_replaced, session_refused],
    ids=lambda end: end.__name__,
)
def test_nothing_of_a_stream_waits_for_a_search(
    server: RunningServer, client: Client, end: Callable[[RunningServer, Worker], None]
) -> None:
    worker = Worker(client, "p", pb.ROLE_PREFILL)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            end(server, worker)
        wait_for(lambda: left_over(client), lambda left: not left)
    finally:
        gc.enable()


def left_over(client: Client) -> list[object]:
    client.get_server_info()  # gRPC holds the latest call that came until the next one does
    ended = (Session, SessionStream, Watcher, rpc.Stream)
    return [each for each in gc.get_objects() if type(each) in ended]  # isinstance asks objects, and some of torch warn
