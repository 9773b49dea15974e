"""The command: flags, variables, signals, and that it installs without torch, NIXL and numpy."""

import dataclasses
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from kvtransfer import v1 as pb
from kvtransfer._version import __version__
from kvtransfer.client import Client

from kvservice.config import Config, parse
from kvservice.domain.policy import Policy
from transport.command import Command, run
from transport.worker import Worker, new_join, pair

ROOT = Path(__file__).parents[2]


def test_a_free_port_is_taken_and_told() -> None:
    with Command("--port", "0") as command, Client(command.target) as client:
        assert command.target.startswith("127.0.0.1:")
        assert client.get_server_info().version == __version__
        status, logged = command.stop()
        assert (status, "Traceback" in logged) == (0, False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_after_the_grace_even_if_rooms_are_open(number: signal.Signals) -> None:
    with Command("--port", "0", "--drain-grace", "0.1") as command, Client(command.target) as client:
        [(_, receiver)] = pair(client)
        receiver.join(new_join(7, peer_engine_id="p"))
        status, logged = command.stop(number)
        assert status == 0
        assert "still open and are left: 1" in logged


def test_a_taken_port_is_fatal_with_a_sentence() -> None:
    with Command("--port", "0") as command:
        second = run("--port", command.target.rpartition(":")[2])
        assert second.returncode == 1
        assert second.stdout == ""
        assert f"kvservice: cannot listen on {command.target}" in second.stderr
        assert "Traceback" not in second.stderr


def test_a_service_that_was_stopped_holds_its_own_silence_against_nobody() -> None:
    with Command("--port", "0") as command, Client(command.target) as client:
        worker = Worker(client, "p", pb.ROLE_PREFILL, lease_ttl={"seconds": 1})
        command.send_signal(signal.SIGSTOP)
        time.sleep(2.5)  # nothing can be seen of it meanwhile: what is tried is that time passes, more than the lease
        command.send_signal(signal.SIGCONT)
        client.heartbeat(worker.ref)


def test_a_flag_wins_over_its_variable_and_this_over_the_default() -> None:
    environment = {"KVSERVICE_VOTE": "7", "KVSERVICE_RETENTION": "9", "KVSERVICE_PORT": "0"}
    with Command("--vote", "2.5", **environment) as command, Client(command.target) as client:
        limits = client.get_server_info().limits
        assert (limits.vote.seconds, limits.vote.nanos) == (2, 500_000_000)
        assert limits.retention.seconds == 9
        assert limits.reconnect_grace.seconds == 3


def test_every_setting_has_a_flag_shown_with_its_unit_and_default() -> None:
    shown = " ".join(run("--help").stdout.split())
    for setting in dataclasses.fields(Config):
        flag = "--" + setting.name.replace("_", "-")
        default = f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default)
        assert f"{flag} " in shown
        assert f"[{setting.metadata['unit']}; default {default}]" in shown


def test_every_setting_is_read_from_its_flag_and_its_variable() -> None:
    for setting in dataclasses.fields(Config):
        texts = {"host": "::1", "log_level": "debug", "lease_ttl": "16", "max_lease_ttl": "61"}
        text = texts.get(setting.name, "17")
        flag = "--" + setting.name.replace("_", "-")
        expected = type(setting.default)(text)
        assert getattr(parse([flag, text], {}, ""), setting.name) == expected
        assert getattr(parse([], {f"KVSERVICE_{setting.name.upper()}": text}, ""), setting.name) == expected


def test_the_defaults_are_the_domains() -> None:
    assert Config().policy() == Policy()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--port", "70000"),
        ("--port", "http"),
        ("--vote", "-1"),
        ("--vote", "nan"),
        ("--lease-ttl", "0.5"),
        ("--lease-ttl", "61"),
        ("--max-open-rooms", "0"),
        ("--max-open-rooms", "1.5"),
        ("--room-timeout", "0"),
        ("--max-metadata-bytes", "200000"),
        ("--log-level", "loud"),
        ("--host", ""),
    ],
)
def test_a_bad_value_is_refused_by_flag_and_value(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parse([flag, value], {}, "")
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert f"{flag}: must " in said
    assert f"got {value}" in said or f"got {value!r}" in said


def test_a_bad_variable_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([], {"KVSERVICE_MAX_ENGINES": "many"}, "")
    assert "KVSERVICE_MAX_ENGINES: must be a whole number from 1 to 2147483647, got 'many'" in capsys.readouterr().err


def test_it_tells_its_version() -> None:
    assert run("--version").stdout == f"kvservice {__version__}\n"


def test_the_wheel_runs_in_a_clean_environment_without_torch_nixl_and_numpy(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
        timeout=120,
    )
    [wheel] = tmp_path.glob("*.whl")
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(
        "\n".join(
            f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions() if "+" not in one.version
        )
    )
    clean = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", clean], check=True, timeout=120)
    uv = Path(sys.executable).parent / "uv"
    install = [uv, "pip", "install", "--quiet", "--python", clean / "bin/python", "--constraint", constraints]
    subprocess.run([*install, f"{wheel}[server]"], check=True, timeout=300)

    with Command("--port", "0", command=clean / "bin/kvservice") as command, Client(command.target) as client:
        assert client.get_server_info().version == __version__
        assert command.stop()[0] == 0
    heavy = "import importlib.util as i; print([n for n in ('torch', 'nixl', 'numpy') if i.find_spec(n)])"
    for check, said in ((heavy, "[]"), ("import kvtransfer.client as c; print(c.__name__)", "kvtransfer.client")):
        found = subprocess.run([clean / "bin/python", "-c", check], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == said
