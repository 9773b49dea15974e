"""The demo in containers, for real: built, started, asked, disturbed, ended. The tests follow one another."""

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kvtransfer import v1 as pb
from kvtransfer.client import Client

from tests.containers.demo import ANSWER, ROOT, Demo, ask, run_readme_command
from tests.containers.engine import Engine
from tests.waiting import wait_for

NOTHING: dict[str, list[str]] = {"containers": [], "volumes": [], "networks": []}


@pytest.fixture(scope="module")
def cpu(docker_engine: Engine) -> Iterator[Demo]:
    """Up, from nothing: this builds both images."""
    demo = Demo(docker_engine, "cpu")
    try:
        demo.up()
        yield demo
    finally:
        demo.down()


def test_the_readme_s_request_is_answered_right(cpu: Demo) -> None:
    assert run_readme_command("curl -s localhost:8000/generate")["text"] == ANSWER


def test_grpcurl_shows_the_engines_and_the_room(cpu: Demo) -> None:
    room = ask()[1]["meta_info"]["room"]
    engines = run_readme_command("grpcurl -plaintext localhost:50051")["engines"]
    assert [engine["engine_id"] for engine in engines] == ["decode", "prefill"]
    transfers = run_readme_command("grpcurl -plaintext -d")["transfers"]
    shown = next(transfer for transfer in transfers if transfer["room"] == str(room))
    assert [(each["role"], each["poll"]) for each in shown["participants"]] == [
        ("ROLE_DECODE", "KV_POLL_SUCCESS"),
        ("ROLE_PREFILL", "KV_POLL_SUCCESS"),
    ]
    assert all(int(each["transferred_bytes"]) > 0 for each in shown["participants"])


def test_the_engines_share_memory_and_say_how_fast(cpu: Demo) -> None:
    assert re.search(
        r"INFO writes to decode/dp0/pp0/tp0 go over cma, \d+\.\d GB/s$", cpu.logs("prefill-cpu"), re.MULTILINE
    )


def test_the_service_image_is_small_light_and_not_root(cpu: Demo, docker_engine: Engine) -> None:
    size, user = docker_engine.docker(
        "image", "inspect", "--format", "{{.Size}} {{.Config.User}}", "kvtransfer-service"
    ).split()
    assert int(size) < 200e6
    assert user not in ("", "0", "root")
    look = "import importlib.util as u; print([m for m in ('grpc', 'torch', 'nixl', 'numpy', 'pip') if u.find_spec(m)])"
    assert cpu.compose("exec", "-T", "kvservice", "python", "-c", look).strip() == "['grpc']"


def test_a_changed_source_file_installs_nothing(cpu: Demo, docker_engine: Engine, tmp_path: Path) -> None:
    for path in ("kvservice", "clients", "examples", "requirements"):
        shutil.copytree(ROOT / path, tmp_path / path, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("Dockerfile", ".dockerignore"):
        shutil.copy(ROOT / path, tmp_path)
    for path in ("kvservice/cli.py", "examples/pd_llm/engine.py"):
        with open(tmp_path / path, "a") as file:
            file.write("# changed\n")
    for target in ("service", "worker"):
        options = ["--load", "--network", "host", "--target", target, "--tag", "changed"]
        docker_engine.docker("buildx", "build", *options, str(tmp_path))
        before, after = (_layers(docker_engine, image) for image in (f"kvtransfer-{target}", "changed"))
        assert before != after
        assert before[:-3] == after[:-3]  # the last three are two copies of source files and their bytecode


def test_a_killed_worker_takes_nobody_with_it_and_comes_back(cpu: Demo) -> None:
    others = ("kvservice", "namespaces", "prefill-cpu", "router")
    started = {name: cpu.inspect(name, ".State.StartedAt") for name in others}
    with ThreadPoolExecutor() as pool, Client("127.0.0.1:50051") as client:
        known = {transfer.room for transfer in client.list_transfers()}
        asked = pool.submit(ask, 500)
        _wait_for_another(client, known)
        cpu.compose("kill", "decode-cpu")
        status, refusal = asked.result()
    assert status == 502
    assert "/decode" in refusal["error"]["message"]
    cpu.compose("start", "decode-cpu")
    cpu.wait_until_healthy("decode-cpu")
    status, answer = ask()
    assert (status, answer["text"]) == (200, ANSWER)
    assert {name: cpu.inspect(name, ".State.StartedAt") for name in others} == started


def test_a_service_that_was_paused_for_a_lease_goes_on_where_it_was(cpu: Demo) -> None:
    def lapses() -> list[int]:
        return [
            cpu.logs(engine).count("registering again: the lease lapsed") for engine in ("prefill-cpu", "decode-cpu")
        ]

    before = lapses()
    with ThreadPoolExecutor() as pool:
        cpu.compose("pause", "kvservice")
        asked = pool.submit(ask)
        wait_for(lapses, lambda seen: all(now > then for now, then in zip(seen, before, strict=True)), 60, every=0.5)
        cpu.compose("unpause", "kvservice")
        during = asked.result()
    assert during[1]["text"] == ANSWER if during[0] == 200 else during[0] in (502, 504)
    _, answer = wait_for(ask, lambda answered: answered[0] == 200, within=60)
    assert answer["text"] == ANSWER


def test_down_leaves_nothing(cpu: Demo, docker_engine: Engine) -> None:
    assert docker_engine.left_over() != NOTHING
    cpu.down()
    assert docker_engine.left_over() == NOTHING


def test_profile_gpu_comes_up_but_for_the_devices(docker_engine: Engine) -> None:
    gpu = Demo(docker_engine, "gpu")
    try:
        gpu.up()
        status, answer = ask()
        assert (status, answer["text"]) == (200, ANSWER)
        assert "go over cma, " in gpu.logs("prefill-gpu")
    finally:
        gpu.down()
    assert docker_engine.left_over() == NOTHING


def _layers(engine: Engine, image: str) -> list[str]:
    found: list[str] = json.loads(engine.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", image))
    return found


def _wait_for_another(client: Client, known: set[int], timeout_s: float = 30) -> None:
    """Until a room that is not `known` has moved: its answer is being generated."""
    wait_for(
        lambda: [t.room for t in client.list_transfers() if t.poll == pb.KV_POLL_SUCCESS],
        lambda moved: not known.issuperset(moved),
        timeout_s,
        every=0.02,
    )
