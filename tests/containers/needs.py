"""What a machine must have for these tests, and what becomes of them where it has not."""

import os
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI") == "true"
ASKED = IN_CI or "KVTRANSFER_TEST_CONTAINERS" in os.environ
"""Whether containers are to run."""
DISK_GB = 10
"""In /var/tmp. 7 were used, most of it torch."""


def cannot(why: str) -> NoReturn:
    """Skip; in CI, which can run all of this, fail instead."""
    if IN_CI:
        pytest.fail(why)
    pytest.skip(why)
