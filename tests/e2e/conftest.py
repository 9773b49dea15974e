"""Fixtures shared by the tests of whole workers."""

from collections.abc import Iterator

import grpc
import pytest
from kvtransfer.v1 import service_pb2_grpc

from tests.e2e.server import Running, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


@pytest.fixture
def stub(server: Running) -> Iterator[service_pb2_grpc.KVTransferStub]:
    with grpc.insecure_channel(server.target) as channel:
        yield service_pb2_grpc.KVTransferStub(channel)
