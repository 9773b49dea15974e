"""A real server and clients of it."""

from collections.abc import Iterator

import pytest
from kvtransfer.client import Client

from transport.running import RunningServer


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with RunningServer(drain_grace=0.0) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.target) as connected:
        yield connected
