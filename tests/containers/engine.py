"""A Docker engine of our own: it shares no socket, image, network or firewall rule with one the machine may have."""

import ctypes
import fcntl
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.containers.tools import Tools
from tests.waiting import wait_for

START_S = 60
STOP_S = 60
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Engine:
    """A running engine, and the command line that talks to it."""

    def __init__(self, tools: Tools, folder: Path) -> None:
        self.tools, self.folder = tools, folder
        self.environment = tools.environment | {"DOCKER_HOST": f"unix://{folder}/docker.sock"}

    def docker(self, *arguments: str, timeout_s: float = 120) -> str:
        """What `docker <arguments>` prints.

        Raises:
            AssertionError: It failed; with all it said.
        """
        ran = subprocess.run(
            ["docker", *arguments], env=self.environment, capture_output=True, text=True, timeout=timeout_s
        )
        assert ran.returncode == 0, f"docker {' '.join(arguments)}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def left_over(self) -> dict[str, list[str]]:
        """Containers, volumes and networks other than the engine's own."""
        networks = self.docker("network", "ls", "--filter", "type=custom", "--quiet").split()
        return {
            "containers": self.docker("ps", "--all", "--quiet").split(),
            "volumes": self.docker("volume", "ls", "--quiet").split(),
            "networks": networks,
        }


@contextmanager
def running(tools: Tools, folder: Path) -> Iterator[Engine]:
    """An engine that keeps everything in `folder`, which is gone in the end, containers and all.

    It has no network but those that Compose makes: its builds use the host's. Of runs that want the same folder one
    waits for the other; what one that was killed has left is removed.
    """
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove(folder)
        folder.mkdir(mode=0o700)
        try:
            yield from _run(Engine(tools, folder))
        finally:
            _remove(folder)


def _run(engine: Engine) -> Iterator[Engine]:
    folder = engine.folder
    command = ["dockerd", "--host", engine.environment["DOCKER_HOST"], "--pidfile", f"{folder}/pid"]
    command += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--bridge", "none"]
    command += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen(
            command, env=engine.environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=_end_with_parent
        )
    try:
        _wait_until_it_answers(daemon, engine, folder / "log")
        yield engine
    finally:
        _stop(daemon, engine)


def _remove(folder: Path) -> None:
    """If it is there. A run that was killed has left an engine that ends by itself, and mounts."""
    if not folder.exists():
        return
    pid = folder / "pid"
    wait_for(lambda: not pid.exists() or not Path("/proc", pid.read_text()).exists(), within=STOP_S, every=0.1)
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for path in sorted((path for path in mounted if path.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", path], check=True)
    shutil.rmtree(folder)


def _end_with_parent() -> None:
    """Asked for by the child: otherwise an engine would outlive tests that were killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_it_answers(daemon: "subprocess.Popen[bytes]", engine: Engine, log: Path) -> None:
    def answers() -> bool:
        assert daemon.poll() is None, "dockerd ended"
        return subprocess.run(["docker", "version"], env=engine.environment, capture_output=True).returncode == 0

    try:
        wait_for(answers, within=START_S, every=0.1)
    except AssertionError as failed:
        failed.add_note(log.read_text()[-4000:])
        raise


def _stop(daemon: "subprocess.Popen[bytes]", engine: Engine) -> None:
    if daemon.poll() is None:
        containers = engine.docker("ps", "--all", "--quiet").split()
        if containers:
            engine.docker("rm", "--force", "--volumes", *containers)
        daemon.terminate()
        daemon.wait(STOP_S)
