"""Whole workers in processes of their own, on real NIXL and real gRPC, driven through a pipe."""

import multiprocessing as mp
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, ClassVar

import numpy as np
from kvtransfer import Failure, KVManager, KVPoll, PeerLink, Rank, Released, Timeouts, Topology
from kvtransfer.handles import KVReceiver, KVSender

from tests.waiting import wait_for
from tests.worker.pools import Bytes, GroupSpec, PartSpec, build, describe_groups

Handle = KVSender | KVReceiver

KV = GroupSpec("kv", 16, (PartSpec("k", "token_head", 3, 64), PartSpec("v", "token_head", 3, 64)), (0, 1, 2), 64)
AUX = GroupSpec("aux", 0, (PartSpec("first", "whole", 0, 400),), (0,), 16)


@dataclass(frozen=True)
class Setup:
    """What a worker is started with."""

    target: str
    engine_id: str
    role: str
    tp_size: int = 1
    tp_rank: int = 0
    specs: Sequence[GroupSpec] = (KV, AUX)
    seed: int = 0
    model: str = "test-model"
    lease_ttl: float | None = None
    exited_instances: Sequence[str] = ()


class InProcess:
    """What runs in the worker's process; each method is a command."""

    def __init__(self, setup: Setup) -> None:
        self.pools = [build(spec, setup.seed + i) for i, spec in enumerate(setup.specs)]
        self.manager = KVManager(
            setup.target,
            engine_id=setup.engine_id,
            role=setup.role,  # type: ignore[arg-type] # wrong ones are tried too
            model=setup.model,
            groups=describe_groups(self.pools),
            topology=Topology(tp_size=setup.tp_size),
            rank=Rank(tp_rank=setup.tp_rank),
            lease_ttl=setup.lease_ttl,
            exited_instances=setup.exited_instances,
        )
        self.handles: dict[int, Handle] = {}

    def ready(self) -> bool:
        return self.manager.ready()

    def links(self) -> list[PeerLink]:
        return self.manager.links()

    def ids(self) -> tuple[str, str]:
        return self.manager.worker_id, self.manager.instance_id

    def sender(self, room: int, tokens: int, timeouts: Timeouts | None = None) -> None:
        self.handles[room] = self.manager.sender(room, tokens, timeouts=timeouts)

    def receiver(self, room: int, prefill_engine: str, timeouts: Timeouts | None = None) -> None:
        self.handles[room] = self.manager.receiver(room, prefill_engine, timeouts=timeouts)

    def receiver_given_up(self, room: int, prefill_engine: str) -> None:
        """Joins and closes in one breath."""
        self.manager.receiver(room, prefill_engine).close()

    def send(self, room: int, pages: Mapping[str, Sequence[int]], **options: Any) -> None:
        handle = self.handles[room]
        assert isinstance(handle, KVSender)
        handle.send(pages, **options)

    def send_fenced(self, room: int, pages: Mapping[str, Sequence[int]], seconds: float, **options: Any) -> None:
        """The memory is declared written only after some seconds."""
        until = time.monotonic() + seconds
        self.send(room, pages, ready=lambda: time.monotonic() > until, **options)

    def offer(self, room: int, tokens: int, pages: Mapping[str, Sequence[int]], **options: Any) -> None:
        handle = self.handles[room]
        assert isinstance(handle, KVReceiver)
        handle.offer(tokens, pages, **options)

    def poll(self, room: int) -> KVPoll:
        return self.handles[room].poll()

    def written(self, room: int) -> int:
        """Chunks that are written to the first receiver."""
        handle = self.handles[room]
        assert isinstance(handle, KVSender)
        return next((target.done for target in handle._room.targets.values()), 0)

    def room_poll(self, room: int) -> KVPoll:
        return self.handles[room].room_poll()

    def failure(self, room: int) -> Failure | None:
        return self.handles[room].failure()

    def abort(self, room: int, message: str) -> None:
        self.handles[room].abort(message)

    def close_room(self, room: int) -> None:
        self.handles.pop(room).close()

    def drain(self, draining: bool = True) -> None:
        self.manager.drain(draining)

    def released(self) -> list[Released]:
        return self.manager.released()

    def snapshot(self) -> list[list[Bytes]]:
        return [pool.backing for pool in self.pools]

    def write(self, group: int, array: int, item: int, value: int) -> None:
        """Fills an item of a pool."""
        self.pools[group].backing[array][item] = value

    def open_rooms(self) -> int:
        with self.manager._core.step() as rooms:
            return len(rooms.rooms) + rooms.in_flight

    def threads(self) -> list[str]:
        return sorted(t.name for t in threading.enumerate() if t.name.startswith("kvtransfer"))

    def close(self) -> list[str]:
        """Threads that are left afterwards."""
        self.manager.close()
        return self.threads()


