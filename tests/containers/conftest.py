import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers import base_image, engine, tools
from tests.containers.demo import ROOT
from tests.containers.engine import Engine
from tests.containers.needs import ASKED, DISK_GB, cannot
from tests.containers.tools import NoTools, Tools


@pytest.fixture(scope="session")
def docker_tools() -> Tools:
    try:
        return tools.fetch(ROOT / ".cache" / "containers")
    except NoTools as missing:
        cannot(str(missing))


@pytest.fixture(scope="module")
def docker_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With the Dockerfile's base image, and nothing else."""
    if not ASKED:
        pytest.skip("takes root, minutes and much of the disk; make docker-test runs it")
    if os.geteuid() != 0:
        cannot("only root can start an engine")
    free_gb = shutil.disk_usage("/var/tmp").free / 1e9
    if free_gb < DISK_GB:
        cannot(f"/var/tmp has {free_gb:.0f} GB free, {DISK_GB} are needed")
    found: Tools = request.getfixturevalue("docker_tools")  # only now, since it may have to be downloaded
    with engine.running(found, Path("/var/tmp/kvtransfer-engine")) as running:
        base_image.make(running, base_image.name(ROOT / "Dockerfile"), running.folder / "base")
        yield running
