"""A real server and clients of it."""

from collections.abc import Iterator

import pytest
from kvtransfer.client import Client

from transport.blocking import EITHER, Connect
from transport.running import RunningServer


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with RunningServer(drain_grace=0.0) as running:
        yield running


@pytest.fixture(params=EITHER.values(), ids=EITHER)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Makes a client as `Client(target, ...)` does. Each test that uses one runs with either kind."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def client(server: RunningServer, connect: Connect) -> Iterator[Client]:
    with connect(server.target) as connected:
        yield connected
