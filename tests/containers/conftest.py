import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.containers import base_image, engine, tools
from tests.containers.demo import ROOT
from tests.containers.engine import Engine
from tests.containers.tools import NoTools, Tools

IN_CI = os.environ.get("CI") == "true"
ASKED = "KVTRANSFER_TEST_CONTAINERS" in os.environ
NEEDED_GB = 18
"""Of disk. 13 were used, most of it torch: once in the image and once in the build's cache."""


def cannot(why: str) -> NoReturn:
    """Skip; in CI, which can run all of this, fail instead."""
    if IN_CI:
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def docker_tools() -> Tools:
    try:
        return tools.fetch(ROOT / ".cache" / "containers")
    except NoTools as missing:
        cannot(str(missing))


@pytest.fixture(scope="module")
def docker_engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """With the Dockerfile's base image, and nothing else."""
    if not (IN_CI or ASKED):
        pytest.skip("takes minutes and much of the disk, and needs root; make docker-test runs it")
    if os.geteuid() != 0:
        cannot("an engine can only be started by root")
    free_gb = shutil.disk_usage("/var/tmp").free / 1e9
    if free_gb < NEEDED_GB:
        cannot(f"/var/tmp has {free_gb:.0f} GB free, {NEEDED_GB} are needed")
    found: Tools = request.getfixturevalue("docker_tools")  # only now: to look for them takes a download
    folder = Path(tempfile.mkdtemp(prefix="kvtransfer-", dir="/var/tmp"))
    with engine.running(found, folder) as running:
        base_image.make(running, base_image.name(ROOT / "Dockerfile"), folder / "base")
        yield running
