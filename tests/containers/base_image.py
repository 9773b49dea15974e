"""A base image without a registry: Debian by debootstrap, under the name that the Dockerfile gives its base.

It proves the Dockerfile's steps; not the image that the name stands for elsewhere.
"""

import re
import shutil
import subprocess
from pathlib import Path

from tests.containers.engine import Engine
from tests.containers.tools import KEYRING

PACKAGES = "python3,python3-venv,ca-certificates"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
SETTINGS = ("/etc/pip.conf", "/etc/uv/uv.toml")
NOT_IN_SLIM_IMAGES = (
    "var/cache/apt/archives",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)


def name(dockerfile: Path) -> str:
    """Of the base image."""
    found = re.search(r"^ARG BASE=(\S+)$", dockerfile.read_text(), re.MULTILINE)
    assert found, "the Dockerfile names no base"
    return found[1]


def make(engine: Engine, image: str, folder: Path) -> None:
    """Make it in `folder`, not there yet, and import it. Root only; about a minute."""
    folder.mkdir()
    # dpkg syncs every file, which takes most of the time on a disk.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    try:
        tree = folder / "tree"
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", f"--keyring={KEYRING}"]
        ran = subprocess.run(
            [*command, "bookworm", tree, engine.tools.mirror],
            env=engine.tools.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert ran.returncode == 0, f"debootstrap failed:\n{ran.stdout[-4000:]}"
        for path in NOT_IN_SLIM_IMAGES:
            shutil.rmtree(tree / path)
        for setting in (CERTIFICATES, *SETTINGS):  # so that builds reach what this machine reaches
            if Path(setting).exists():
                (tree / setting[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(setting, tree / setting[1:])
        subprocess.run(["tar", "--create", "--file", folder / "tar", "--directory", tree, "."], check=True)
        engine.docker("import", "--change", f"ENV SSL_CERT_FILE={CERTIFICATES}", str(folder / "tar"), image)
    finally:
        subprocess.run(["umount", folder], check=True)
