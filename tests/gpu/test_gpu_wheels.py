"""What a machine without a network is brought."""

import re
import zipfile
from pathlib import Path

from scripts.gpu_wheels import ROOT, trim


def locked(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+) \\$", text, re.MULTILINE))


def test_versions_are_those_that_the_demo_is_tested_with() -> None:
    ours, tested = locked("gpu.lock"), locked("demo.lock")
    oldest = {"grpcio-health-checking", "grpcio-reflection"}  # they go with any grpcio and protobuf that we support
    assert {name: version for name, version in ours.items() if tested[name] != version}.keys() == oldest
    assert {"nixl", "nixl-cu13", "numpy", "aiohttp", "tenacity"} < ours.keys()
    assert not {"torch", "grpcio", "protobuf", "tokenizers", "gguf"} & ours.keys()


def test_a_trimmed_wheel_has_what_is_used_and_a_record_of_that_alone(tmp_path: Path) -> None:
    wheel = tmp_path / "nixl_cu13-1.5.1-cp312-cp312-manylinux_2_28_x86_64.whl"
    used = ["nixl_cu13/_api.py", "nixl_cu13.libs/ucx/libuct_cuda.so", "nixl_cu13-1.5.1.dist-info/METADATA"]
    unused = ["nixl_ep_cu13/buffer.py", "nixl_cu13-1.5.1.data/headers/asio.hpp"]
    record = "nixl_cu13-1.5.1.dist-info/RECORD"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in used + unused:
            archive.writestr(name, name)
        archive.writestr(record, "".join(f"{name},sha256=x,1\n" for name in used + unused))
    trim(wheel)
    with zipfile.ZipFile(wheel) as archive:
        assert archive.namelist() == [*used, record]
        assert archive.read(used[0]).decode() == used[0]
        assert archive.read(record).decode() == "".join(f"{name},sha256=x,1\n" for name in used)
    assert list(tmp_path.iterdir()) == [wheel]
