"""A traffic replay through service, workers and real transfers, without a model: latencies, and rooms over time."""

import argparse
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvtransfer import v1 as pb
from kvtransfer.client import Client

from benchmarks import machine
from benchmarks.chart import stacked
from benchmarks.pair import WrongBytes
from benchmarks.processes import ROOT, Child, kvservice, together
from benchmarks.replay_engines import Decoded, DecodeEngine, Prefilled, PrefillEngine, Request
from benchmarks.report import Column, Report, percentile
from benchmarks.shapes import PAGE_TOKENS, SMALL_PIECES

PROMPTS = 50
INPUT_TOKENS = 8192
OUTPUT_TOKENS = 512
REQUESTS_PER_S = 1.0
PREFILL_TOKENS_S = 16384
"""A prompt takes half a second of the prefill engine, so that it is busy half of the time."""
STEP_S = 0.015
"""Of the decode engine: 67 tokens a second for each request, so that some 8 run at a time."""
PREFILL_PROMPTS = 4
"""That the pool has room for. As the next."""
DECODE_PROMPTS = 16
SAMPLE_S = 0.1
LEAD_S = 0.5
CHART = ROOT / ".cache" / "replay.svg"

COLUMNS = (
    Column("phase", "phase"),
    Column("mean_ms", "mean ms", 1),
    Column("p50_ms", "p50 ms", 1),
    Column("p90_ms", "p90 ms", 1),
    Column("p99_ms", "p99 ms", 1),
    Column("max_ms", "max ms", 1),
)
PHASES: dict[str, Callable[["Served"], float]] = {
    "queue": lambda one: one.prefilled.began - one.request.arrives_at,
    "prefill": lambda one: one.prefilled.computed - one.prefilled.began,
    "wait for pages to decode in": lambda one: one.decoded.joined - one.request.arrives_at,
    "KV arrives after both": lambda one: one.decoded.arrived - max(one.prefilled.computed, one.decoded.joined),
    "wait for a step, and its end": lambda one: one.decoded.first_token - one.decoded.arrived,
    "time to first token": lambda one: one.decoded.first_token - one.request.arrives_at,
    "time per output token": lambda one: (one.decoded.last_token - one.decoded.first_token) / (one.decoded.tokens - 1),
    "end to end": lambda one: one.decoded.last_token - one.request.arrives_at,
}
STATES = {
    pb.KV_POLL_BOOTSTRAPPING: "bootstrapping",
    pb.KV_POLL_WAITING_FOR_INPUT: "waiting for input",
    pb.KV_POLL_TRANSFERRING: "transferring",
    pb.KV_POLL_FAILED: "failed",
}
"""Of rooms in the chart. The service lists those that ended well for a while yet, though nobody holds them any more."""


@dataclass(frozen=True, slots=True)
class Served:
    """A request, and what both engines saw of it."""

    request: Request
    prefilled: Prefilled
    decoded: Decoded


