"""Runs the steps of a vector."""

import dataclasses
import json
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvtransfer.client import Client
from kvtransfer.errors import KVTransferError
from transport.blocking import Connect
from transport.running import RunningServer

from kvservice.config import Config, parse
from vectors import client as unary
from vectors.client import Json
from vectors.matching import filled, mismatch, picked, unheard
from vectors.streams import LIMIT, Open, OpenSession, OpenWatch

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Step:
    """See README.md."""

    about: str = ""
    call: str = ""
    request: Json = field(default_factory=dict)
    answer: Json | None = None
    error: Json | None = None
    save: dict[str, str] = field(default_factory=dict)
    repeat: bool = False
    open: str = ""
    on: str = ""
    send: Json | None = None
    receive: Json | None = None
    close: str = ""
    drain: bool = False


@dataclass(frozen=True)
class Vector:
    """See README.md."""

    about: str
    steps: list[Step]
    flags: list[str] = field(default_factory=list)
    after: str = ""
    let: Json = field(default_factory=dict)


def load(path: Path) -> Vector:
    """Raises TypeError for a field that has no meaning."""
    said = json.loads(path.read_text())
    steps = [Step(**step) for step in said.pop("steps")]
    return Vector(steps=steps, **said)


def run(vector: Vector, connect: Connect = Client) -> None:
    """By a client that `connect` makes. Raises AssertionError that names the step that came out otherwise."""
    with ExitStack() as opened:
        server = opened.enter_context(RunningServer(**dataclasses.asdict(_config(vector.flags))))
        client = opened.enter_context(connect(server.target))
        _Runner(server, client, opened).run(vector)


def _config(flags: list[str]) -> Config:
    """Without a wait for rooms that are left open at the end, unless the flags want one."""
    return parse(["--port", "0", "--drain-grace", "0", *flags], {}, "vectors")


class _Runner:
    def __init__(self, server: RunningServer, client: Client, opened: ExitStack) -> None:
        self._server = server
        self._client = client
        self._opened = opened
        self._open: dict[str, Open] = {}
        self._variables: Json = {}

    def run(self, vector: Vector) -> None:
        if vector.after:
            self.run(load(FOLDER / vector.after))
        self._variables.update(vector.let)
        for number, step in enumerate(vector.steps, 1):
            problem = self._take(step)
            assert problem is None, f"{vector.about} Step {number} ({step.about or step.call or step.on}): {problem}"

    def _take(self, step: Step) -> str | None:
        if step.open:
            stream: Open = (
                OpenSession(self._server.target)
                if step.call == "Session"
                else OpenWatch(self._client, self._filled(step.request))
            )
            self._open[step.open] = stream
            self._opened.callback(stream.close)
        elif step.call:
            return self._call_until_right(step)
        elif step.on:
            return self._on(self._open[step.on], step)
        elif step.close:
            self._open[step.close].close()
        elif step.drain:
            stopping = threading.Thread(target=self._server.stop, name="drain")
            stopping.start()
            self._opened.callback(stopping.join)
        else:
            raise AssertionError(f"{step} does nothing")
        return None

    def _call_until_right(self, step: Step) -> str | None:
        give_up = time.monotonic() + (LIMIT if step.repeat else 0)
        while (problem := self._call(step)) is not None and time.monotonic() < give_up:
            time.sleep(0.02)
        return problem

    def _call(self, step: Step) -> str | None:
        assert (step.answer is None) != (step.error is None), "a call has an answer or an error"
        try:
            answer = unary.call(self._client, step.call, self._filled(step.request))
        except KVTransferError as error:
            if step.error is None:
                return f"unexpected {error!r}"
            return mismatch(self._filled(step.error), unary.error_as_json(error))
        if step.error is not None:
            return f"expected {step.error}, got {answer}"
        self._variables.update({name: picked(answer, path) for name, path in step.save.items()})
        return mismatch(self._filled(step.answer), answer)

    def _on(self, stream: Open, step: Step) -> str | None:
        if step.send is not None:
            stream.send(self._filled(step.send))
            return None
        if step.receive is not None:
            expected = self._filled(step.receive)
            return stream.heard.wait(lambda messages: unheard(expected, messages))
        ended = stream.heard.end()
        return "it did not end with an error" if ended is None else mismatch(step.error, unary.error_as_json(ended))

    def _filled(self, value: Any) -> Any:
        return filled(value, self._variables)
