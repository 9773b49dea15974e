"""Asks a prefill and a decode engine, in processes of their own, for answers, and checks that every one is right.

make demo, or python -m examples.pd_llm.demo. Exit status 0 only if every check passes.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

from . import checks, notes, report, stack
from .checks import Run
from .children import ChildDied, Children
from .config import MODELS
from .damage import Damage
from .prompts import waves
from .result import Result, from_response
from .routers import ROUTERS, NoRouter
from .stack import NoDevice, Options, Stack

PAGE_TOKENS = 16

Say = Callable[[str], None]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo ARGS=", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="smollm2", help="random: weights from a seed")
    parser.add_argument("--tp", type=int, choices=[1, 3], default=1, help="ranks of each engine (default 1)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: GPU 0, decode on 1 if there")
    parser.add_argument("--router", choices=ROUTERS, default="python", help="whose /generate (default python)")
    parser.add_argument("--prompts", type=int, metavar="N", help="only the first N prompts")
    parser.add_argument("--new-tokens", type=int, default=16, metavar="N", help="tokens of each answer (default 16)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a report")
    parser.add_argument("--break", dest="damage", type=Damage, choices=list(Damage), help="spoil it: the run must fail")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="kvtransfer-demo-") as folder:
        try:
            sys.exit(asyncio.run(demo(args, Path(folder))))
        except (ChildDied, NoDevice, NoRouter, TimeoutError) as failed:
            sys.exit(f"demo: {failed}")
        except (KeyboardInterrupt, asyncio.CancelledError):
            sys.exit("demo: interrupted; every process has ended")


async def demo(args: argparse.Namespace, folder: Path) -> int:
    """Run it in an empty folder; gives the exit status."""
    say: Say = (lambda _: None) if args.json else lambda line: print(line, flush=True)
    end_on_sigterm()
    await asyncio.to_thread(stack.set_up, args.model, say)
    evidence = folder / "evidence"
    evidence.mkdir()
    options = Options(
        model=args.model,
        tp=args.tp,
        device=args.device,
        timeout_s=300,
        evidence=evidence,
        damage=args.damage,
        router=args.router,
    )
    prompts = waves(args.prompts)
    began = time.monotonic()
    async with Children(folder) as children:
        running = await children.guard(stack.start(children, folder, options))
        say(f"kvservice, prefill, decode and router serve after {time.monotonic() - began:.1f} s")
        results = await children.guard(ask_all(running, prompts, args.new_tokens, say))
        await children.guard(until_idle(running))
        await children.stop()  # the ranks write their last notes, and leave the processor to the reference
        say("computing every answer again in one process, for reference")
        run = await compare(children, folder, options, results, args.new_tokens)
    outcome = checks.check(run)
    print(json.dumps(report.as_json(run, running, outcome)) if args.json else report.as_text(run, running, outcome))
    return 0 if all(check.ok for check in outcome) else 1


async def ask_all(running: Stack, prompts: list[list[str]], new_tokens: int, say: Say) -> list[Result]:
    """Send each wave's prompts at once, and the next wave when all have an answer."""
    results: list[Result] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as http:
        for wave in prompts:
            say(f"asking {len(wave)} at once" if len(wave) > 1 else "asking 1")
            results += await asyncio.gather(*(ask(http, running.urls["router"], prompt, new_tokens) for prompt in wave))
    return results


async def ask(http: aiohttp.ClientSession, router: str, prompt: str, new_tokens: int) -> Result:
    """One request, whatever comes of it."""
    body = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": new_tokens}}
    async with http.post(f"{router}/generate", json=body) as response:
        return from_response(prompt, response.status, await response.json())


async def until_idle(running: Stack) -> None:
    """Wait until the engines are done with every room: decode answers before prefill has seen its rooms end.

    At most 10 s; rooms that last longer show in the checks.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(10), aiohttp.ClientSession() as http:
            for role in stack.ROLES:
                await stack.until(http, running.urls[role], lambda health: health["rooms"] == 0)


async def compare(children: Children, folder: Path, options: Options, results: list[Result], new_tokens: int) -> Run:
    """Read what the ranks wrote down, and have the reference answer what was answered."""
    assert options.evidence
    prefill, decode = ([notes.read(options.evidence, role, rank) for rank in range(options.tp)] for role in stack.ROLES)
    requests = [
        {"room": r.room, "text": r.text, "chunks": prefill[0].chunks[r.room], "new_tokens": new_tokens}
        for r in results
        if not r.error
    ]
    expected = []
    if requests:
        files = {name: folder / f"{name}.json" for name in ("requests", "out")}
        files["requests"].write_text(json.dumps(requests))
        command = [sys.executable, "-m", "examples.pd_llm.reference"]
        command += ["--model", options.model, "--device", stack.placement(options.device)["decode"]]
        command += ["--requests", str(files["requests"]), "--out", str(files["out"])]
        await children.start("reference", command, stack.ENVIRONMENT)
        await children.finish("reference")
        expected = json.loads(files["out"].read_text())
    return Run(
        config=MODELS[options.model],
        tp=options.tp,
        page_tokens=PAGE_TOKENS,
        results=results,
        prefill=prefill,
        decode=decode,
        expected_tokens={answer["room"]: answer["tokens"] for answer in expected},
        expected_logits={answer["room"]: answer["logits"] for answer in expected},
    )


def end_on_sigterm() -> None:
    """Have SIGTERM end the children too, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


if __name__ == "__main__":
    main()
