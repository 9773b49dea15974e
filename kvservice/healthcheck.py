"""python -m kvservice.healthcheck: exits 0 if the kvservice on this machine is serving, else says why not and exits 1.

For containers, whose engine cannot ask gRPC's health service itself. The port is KVSERVICE_PORT's.
"""

import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kvservice.config import Config

TIMEOUT_S = 2.0


def main() -> None:
    port = os.environ.get("KVSERVICE_PORT", Config().port)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            sys.exit(f"kvservice on port {port} does not answer: {error.code().name}")
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        sys.exit(f"kvservice on port {port} is {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}")


if __name__ == "__main__":
    main()
