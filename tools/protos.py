"""Generates the protobuf code, and checks the protos: they are lint-clean, break no released client, and generate the
code that is committed.

Runs in the generator's environment (requirements/gen.in); `buf` and the Go generators are looked up on PATH.
"""

import filecmp
import shutil
import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
RELEASED = PROTOS / "released"
"""An image of the API for each release, by its version."""
PYTHON = ROOT / "clients" / "python"
GO = ROOT / "clients" / "go"
GO_MODULE = "github.com/kvtransfer/kvtransfer/clients/go"
GENERATED = (("*_pb2*.py*", PYTHON), ("*.pb.go", GO))
"""Which files are generated, and what they are relative to."""


def run_protoc(*args: str, only: str = "*") -> None:
    import google.rpc

    googleapis = Path(google.rpc.__path__[0]).parent.parent
    builtin = resources.files("grpc_tools") / "_proto"
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob(f"{only}.proto"))
    paths = [f"-I{path}" for path in (PROTOS, googleapis, builtin)]
    if protoc.main(["protoc", *paths, *args, *sources]) != 0:
        sys.exit("protoc failed")


def generate_python(out: Path) -> None:
    """Writes the Python code under `out`."""
    run_protoc(f"--python_out={out}", f"--pyi_out={out}")
    run_protoc(f"--grpc_python_out={out}", f"--mypy_grpc_out=quiet:{out}", only="service")


def generate_go(out: Path) -> None:
    """Writes the Go code under `out`."""
    run_protoc(f"--go_out={out}", f"--go_opt=module={GO_MODULE}")
    run_protoc(f"--go-grpc_out={out}", f"--go-grpc_opt=module={GO_MODULE}", only="service")


def can_generate_go() -> bool:
    return all(shutil.which(name) for name in ("protoc-gen-go", "protoc-gen-go-grpc"))


def write_image(out: Path, *args: str) -> None:
    """Writes the API as one file: in place buf cannot resolve google/rpc/status.proto, an image carries it."""
    run_protoc("--include_imports", f"--descriptor_set_out={out}", *args)


def buf(*command: str | Path) -> bool:
    """Whether buf, which prints what it finds, finds nothing."""
    rules = ("--config", ROOT / "buf.yaml", "--path", "kvtransfer")
    return subprocess.run(["buf", *command, *rules], cwd=ROOT, check=False).returncode == 0


def check_api() -> None:
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "image.binpb"
        write_image(image, "--include_source_info")
        if not buf("lint", image):
            sys.exit("buf lint failed")
        for released in sorted(RELEASED.glob("*.binpb")):
            if not buf("breaking", image, "--against", released):
                sys.exit(f"clients of {released.stem} would break: fields and calls may be added, not changed")


def keep_release(version: str) -> None:
    """Writes the image of a release, once: what was released never changes."""
    out = RELEASED / f"{version}.binpb"
    if out.exists():
        sys.exit(f"{out.relative_to(ROOT)} is there already")
    RELEASED.mkdir(exist_ok=True)
    write_image(out)


def check_drift() -> None:
    stale: set[Path] = set()
    with tempfile.TemporaryDirectory() as folder:
        generate_python(Path(folder))
        if can_generate_go():
            generate_go(Path(folder))
        for pattern, root in GENERATED if can_generate_go() else GENERATED[:1]:
            fresh = {path.relative_to(folder) for path in Path(folder).rglob(pattern)}
            committed = {path.relative_to(root) for path in (root / "kvtransfer" / "v1").glob(pattern)}
            stale |= fresh ^ committed
            stale |= {name for name in fresh & committed if not filecmp.cmp(Path(folder) / name, root / name, False)}
    if stale:
        sys.exit("generated code is stale, run `make proto`: " + ", ".join(sorted(map(str, stale))))


def say_what_of_go() -> None:
    if not can_generate_go():
        print("protos: Go code left alone, there is no Go toolchain")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["generate"]:
            generate_python(PYTHON)
            if can_generate_go():
                generate_go(GO)
            say_what_of_go()
        case ["check"]:
            check_api()
            check_drift()
            print("protos: lint-clean, nothing breaks, generated code up to date")
            say_what_of_go()
        case ["release", version]:
            keep_release(version)
        case _:
            sys.exit("usage: protos.py generate | check | release VERSION")
