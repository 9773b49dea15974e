"""Fill a folder with the wheels that scripts/gpu_check.sh takes to a machine without a network.

make gpu-wheels, or python scripts/gpu_wheels.py FOLDER [--python 3.12]. Together with the tree they stay under 64 MiB.
"""

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_BYTES = 64 << 20

_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
_UNUSED = ("nixl_ep_cu13/", ".data/", "libucx_perftest", "libplugin_GPUNETIO")
"""Marks what is left out of NIXL's wheel: its expert-parallel kernels, C++ headers and measuring tools, half of it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/gpu_wheels.py", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to put them; other wheels there are removed")
    parser.add_argument(
        "--python", default="3.12", metavar="X.Y", help="of the machine that they are for (default 3.12)"
    )
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for stale in args.folder.glob("*.whl"):
        stale.unlink()
    download(args.folder, args.python)
    for wheel in args.folder.glob("nixl_cu13-*.whl"):
        trim(wheel)
    tree = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    carried = sum((ROOT / name).stat().st_size for name in tree.split("\0") if (ROOT / name).is_file())
    carried += sum(wheel.stat().st_size for wheel in args.folder.glob("*.whl"))
    print(f"{args.folder}: with the tree {carried / (1 << 20):.1f} MiB of {LIMIT_BYTES >> 20}")
    if carried > LIMIT_BYTES:
        sys.exit("that is too much")


def download(folder: Path, python: str) -> None:
    """Get what requirements/gpu.lock names, for Linux on x86-64."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "-r", str(ROOT / "requirements" / "gpu.lock"), "-d", str(folder)]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", python]
    command += [word for platform in _PLATFORMS for word in ("--platform", platform)]
    subprocess.run(command, check=True)


def trim(wheel: Path) -> None:
    """Write a wheel anew without what is not used."""
    smaller = wheel.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as new:
        for item in old.infolist():
            if any(mark in item.filename for mark in _UNUSED):
                continue
            content = old.read(item)
            if item.filename.endswith(".dist-info/RECORD"):
                kept = [line for line in content.decode().splitlines(True) if not any(m in line for m in _UNUSED)]
                content = "".join(kept).encode()
            new.writestr(item, content)
    smaller.replace(wheel)


if __name__ == "__main__":
    main()