@dataclass(frozen=True, slots=True)
class Sample:
    """Rooms of the service by poll, at a time on CLOCK_MONOTONIC."""

    at: float
    rooms: Counter[int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `run` reads."""
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="X", help="tokens in and out are X times as many [1]"
    )
    parser.add_argument("--chart", type=Path, default=CHART, metavar="FILE", help=f"SVG [{CHART.relative_to(ROOT)}]")


def run(arguments: argparse.Namespace) -> Report:
    """Replays, and draws. Raises WrongBytes."""
    tokens = round(INPUT_TOKENS * arguments.scale / PAGE_TOKENS) * PAGE_TOKENS
    output_tokens = round(OUTPUT_TOKENS * arguments.scale)
    if tokens < PAGE_TOKENS or output_tokens < 2:
        sys.exit(f"--scale: must leave a page in and two tokens out, got {arguments.scale}")
    served, samples = replay(PROMPTS, tokens, output_tokens, REQUESTS_PER_S)
    arguments.chart.parent.mkdir(parents=True, exist_ok=True)
    arguments.chart.write_text(draw(served, samples))
    print(f"chart: {arguments.chart}", file=sys.stderr)
    return summary(served)


def replay(prompts: int, tokens: int, output_tokens: int, rate: float) -> tuple[list[Served], list[Sample]]:
    """Serves so many requests, which come at random, `rate` a second. Raises WrongBytes."""
    shape = SMALL_PIECES.best()
    sender = shape.with_tokens(tokens, PREFILL_PROMPTS * tokens // PAGE_TOKENS)
    receiver = shape.with_tokens(tokens, DECODE_PROMPTS * tokens // PAGE_TOKENS)
    with (
        kvservice() as service,
        Client(service.target) as client,
        Child(PrefillEngine, service.target, sender) as prefill,
        Child(DecodeEngine, service.target, receiver) as decode,
    ):
        together((prefill, decode), "wait_ready")
        requests = _requests(prompts, tokens, output_tokens, rate)
        prefill.begin("serve", requests)
        decode.begin("serve", requests, STEP_S)
        samples = []
        while not decode.ended():
            samples.append(_sample(client))
            time.sleep(SAMPLE_S)
        served = [Served(*each) for each in zip(requests, prefill.end(), decode.end(), strict=True)]
        # The last request on each page left its bytes there.
        last = {one.decoded.pages[0]: one for one in sorted(served, key=lambda one: one.decoded.arrived)}
        for one in last.values():
            if wrong := decode.call("wrong_pieces", one.decoded.pages, one.prefilled.pages):
                raise WrongBytes(f"{wrong} pieces do not hold what was sent to them")
    return served, samples


def summary(served: Sequence[Served]) -> Report:
    """A row for each phase."""
    first, last = served[0].request.arrives_at, max(one.decoded.last_token for one in served)
    tokens, output_tokens = served[0].request.tokens, served[0].request.output_tokens
    gigabytes = sum(len(one.decoded.pages) for one in served) * SMALL_PIECES.nbytes / SMALL_PIECES.pages / 1e9
    notes = (
        f"{len(served)} requests, at random {REQUESTS_PER_S:g} a second; {tokens} tokens in, {output_tokens} out;",
        f"all served in {last - first:.1f} s. Service, workers and transfers are real: {gigabytes:.1f} GB of SmolLM2's",
        "pages, page-major and huge. Compute is waited for: one prompt at a time in chunks, at",
        f"{PREFILL_TOKENS_S} tokens a second, and steps of {STEP_S * 1e3:g} ms for all that decode.",
        "queue: from the arrival at the router to the first chunk. KV arrives after both: from the last chunk's end,",
        "and the receiver's join, to its Success: all that moving adds. What the last requests left in the pages was",
        "checked, byte for byte.",
    )
    report = Report("replay", machine.describe(), COLUMNS, notes)
    for phase, seconds in PHASES.items():
        took = [seconds(one) * 1e3 for one in served]
        report.rows.append(
            {
                "phase": phase,
                "mean_ms": sum(took) / len(took),
                **{f"p{percent}_ms": percentile(took, percent) for percent in (50, 90, 99)},
                "max_ms": max(took),
            }
        )
    return report


def draw(served: Sequence[Served], samples: Sequence[Sample]) -> str:
    """Rooms by the service's word, and on top of them the requests that decode without one."""
    began = samples[0].at
    series = {name: [sample.rooms[poll] for sample in samples] for poll, name in STATES.items()}
    if not any(series["failed"]):
        del series["failed"]
    series["decoding, no room"] = [
        sum(one.decoded.arrived <= sample.at < one.decoded.last_token for one in served) for sample in samples
    ]
    times = [sample.at - began for sample in samples]
    return stacked("Rooms over time", "seconds", times, series)


def _requests(prompts: int, tokens: int, output_tokens: int, rate: float) -> list[Request]:
    """The same in each run, but for when it begins and the rooms' numbers."""
    drawn, room = random.Random(7), secrets.randbits(40) + 1
    at, requests = time.monotonic() + LEAD_S, []
    for number in range(prompts):
        requests.append(Request(room + number, at, tokens, output_tokens, tokens / PREFILL_TOKENS_S))
        at += drawn.expovariate(rate)
    return requests


def _sample(client: Client) -> Sample:
    rooms = Counter(int(transfer.poll) for transfer in client.list_transfers(polls=STATES))
    return Sample(time.monotonic(), rooms)
