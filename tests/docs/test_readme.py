"""The README shows what is there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_minimal_engine_is_the_file(side: str) -> None:
    path = f"examples/minimal/{side}.py"
    shown = re.search(rf"<!-- {re.escape(path)} -->\n```python\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    assert shown[1] == (ROOT / path).read_text()
    assert len(shown[1].splitlines()) < 40


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_help_names_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE):
        assert f"make {target} " in shown, target
