"""Keeps the stack running in the foreground on fixed ports, until Ctrl-C.

make serve, or python -m examples.pd_llm.serve.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from . import stack
from .children import ChildDied, Children
from .config import MODELS
from .demo import end_on_sigterm
from .routers import ROUTERS, NoRouter
from .stack import NoDevice, Options, Ports


def main() -> None:
    parser = argparse.ArgumentParser(prog="make serve ARGS=", description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="smollm2", help="random: weights from a seed")
    parser.add_argument("--tp", type=int, choices=[1, 3], default=1, help="ranks of each engine (default 1)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: GPU 0, decode on 1 if there")
    parser.add_argument("--router", choices=ROUTERS, default="python", help="whose /generate (default python)")
    ports = {"router": 8000, "prefill": 8001, "decode": 8002, "service": 50051}
    for name, port in ports.items():
        parser.add_argument(f"--{name}-port", type=int, default=port, help=f"on 127.0.0.1; 0: any (default {port})")
    args = parser.parse_args()
    chosen = Ports(**{name: getattr(args, f"{name}_port") for name in ports})
    with tempfile.TemporaryDirectory(prefix="kvtransfer-serve-") as folder:
        try:
            options = Options(model=args.model, tp=args.tp, device=args.device, router=args.router, ports=chosen)
            asyncio.run(serve(Path(folder), options))
        except (ChildDied, NoDevice, NoRouter, TimeoutError) as failed:
            sys.exit(f"serve: {failed}")
        except (KeyboardInterrupt, asyncio.CancelledError):
            print("serve: every process has ended")


async def serve(folder: Path, options: Options) -> None:
    """Until a child dies or the task is cancelled."""
    end_on_sigterm()
    await asyncio.to_thread(stack.set_up, options.model, print)
    async with Children(folder) as children:
        running = await children.guard(stack.start(children, folder, options))
        for name, pid in running.pids.items():
            print(f"{name} has pid {pid} and log {folder / name}.log")
        print(f"serving: kvservice {running.service}, router {running.urls['router']}; Ctrl-C ends it all", flush=True)
        await children.guard(asyncio.Event().wait())


if __name__ == "__main__":
    main()
