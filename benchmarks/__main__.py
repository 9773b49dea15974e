"""python -m benchmarks NAME [--json]"""

import argparse
import sys
from importlib import import_module

from benchmarks.processes import stay_on_loopback

NAMES = ("transfer", "rooms", "saturated", "first", "tail", "path", "idle", "engine", "peer", "replay", "check")


def main() -> None:
    """Runs one benchmark and prints what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="name", metavar="NAME", required=True)
    for name in NAMES:
        module = import_module(f"benchmarks.{name}")
        command = commands.add_parser(name, help=module.__doc__, description=module.__doc__)
        command.add_argument("--json", action="store_true", help="one JSON object instead of a table")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    arguments = parser.parse_args()
    stay_on_loopback()
    report = arguments.run(arguments)
    print(report.to_json() if arguments.json else report.to_text())
    sys.exit(1 if report.missed else 0)


if __name__ == "__main__":
    main()
