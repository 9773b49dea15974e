"""What is asyncio's own about the asyncio client; all else is tested with the sync one's tests."""

import asyncio
import contextlib
import inspect

import pytest
from kvtransfer import aio, client
from kvtransfer import v1 as pb
from kvtransfer.aio import AsyncClient
from kvtransfer.errors import LimitReached

from transport.running import RunningServer
from transport.worker import registration


def test_both_clients_have_the_same_calls_with_the_same_arguments() -> None:
    def calls(kind: type) -> dict[str, inspect.Signature]:
        methods = inspect.getmembers(kind, inspect.isfunction)
        return {name: inspect.signature(method) for name, method in methods if not name.startswith("_")}

    assert calls(AsyncClient) == calls(client.Client)
    assert calls(aio.AsyncWatch) == calls(client.Watch)
    assert {"register_worker", "watch", "list_transfers", "require", "close"} <= calls(AsyncClient).keys()


async def _numbers_of_engines(target: str) -> int:
    async with AsyncClient(target) as asked:
        await asyncio.gather(
            *(asked.register_worker(registration(f"p{number}", pb.ROLE_PREFILL)) for number in range(20))
        )
        return len([engine async for engine in asked.list_engines()])


def test_calls_run_side_by_side(server: RunningServer) -> None:
    assert asyncio.run(_numbers_of_engines(server.target)) == 20


def test_a_client_is_made_where_a_loop_runs() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncClient("127.0.0.1:1")


def test_a_reading_that_was_given_up_loses_nothing(server: RunningServer) -> None:
    async def follow() -> list[int]:
        async with AsyncClient(server.target) as asked, asked.watch() as watch:
            await anext(watch)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(watch), 0.05)
            await asked.abort([7])
            return [room.room for room in (await anext(watch)).transfers]

    assert asyncio.run(follow()) == [7]


def test_a_watch_that_was_dropped_ends_on_the_server() -> None:
    async def follow(target: str) -> None:
        async with AsyncClient(target) as asked, asyncio.timeout(10):
            answered = 0
            while answered < 3:
                with contextlib.suppress(LimitReached):  # the former one ends a moment after it was dropped
                    async for _ in asked.watch():
                        answered += 1
                        break

    with RunningServer(max_watches=1, drain_grace=0.0) as server:
        asyncio.run(follow(server.target))


def test_a_cancelled_task_is_cancelled_and_nothing_else(server: RunningServer) -> None:
    async def read(asked: AsyncClient) -> None:
        async with asked.watch() as watch:
            async for _ in watch:
                pass

    async def follow() -> None:
        async with AsyncClient(server.target) as asked:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read(asked), 0.05)
            await asked.get_server_info()

    asyncio.run(follow())
