"""Docker's engine and command line from Debian's packages: unpacked into a folder, so that nothing is installed.

Compose and buildx are not in Debian 12 and are taken from Debian 13; they run on 12.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("docker.io", "debootstrap", "docker-compose/trixie", "docker-buildx/trixie")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class NoTools(Exception):
    """The tools cannot be had on this machine; the message says why."""


@dataclass(frozen=True)
class Tools:
    """Unpacked tools."""

    root: Path
    """Where the packages' files are, as if it were /."""
    environment: dict[str, str]
    """Of a process that runs them."""
    mirror: str
    """The Debian mirror that this machine uses."""


def fetch(folder: Path) -> Tools:
    """Have the tools in `folder`, downloading them unless they are there: about 95 MB.

    Raises:
        NoTools: This is not Debian 12, or the packages cannot be downloaded.
    """
    if "VERSION_CODENAME=bookworm" not in Path("/etc/os-release").read_text():
        raise NoTools("this is not Debian 12, whose packages of Docker are used")
    mirror, root, done = _mirror(), folder / "root", folder / f"have {' '.join(PACKAGES).replace('/', ' of ')}"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _unpack(_download(folder, mirror), root)
        _name_plugins(root, folder)
        done.touch()
    return Tools(root, _environment(root, folder), mirror)


def _mirror() -> str:
    """From the system's own sources, in either format."""
    for sources in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        text = sources.read_text() if sources.exists() else ""
        if found := re.search(r"^(?:URIs:|deb(?: \[.*?\])?)\s+(\S+)", text, re.MULTILINE):
            return found[1]
    raise NoTools("apt has no sources")


def _download(folder: Path, mirror: str) -> list[Path]:
    """The packages, and what they need that the system lacks; with apt's own state left alone."""
    archives = folder / "archives"
    for each in (archives, folder / "lists"):
        (each / "partial").mkdir(parents=True)
    suites = [f"deb [signed-by={KEYRING}] {mirror} {suite} main\n" for suite in ("bookworm", "trixie")]
    (folder / "sources.list").write_text("".join(suites))
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder,
        "Dir::Cache::archives": archives,
        "APT::Default-Release": "bookworm",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "true",
    }
    (folder / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environment = os.environ | {"APT_CONFIG": str(folder / "apt.conf")}
    needed = [name for name in PACKAGES if "/" not in name]
    for command in (
        ["update", "--error-on=any"],
        ["install", "--yes", "--download-only", "--no-install-recommends", *needed],
        ["download", *(set(PACKAGES) - set(needed))],  # alone: Debian 13's libraries are not wanted
    ):
        ran = subprocess.run(
            ["apt-get", "--quiet", *command], cwd=archives, env=environment, capture_output=True, text=True
        )
        if ran.returncode != 0:
            raise NoTools(f"apt-get {command[0]} failed: {ran.stderr.strip()}")
    return sorted(archives.glob("*.deb"))


def _unpack(packages: list[Path], root: Path) -> None:
    for package in packages:
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
        package.unlink()


def _name_plugins(root: Path, folder: Path) -> None:
    """What installing the packages would have linked."""
    for name in ("iptables", "ip6tables"):
        (root / "usr/sbin" / name).symlink_to("xtables-nft-multi")
    plugins = folder / "config" / "cli-plugins"
    plugins.mkdir(parents=True)
    for name in ("docker-compose", "docker-buildx"):
        (plugins / name).symlink_to(root / "usr/libexec/docker/cli-plugins" / name)


def _environment(root: Path, folder: Path) -> dict[str, str]:
    libraries = root / "usr/lib/x86_64-linux-gnu"
    return os.environ | {
        "PATH": os.pathsep.join([f"{root}/usr/sbin", f"{root}/usr/bin", os.environ["PATH"]]),
        "LD_LIBRARY_PATH": os.pathsep.join([str(libraries), f"{root}/lib/x86_64-linux-gnu"]),
        "XTABLES_LIBDIR": str(libraries / "xtables"),
        "DEBOOTSTRAP_DIR": str(root / "usr/share/debootstrap"),
        "DOCKER_CONFIG": str(folder / "config"),
    }