def _main(pipe: Connection, kind: type[Any], setup: Setup) -> None:
    worker: Any = None
    while True:
        command, args, options = pipe.recv()
        if command == "exit":
            os._exit(0)
        try:
            if worker is None:
                worker = kind(setup)
            result = getattr(worker, command)(*args, **options)
            pipe.send(("result", result))
        except Exception as error:  # noqa: BLE001 - shown where the command was given
            pipe.send(("error", (type(error).__name__, str(error))))


class Refused(Exception):
    """A command raised in the worker: the error's class and text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class Worker:
    """A worker's process, seen from the test."""

    kind: ClassVar[type[Any]] = InProcess
    """Made there of the setup; its methods are the commands."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        os.environ["UCX_NET_DEVICES"] = "lo"
        self._pipe, theirs = mp.Pipe()
        self.process = mp.get_context("spawn").Process(target=_main, args=(theirs, self.kind, setup), daemon=True)
        self.process.start()
        theirs.close()

    def call(self, command: str, *args: object, **options: object) -> Any:
        """Runs a command there and returns its result. Raises Refused."""
        self._pipe.send((command, args, options))
        assert self._pipe.poll(30), f"{self.setup.engine_id} did not answer {command}"
        kind, value = self._pipe.recv()
        if kind == "error":
            raise Refused(*value)
        return value

    def wait_poll(self, room: int, wanted: KVPoll, within: float = 10.0) -> None:
        """Waits until the worker's own poll is `wanted`."""
        seen = wait_for(lambda: self.call("poll", room), lambda poll: poll is wanted or poll.final, within)
        assert seen is wanted, f"{self.setup.engine_id}: {seen!r} {self.call('failure', room)}"

    def wait_released(self, count: int = 1, within: float = 10.0) -> list[Released]:
        """Waits until that many releases came."""
        came: list[Released] = []

        def more() -> int:
            came.extend(self.call("released"))
            return len(came)

        wait_for(more, lambda number: number >= count, within)
        return came

    def original(self) -> list[list[Bytes]]:
        """The memory as it was at the start."""
        return [build(spec, self.setup.seed + i).backing for i, spec in enumerate(self.setup.specs)]

    def stop(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def exit(self) -> None:
        """Ends the process, whatever state it is in."""
        if self.process.is_alive():
            self.go_on()
            self._pipe.send(("exit", (), {}))
            self.process.join(5)
            if self.process.is_alive():
                self.kill()
        self._pipe.close()


@contextmanager
def engines(*setups: Setup) -> Iterator[list[Worker]]:
    """Workers of engines that have met."""
    with met([Worker(setup) for setup in setups]) as workers:
        yield workers


@contextmanager
def met(workers: list[Worker]) -> Iterator[list[Worker]]:
    """Waits until workers have met each other, and ends them in the end."""
    try:
        for worker in workers:
            worker.call("ids")
        for worker in workers:
            wait_for(lambda worker=worker: worker.call("ready"), bool, 20)  # type: ignore[misc]
        yield workers
    finally:
        for worker in workers:
            worker.exit()


def same(left: Sequence[Sequence[Bytes]], right: Sequence[Sequence[Bytes]]) -> bool:
    """Whether two snapshots hold the same bytes."""
    return all(
        np.array_equal(a, b)
        for group, other in zip(left, right, strict=True)
        for a, b in zip(group, other, strict=True)
    )
