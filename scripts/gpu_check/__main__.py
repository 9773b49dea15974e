"""Try everything on this machine's GPU; see scripts/gpu_check.sh."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.gpu_check.steps import Check, Row
from scripts.gpu_check.wheels import WrongWheels, unpack


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description=__doc__)
    parser.add_argument("wheels", nargs="?", type=Path, help="what `make gpu-wheels` made; none: what is installed")
    parser.add_argument("--dry-run", action="store_true", help="without a GPU, in host memory, and shorter")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvtransfer-gpu-") as folder:
        packages = Path(folder) / "packages" if args.wheels else None
        logs = Path(folder) / "logs"
        logs.mkdir()
        if packages:
            try:
                unpack(args.wheels, packages)
            except WrongWheels as wrong:
                sys.exit(f"gpu_check: {wrong}")
        check = Check("cpu" if args.dry_run else "cuda", packages, logs)
        well = check.run()
        print(table(check.rows))
        failed = logs / "failed.log"
        if failed.exists():
            print(f"\nThe last process that failed said:\n{failed.read_text()[-8000:]}", file=sys.stderr)
    sys.exit(0 if well else 1)


def table(rows: Sequence[Row]) -> str:
    """For people."""
    width = max(len(row.step) for row in rows)
    lines = [f"{'step':{width}}  {'':5}  {'s':>5}  seen"]
    lines += [f"{row.step:{width}}  {'right' if row.ok else 'WRONG'}  {row.seconds:5.1f}  {row.seen}" for row in rows]
    lines.append("All is well." if all(row.ok for row in rows) else "Something is WRONG.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
