"""Messages in the sources, and their quotations in docs/troubleshooting.md: what differs each time is `...`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()

_PYTHON = ("kvservice", "clients/python/kvtransfer", "examples", "scripts", "tools")
_GO = ("clients/go/kvtransfer", "examples/go-router")
_VERB = re.compile(r"%(?:\.\d+)?[a-z]")


def quotations() -> list[str]:
    """In order of the page."""
    return re.findall(r"^> `(.+)`$", PAGE, re.MULTILINE)


def messages() -> set[str]:
    """Every text in the sources that somebody might see."""
    found: set[str] = set()
    for folder in _PYTHON:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(in_python(path.read_text()))
    for folder in _GO:
        for path in sorted((ROOT / folder).glob("*.go")):
            if not path.name.endswith("_test.go"):
                found.update(in_go(path.read_text()))
    return found


def in_python(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node not in docstrings and (text := _text(node)) is not None:
            yield _plain(_VERB.sub("...", text))


def _text(node: ast.expr) -> str | None:
    """Of a literal, or of literals and variables put together."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in parts)
    return None


def in_go(source: str) -> Iterator[str]:
    literal = r'"(?:[^"\\\n]|\\.)*"'
    for joined in re.findall(rf"{literal}(?:\s*\+\s*{literal})*", source):
        text = "".join(part[1:-1] for part in re.findall(literal, joined))
        yield _plain(_VERB.sub("...", text.replace('\\"', '"')))


def _plain(text: str) -> str:
    """On one line, with one `...` for several."""
    return re.sub(r"(\.\.\.){2,}", "...", " ".join(text.split()))
