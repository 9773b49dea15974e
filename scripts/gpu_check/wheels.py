"""Wheels unpacked beside the tree, for an interpreter that has neither pip nor a network."""

import sys
import zipfile
from pathlib import Path


class WrongWheels(Exception):
    """A folder that has no wheels for this interpreter; the message says why."""


def unpack(folder: Path, into: Path) -> None:
    """Unpack every wheel of a folder.

    Raises:
        WrongWheels: There are none, or one is for another Python.
    """
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise WrongWheels(f"{folder}: there are no wheels; `make gpu-wheels` makes such a folder")
    ours = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for wheel in wheels:
        python, abi = wheel.stem.split("-")[-3:-1]
        if python.startswith("cp") and ours not in python.split(".") and abi != "abi3":
            raise WrongWheels(f"{wheel.name} is not for this Python, {ours}; PYTHON names another")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(into)
