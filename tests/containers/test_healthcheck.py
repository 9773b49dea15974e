"""What the service image's health check says."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def check(port: int) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"KVSERVICE_PORT": str(port)}
    command = [sys.executable, "-m", "kvservice.healthcheck"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)


@pytest.fixture
def served() -> Iterator[int]:
    """The port of a kvservice, started as its image starts it."""
    command = [sys.executable, "-m", "kvservice", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as service:
        assert service.stdout
        yield int(service.stdout.readline().rsplit(":", 1)[1])
        service.terminate()


def test_a_service_that_serves_is_healthy(served: int) -> None:
    assert check(served).returncode == 0


def test_one_that_drains_is_not() -> None:
    draining = health.HealthServicer()
    draining.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    with ThreadPoolExecutor() as pool:
        server = grpc.server(pool)
        health_pb2_grpc.add_HealthServicer_to_server(draining, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        checked = check(port)
        server.stop(None).wait()
    assert (checked.returncode, checked.stderr) == (1, f"kvservice on port {port} is NOT_SERVING\n")


def test_one_that_is_not_there_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody_else:
        port = nobody_else.getsockname()[1]
    checked = check(port)
    assert (checked.returncode, checked.stderr) == (1, f"kvservice on port {port} does not answer: UNAVAILABLE\n")
