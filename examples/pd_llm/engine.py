"""One rank of an engine, in a process of its own.

python -m examples.pd_llm.engine --role prefill --service 127.0.0.1:50051 --port 8001
"""

import argparse
import asyncio
import logging
import signal
from pathlib import Path

import torch
from kvtransfer import KVManager, PagedGroup, Part, SlotGroup, Topology
from kvtransfer import Rank as Position

from . import vocabulary, weights
from .config import MODELS, ModelConfig
from .damage import Damage
from .decode_rank import DecodeRank
from .decode_scheduler import DecodeScheduler
from .engine_http import DecodeHttp, EngineHttp, PrefillHttp
from .evidence import Evidence
from .http_process import serve_beside
from .kv_pool import Indices, KVPool
from .lockstep import follow
from .model import Model
from .prefill_rank import PrefillRank
from .prefill_scheduler import PrefillScheduler
from .spoil import disable_mover
from .tp import Alone, Group, Processes

PAGE_TOKENS = 16


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.pd_llm.engine", description=__doc__)
    parser.add_argument("--role", choices=["prefill", "decode"], required=True, help="also the engine's id")
    parser.add_argument("--service", required=True, metavar="HOST:PORT", help="kvservice")
    parser.add_argument("--model", choices=MODELS, default="smollm2", help="what to serve (default smollm2)")
    parser.add_argument("--host", default="127.0.0.1", help="of rank 0's HTTP end (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="of rank 0's HTTP end; 0: any (default)")
    parser.add_argument("--tp", type=int, default=1, help="ranks of each engine, a divisor of 3 (default 1)")
    parser.add_argument("--rank", type=int, default=0, help="of this process, in [0, tp)")
    parser.add_argument("--rendezvous", type=Path, help="a path not there yet, where the ranks meet; needed for tp > 1")
    parser.add_argument("--device", default="cpu", help="where model and pool are: cpu (default), cuda:0, ...")
    parser.add_argument("--pages", type=int, default=256, help="of 16 tokens in the pool (default 256)")
    parser.add_argument("--slots", type=int, default=32, help="rooms that can be open at once (default 32)")
    parser.add_argument("--max-rooms", type=int, default=64, help="rooms open or waiting for pages (default 64)")
    parser.add_argument("--chunk", type=int, default=256, help="prompt tokens computed at once (default 256)")
    parser.add_argument("--evidence", type=Path, help="a folder to write down what happens; no page is then used twice")
    parser.add_argument("--break", dest="damage", type=Damage, choices=list(Damage), help="spoil transfers on purpose")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("kvtransfer").setLevel(logging.INFO)  # how peers are reached, and how fast
    torch.set_num_threads(1)  # more threads, other bits
    group: Group = Alone() if args.tp == 1 else Processes(args.rank, args.tp, args.rendezvous)
    device = torch.device(args.device)
    config = MODELS[args.model]
    share = config.kv_heads // args.tp
    heads = range(args.rank * share, (args.rank + 1) * share)
    pool = KVPool(config, args.pages, PAGE_TOKENS, args.slots, heads, device)
    loaded = {name: tensor.to(device) for name, tensor in weights.of(config).items()}
    model = Model(config, loaded, pool, group)
    rank = build_rank(args, config, model, pool, group)
    if args.rank == 0:
        asyncio.run(lead(args, config, rank, pool))
    else:
        for ended_by_rank_0 in (signal.SIGTERM, signal.SIGINT):
            signal.signal(ended_by_rank_0, signal.SIG_IGN)
        follow(rank)


def build_rank(
    args: argparse.Namespace, config: ModelConfig, model: Model, pool: KVPool, group: Group
) -> PrefillRank | DecodeRank:
    """Register with kvservice and join what the commands need."""
    if args.damage is Damage.NO_MOVER and args.role == "prefill":
        disable_mover()
    manager = KVManager(
        args.service,
        engine_id=args.role,
        role=args.role,
        topology=Topology(args.tp, 1, 1),
        rank=Position(args.rank, 0, 0),
        model=config.name,
        groups=describe(config, pool),
    )
    seed = 2 * args.rank + (args.role == "decode")  # so that no two ranks use the same pages for a room
    pages = Indices(args.pages, seed, reuse=args.evidence is None)
    slots = Indices(args.slots, seed, reuse=args.evidence is None)
    evidence = Evidence(args.evidence, args.role, args.rank)
    if args.role == "prefill":
        return PrefillRank(model, pool, pages, slots, manager, group, evidence, args.chunk)
    damaged = args.damage if args.rank == args.tp - 1 else None
    return DecodeRank(model, pool, pages, slots, manager, group, evidence, damaged)


def describe(config: ModelConfig, pool: KVPool) -> list[PagedGroup | SlotGroup]:
    """The pool as KVTransfer sees it: K and V pages by layer and head, and the aux rows."""
    kv = [
        Part(
            name, dict(enumerate(tensors)), "token_head",
            total_heads=config.kv_heads, first_head=pool.heads.start, head_count=len(pool.heads),
        )
        for name, tensors in (("k", pool.k), ("v", pool.v))
    ]  # fmt: skip
    aux = [Part("fields", pool.fields), Part("logits", pool.logits)]
    return [PagedGroup("kv", pool.page_tokens, kv), SlotGroup("aux", aux)]


async def lead(args: argparse.Namespace, config: ModelConfig, rank: PrefillRank | DecodeRank, pool: KVPool) -> None:
    """Rank 0: HTTP here, the model in a thread, until SIGTERM or SIGINT, or until the model's thread dies."""
    http: EngineHttp
    scheduler: PrefillScheduler | DecodeScheduler
    if isinstance(rank, PrefillRank):
        scheduler = PrefillScheduler(rank, args.max_rooms)
        http = PrefillHttp(scheduler, config, pool, vocabulary.load(config))
    else:
        scheduler = DecodeScheduler(rank, args.max_rooms, config.eos)
        http = DecodeHttp(scheduler, config, pool, vocabulary.load(config))
    await serve_beside(http.app(), args.host, args.port, scheduler.run, scheduler.stop)


if __name__ == "__main__":
    main()
