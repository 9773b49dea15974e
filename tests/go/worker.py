"""A worker whose control plane is Go's `kvtransfer.Worker`, with a real NIXL agent and memory, driven through a pipe.

The test's child process holds the memory and NIXL's mover, and has a child of its own, the Go program
(clients/go/internal/driven): lines of JSON carry the engine's calls and the data plane's events there, and answers and
the data plane's actions back. The Go worker decides what may be written, when pages are free, what the service is told.
"""

import json
import os
import signal
import subprocess
import threading
import time
import uuid
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from kvtransfer import Failure, KVPoll, Released
from kvtransfer import v1 as pb
from kvtransfer.actions import (
    NOTIFICATION_PREFIX,
    AddPeer,
    Cancel,
    Drain,
    DropPeer,
    Items,
    LinkStats,
    Notify,
    Outcome,
    Post,
)
from kvtransfer.layout import LocalMemory
from kvtransfer.mover import Mover

from tests.e2e.workers import Setup, Worker
from tests.worker.pools import Bytes, build, describe_groups

ANSWER_TIMEOUT = 20.0


@dataclass(frozen=True)
class GoSetup(Setup):
    """As of a Python worker."""

    program: str = ""
    """The Go program, built."""


class InGo:
    """What runs in the process beside the Go program's: commands, and what its mover tells."""

    def __init__(self, setup: GoSetup) -> None:
        os.setpgid(0, 0)  # it is stopped and killed together with the Go program
        self._instance_id = str(uuid.uuid4())
        self._pools = [build(spec, setup.seed + i) for i, spec in enumerate(setup.specs)]
        memory = LocalMemory(setup.model, describe_groups(self._pools))
        self._met: set[str] = set()
        self._answers: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._drawn = 0
        self._written_at = 0.0
        self._mover = Mover(self._instance_id, memory, self)
        metadata = self._mover.start()
        self._program = subprocess.Popen(
            [setup.program, setup.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()
        registration = pb.RegisterWorkerRequest(
            engine_id=setup.engine_id,
            role=pb.ROLE_PREFILL if setup.role == "prefill" else pb.ROLE_DECODE,
            instance_id=self._instance_id,
            layout=memory.layout,
            nixl_metadata=metadata,
            exited_instances=setup.exited_instances,
        )
        if setup.lease_ttl is not None:
            registration.lease_ttl.FromNanoseconds(int(setup.lease_ttl * 1e9))
        self._ask("start", registration=_text(registration.SerializeToString()))

    # --- commands, as of a worker in Python ---

    def ready(self) -> bool:
        known = self._ask("known")
        return bool(known["open"] and known["peers"]) and self._met >= set(known["peers"])

    def ids(self) -> tuple[str, str]:
        return self._ask("known")["worker_id"], self._instance_id

    def epoch(self) -> int:
        return int(self._ask("known")["epoch"])

    def peers(self) -> list[str]:
        """Instances of the other side that have been met."""
        return sorted(self._met & set(self._ask("known")["peers"]))

    def drain(self, draining: bool = True) -> None:
        self._ask("drain", draining=draining)

    def sender(self, room: int, tokens: int) -> None:
        self._ask("sender", room=room, tokens=tokens)

    def send(
        self, room: int, pages: Mapping[str, Sequence[int]], *, slots: Mapping[str, int], last: bool = True
    ) -> None:
        assert last, "it sends all at once"
        self._ask("send", room=room, pages=pages, slots=slots)

    def send_fenced(
        self, room: int, pages: Mapping[str, Sequence[int]], seconds: float, *, slots: Mapping[str, int]
    ) -> None:
        """The memory is declared written only after some seconds."""
        self._written_at = time.monotonic() + seconds
        self.send(room, pages, slots=slots)

    def receiver(self, room: int, prefill_engine: str) -> None:
        self._ask("receiver", room=room, prefill_engine=prefill_engine)

    def offer(
        self,
        room: int,
        tokens: int,
        pages: Mapping[str, Sequence[int]],
        *,
        slots: Mapping[str, int],
        prefix_tokens: int = 0,
    ) -> None:
        self._ask("offer", room=room, tokens=tokens, pages=pages, slots=slots, prefix_tokens=prefix_tokens)

    def poll(self, room: int) -> KVPoll:
        return KVPoll(self._ask("state", room=room)["poll"])

    def room_poll(self, room: int) -> KVPoll:
        return KVPoll(self._ask("state", room=room)["room_poll"])

    def failure(self, room: int) -> Failure | None:
        told = self._ask("state", room=room)["failure"]
        return told and Failure(*told)

    def release(self, room: int) -> str:
        """What the service said of the worker's pages last."""
        return str(self._ask("state", room=room)["release"])

    def abort(self, room: int, message: str) -> None:
        self._ask("abort", room=room, message=message)

    def close_room(self, room: int) -> None:
        self._ask("close_room", room=room)

    def released(self) -> list[Released]:
        return [
            Released(told["room"], told["pages"] or {}, told["slots"] or {}, told["presumed"])
            for told in self._ask("released")
        ]

    def snapshot(self) -> list[list[Bytes]]:
        return [pool.backing for pool in self._pools]

    # --- what the mover tells ---

    def peer_ready(self, instance_id: str, stats: LinkStats) -> None:
        self._met.add(instance_id)

    def peer_failed(self, instance_id: str, error: str) -> None:
        self._met.discard(instance_id)

    def post_progress(self, post_id: int, moved: int) -> None:
        self._tell("progressed", post=post_id, moved=moved)

    def post_ended(self, post_id: int, outcome: Outcome, moved: int, error: str, disconnected: bool) -> None:
        self._tell("ended", post=post_id, outcome=outcome.name, moved=moved, error=error, disconnected=disconnected)

    def notified(self, sender: str, payload: bytes) -> None:
        self._tell("notified", payload=_text(NOTIFICATION_PREFIX + payload))

    def drained(self, token: int) -> None:
        self._tell("drained", token=token)

    def may_post(self, post_id: int) -> bool:
        return bool(self._ask("may_post", post=post_id))

    def mover_died(self, error: str) -> None:
        os._exit(1)

    # --- lines ---

    def _ask(self, call: str, **args: object) -> Any:
        """Has the Go program do something, and returns its answer."""
        answer: Future[Any] = Future()
        with self._lock:
            self._drawn += 1
            number = self._drawn
            self._answers[number] = answer
        self._write({"id": number, "call": call, "args": args})
        return answer.result(ANSWER_TIMEOUT)

    def _tell(self, call: str, **args: object) -> None:
        self._write({"id": 0, "call": call, "args": args})

    def _write(self, line: object) -> None:
        assert self._program.stdin is not None
        with self._lock:
            self._program.stdin.write(json.dumps(line) + "\n")
            self._program.stdin.flush()

    def _read(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            said = json.loads(line)
            if "action" in said:
                self._mover.submit(self._action(said))
                continue
            answer = self._answers.pop(said["id"])
            if said.get("error"):
                answer.set_exception(RuntimeError(said["error"]))
            else:
                answer.set_result(said["result"])

    def _action(self, said: Mapping[str, Any]) -> Any:
        """What the Go worker wants of its data plane."""
        match said["action"]:
            case "add_peer":
                return AddPeer(
                    pb.Peer.FromString(b64decode(said["peer"])),
                    pb.Layout.FromString(b64decode(said["layout"])),
                    b64decode(said["metadata"]),
                    tuple(pb.Link.FromString(b64decode(link)) for link in said["links"]),
                )
            case "drop_peer":
                return DropPeer(said["instance_id"])
            case "post":
                items = tuple(
                    Items(one["group"], np.array(one["sender"], np.int32), np.array(one["receiver"], np.int32))
                    for one in said["items"]
                )
                return Post(said["post"], said["receiver"], items, lambda: time.monotonic() > self._written_at)
            case "cancel":
                return Cancel(said["post"])
            case "notify":
                return Notify(said["instance_id"], b64decode(said["payload"]))
            case "drain":
                return Drain(said["token"])
        raise ValueError(said["action"])


def _text(raw: bytes) -> str:
    return b64encode(raw).decode()


class GoWorker(Worker):
    """Such a worker, seen from the test."""

    kind = InGo

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.process.join()

    def _signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.killpg(self.process.pid, number)
