"""Workers in processes of their own: each has pools and a mover on real NIXL, and is driven through a pipe."""

import multiprocessing as mp
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

from kvtransfer import v1 as pb
from kvtransfer.actions import Action, AddPeer, Cancel, LinkStats, Outcome, Post
from kvtransfer.mover import Mover
from kvtransfer.nixl_agent import NixlAgent

from tests.waiting import wait_for

from .pools import Bytes, GroupSpec, Pool, build, describe, link


@dataclass(frozen=True)
class Event:
    """One call of `MoverEvents`, by its name."""

    name: str
    args: tuple[Any, ...]
    thread: str
    """Whose turn it was."""


class Recorder:
    """Passes each event on through the pipe, and does at a piece or an event what the test asked for."""

    def __init__(self, pipe: Connection) -> None:
        self.lock = threading.Lock()
        self.pipe = pipe
        self.asked = 0
        """Pieces that were asked for since the last `at_piece`."""
        self.at: int | None = None
        self.act: Callable[[int], bool] = lambda post_id: True
        self.raise_in = ""
        self.notifications = 0
        self.died = False

    def tell(self, *message: object) -> None:
        with self.lock:
            self.pipe.send(message)

    def event(self, name: str, *args: object) -> None:
        self.tell("event", Event(name, args, threading.current_thread().name))

    def may_post(self, post_id: int) -> bool:
        self.asked += 1
        return self.asked != self.at or self.act(post_id)

    def peer_ready(self, instance_id: str, stats: LinkStats) -> None:
        self.event("peer_ready", instance_id, stats)

    def peer_failed(self, instance_id: str, error: str) -> None:
        self.event("peer_failed", instance_id, error)

    def post_progress(self, post_id: int, moved: int) -> None:
        self.event("post_progress", post_id, moved)

    def post_ended(self, post_id: int, outcome: Outcome, moved: int, error: str, disconnected: bool) -> None:
        if self.raise_in == "post_ended":
            raise RuntimeError("an event went wrong")
        self.event("post_ended", post_id, outcome, moved, error, disconnected)

    def notified(self, sender: str, payload: bytes) -> None:
        if self.raise_in == "notified":
            raise RuntimeError("an event went wrong")
        self.notifications += 1
        self.event("notified", sender, payload)

    def drained(self, token: int) -> None:
        self.event("drained", token)

    def mover_died(self, error: str) -> None:
        self.died = True
        self.event("mover_died", error)


