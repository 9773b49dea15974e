"""Generates the protobuf code, lints the protos, and checks that the committed code is what they generate.

Runs in the generator's environment (requirements/gen.in); `buf` is looked up on PATH.
"""

import filecmp
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PYTHON = ROOT / "clients" / "python"


def run_protoc(*args: str, only: str = "*") -> None:
    import google.rpc

    googleapis = Path(google.rpc.__path__[0]).parent.parent
    builtin = resources.files("grpc_tools") / "_proto"
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob(f"{only}.proto"))
    paths = [f"-I{path}" for path in (PROTOS, googleapis, builtin)]
    if protoc.main(["protoc", *paths, *args, *sources]) != 0:
        sys.exit("protoc failed")


def generate(out: Path) -> None:
    """Writes the Python code under `out`."""
    run_protoc(f"--python_out={out}", f"--pyi_out={out}")
    run_protoc(f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}", only="service")


def lint() -> None:
    # In place buf cannot resolve google/rpc/status.proto; an image carries it.
    with tempfile.TemporaryDirectory() as folder:
        image = f"{folder}/image.binpb"
        run_protoc("--include_imports", "--include_source_info", f"--descriptor_set_out={image}")
        command = ["buf", "lint", image, "--config", str(ROOT / "buf.yaml"), "--path", "kvtransfer"]
        if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
            sys.exit("buf lint failed")


def check_drift() -> None:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = {path.relative_to(folder) for path in Path(folder).rglob("*_pb2*.py*")}
        committed = {path.relative_to(PYTHON) for path in (PYTHON / "kvtransfer" / "v1").glob("*_pb2*.py*")}
        stale = fresh ^ committed
        stale |= {name for name in fresh & committed if not filecmp.cmp(Path(folder) / name, PYTHON / name, False)}
    if stale:
        sys.exit("generated code is stale, run `make proto`: " + ", ".join(sorted(map(str, stale))))


if __name__ == "__main__":
    if sys.argv[1] == "generate":
        generate(Path(sys.argv[2]))
    else:
        lint()
        check_drift()
        print("protos: lint-clean, generated code up to date")
