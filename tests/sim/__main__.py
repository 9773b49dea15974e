"""Runs or replays: `python -m tests.sim SEED` prints the trace of one run, `--runs N` tries N seeds from there on."""

import argparse
import time
from collections import Counter
from dataclasses import replace

from .config import FAULTS, Config
from .simulation import Failed, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--runs", type=int, default=1, help="seeds to try, one after another")
    parser.add_argument("--lines", type=int, default=4000, help="of the trace to print where a run fails")
    parser.add_argument("--tp", type=int)
    parser.add_argument("--dp", type=int)
    parser.add_argument("--decode-engines", type=int)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--faults", help=f"comma-separated, or none: {', '.join(FAULTS)}")
    given = parser.parse_args()
    shape = {name: getattr(given, name) for name in ("tp", "dp", "decode_engines", "requests")}
    chosen = {name: value for name, value in shape.items() if value is not None}
    if given.faults is not None:
        chosen["faults"] = frozenset(() if given.faults == "none" else given.faults.split(","))
    seen: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(given.seed, given.seed + given.runs):
        try:
            simulation = run(replace(Config.of_seed(seed), **chosen), seen, given.lines)
        except Failed as failed:
            print(failed)
            return 1
    if given.runs == 1:
        print(simulation.world.trace())
    for name, count in sorted(seen.items()):
        print(f"{count:8} {name}")
    print(f"{seen['steps'] / (time.monotonic() - began):.0f} steps/s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