class InProcess:
    """What runs in the worker's process; each method is a command."""

    def __init__(self, pipe: Connection, name: str, specs: Sequence[GroupSpec], seed: int, timeout_s: float) -> None:
        self.pools = [build(spec, seed + i) for i, spec in enumerate(specs)]
        self.memory = describe(self.pools)
        self.recorder = Recorder(pipe)
        self.mover = Mover(name, self.memory, self.recorder, peer_timeout_s=timeout_s)
        self.fences: dict[int, bool] = {}

    def start(self) -> tuple[bytes, bytes]:
        self.descriptors_before = open_files()
        return self.mover.start(), self.memory.layout.SerializeToString()

    def submit(self, action: Action) -> None:
        self.mover.submit(action)

    def lend_fenced(self, action: Post) -> str:
        """The main thread brings a post with a fence. The thread that asked it."""
        asked: list[str] = []

        def fence() -> bool:
            asked.append(threading.current_thread().name)
            return True

        self.lend(replace(action, ready=fence))
        wait_for(lambda: asked, bool)
        return asked[0]

    def lend(self, action: Action) -> None:
        """The main thread brings work, and takes the turn for it."""
        self.mover.queue(action)
        self.mover.lend()

    def look_for(self, notifications: int) -> None:
        """The main thread looks until so many have come since the start."""
        deadline = time.monotonic() + 15
        self.mover.look()
        while self.recorder.notifications < notifications and time.monotonic() < deadline:
            self.mover.look()

    def look_often(self, seconds: float) -> tuple[int, int, float]:
        """Looks for so long: how often, how many of the looks asked NIXL, and how long it was."""
        polls, looks, look = 0, 0, NixlAgent.notifications

        def counted(agent: NixlAgent) -> dict[str, list[bytes]]:
            nonlocal looks
            looks += threading.current_thread() is threading.main_thread()
            return look(agent)

        with patch.object(NixlAgent, "notifications", counted):
            began = time.monotonic()
            while (took := time.monotonic() - began) < seconds:
                self.mover.look()
                polls += 1
            return polls, looks, took

    def interrupt_looks(self, times: int) -> None:
        """The main thread looks, and so many times a signal's handler interrupts it and raises."""

        def interrupt(*_: object) -> None:
            raise TimeoutError

        former = signal.signal(signal.SIGALRM, interrupt)
        for nth in range(times):
            with suppress(TimeoutError):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 + nth * 1e-7)
                while True:
                    self.mover.look()
        signal.signal(signal.SIGALRM, former)

    def lend_slowly(self, actions: Sequence[Post], seconds: float) -> list[str]:
        """The main thread brings work, each piece of which takes time; the threads that wrote them."""
        threads: list[str] = []

        def may_post(post_id: int) -> bool:
            threads.append(threading.current_thread().name)
            time.sleep(seconds)
            return True

        with patch.object(self.recorder, "may_post", may_post), patch("kvtransfer.mover.LEND_AGAIN_S", 60.0):
            for action in actions:
                self.mover.queue(action)
            self.mover.lend()
            wait_for(lambda: len(threads), lambda asked: asked == len(actions))
        return threads

    def hold_turn(self, action: Post) -> None:
        """The mover's thread is held in its turn until `reach`: its fence does not answer."""
        self.fences[action.post_id] = False
        began = threading.Event()

        def fence() -> bool:
            began.set()
            while not self.fences[action.post_id]:
                time.sleep(0.001)
            return True

        self.mover.submit(Post(action.post_id, action.receiver, action.items, fence))
        assert began.wait(15)

    def submit_fenced(self, action: Post) -> None:
        """The fence is not reached before `reach`."""
        self.fences[action.post_id] = False
        fence = lambda: self.fences[action.post_id]  # noqa: E731
        self.mover.submit(Post(action.post_id, action.receiver, action.items, fence))

    def reach(self, post_id: int) -> None:
        self.fences[post_id] = True

    def submit_broken(self, action: Post) -> None:
        """The fence raises."""

        def fence() -> bool:
            raise ValueError("the kernel failed")

        self.mover.submit(Post(action.post_id, action.receiver, action.items, fence))

    def wait_for_piece(self, number: int) -> None:
        """Until that piece, counted from 1 since the start or the last `..._at_piece`, is being posted."""
        deadline = time.monotonic() + 15
        while self.recorder.asked < number:
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.recorder.asked} pieces, not {number}")
            time.sleep(0.001)

    def refuse_at_piece(self, number: int | None) -> None:
        """Let `may_post` refuse the piece of that number, counted from 1 from now on."""
        self.recorder.asked, self.recorder.at, self.recorder.act = 0, number, lambda post_id: False

    def cancel_at_piece(self, number: int) -> None:
        """Submit a Cancel while that piece is about to be posted."""

        def cancel(post_id: int) -> bool:
            self.mover.submit(Cancel(post_id))
            return True

        self.recorder.asked, self.recorder.at, self.recorder.act = 0, number, cancel

    def raise_in(self, event: str) -> None:
        """Let an event raise."""
        self.recorder.raise_in = event

    def snapshot(self) -> list[list[Bytes]]:
        return [pool.backing for pool in self.pools]

    def close(self, timeout: float) -> tuple[list[str], list[str], float]:
        """Threads and open files that are left and were not there before `start`, and seconds."""
        began = time.monotonic()
        self.mover.close(timeout)
        took = time.monotonic() - began
        threads = [t.name for t in threading.enumerate() if t.name.startswith("kvtransfer")]
        return threads, sorted(open_files() - self.descriptors_before), took


