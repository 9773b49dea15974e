"""`python -m kvtransfer --version`: what is installed here."""

import argparse
from importlib import metadata

from kvtransfer import __version__


def _installed(name: str) -> str:
    try:
        return f"{name}/{metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name}/absent"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="kvtransfer", description="Moves KV caches between engines.")
    versions = " ".join(_installed(name) for name in ("grpcio", "protobuf", "nixl"))
    parser.add_argument("--version", action="version", version=f"kvtransfer/{__version__} {versions}")
    parser.parse_args()
    parser.print_help()