def open_files() -> set[str]:
    """What this process has open, sockets above all."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:  # the listing's own
            continue
    return found


def _main(pipe: Connection, tls: str, name: str, specs: Sequence[GroupSpec], seed: int, timeout_s: float) -> None:
    os.environ |= {"UCX_NET_DEVICES": "lo", "UCX_TLS": tls}
    worker = InProcess(pipe, name, specs, seed, timeout_s)
    while True:
        command, args = pipe.recv()
        if command == "exit":
            os._exit(0)
        try:
            worker.recorder.tell("result", getattr(worker, command)(*args))
        except Exception as error:  # noqa: BLE001  shown where the command was given
            worker.recorder.tell("error", f"{type(error).__name__}: {error}")


class Worker:
    """A worker's process, seen from the test."""

    def __init__(self, specs: Sequence[GroupSpec], *, seed: int = 0, timeout_s: float = 10.0, tls: str = "all") -> None:
        self.name = str(uuid.uuid4())
        self.seed = seed
        self.specs = list(specs)
        self.events: list[Event] = []
        self._posts = 0
        self._pipe, theirs = mp.Pipe()
        arguments = (theirs, tls, self.name, self.specs, seed, timeout_s)
        self.process = mp.get_context("spawn").Process(target=_main, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self._started = False

    def start(self) -> None:
        self.metadata, layout = self.call("start")
        self.layout = pb.Layout.FromString(layout)

    def call(self, command: str, *args: object) -> Any:
        """Run a command there and return its result."""
        self._pipe.send((command, args))
        while True:
            kind, value = self._receive(30)
            if kind == "event":
                self.events.append(value)
            elif kind == "error":
                raise RuntimeError(value)
            else:
                return value

    def wait(self, name: str, *args: object, within: float = 15.0) -> Event:
        """The first event of that name whose first arguments are these; what came before it is kept."""
        deadline = time.monotonic() + within
        seen = 0
        while True:
            for event in self.events[seen:]:
                seen += 1
                if event.name == name and event.args[: len(args)] == args:
                    self.events.remove(event)
                    return event
            left = deadline - time.monotonic()
            if left <= 0 or not self._pipe.poll(left):
                raise AssertionError(f"no {name}{args} within {within} s, only {self.events}")
            _, event = self._receive(0)
            self.events.append(event)

    def original(self) -> list[Pool]:
        """The pools as they were built."""
        return [build(spec, self.seed + i) for i, spec in enumerate(self.specs)]

    def next_post(self) -> int:
        self._posts += 1
        return self._posts

    def pause(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def exit(self) -> None:
        if self.process.is_alive():
            self.resume()
            self._pipe.send(("exit", ()))
            self.process.join(5)
            if self.process.is_alive():
                self.kill()
        self._pipe.close()

    def _receive(self, within: float) -> tuple[str, Any]:
        if not self._pipe.poll(within):
            raise AssertionError(f"the worker said nothing within {within} s")
        kind, value = self._pipe.recv()
        return kind, value


def add_peer(worker: Worker, peer: Worker, links: Sequence[pb.Link]) -> None:
    """Let `worker` meet `peer`."""
    them = pb.Peer(worker_id=f"worker-of-{peer.name}", instance_id=peer.name)
    worker.call("submit", AddPeer(them, peer.layout, peer.metadata, tuple(links)))


def connect(sender: Worker, receiver: Worker) -> LinkStats:
    """Let two workers meet, and wait until both are ready; what the sender saw of the link."""
    links = [link(sender.name, receiver.name, sender.layout)]
    add_peer(sender, receiver, links)
    add_peer(receiver, sender, links)
    receiver.wait("peer_ready", sender.name)
    stats: LinkStats = sender.wait("peer_ready", receiver.name).args[1]
    return stats


@contextmanager
def running(*workers: Worker) -> Iterator[None]:
    """Start workers, and end them whatever happens."""
    try:
        for worker in workers:
            worker.start()
        yield
    finally:
        for worker in workers:
            worker.exit()
