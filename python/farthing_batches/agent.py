"""Runs this machine's agent: the one process that talks to a coordinator elsewhere, for all jobs here.

    python -m farthing_batches.agent batches://host:port [--idle SECONDS]

The first job starts it by itself (where `farthing` is installed); it ends when it has had no jobs for a while."""
import argparse
import sys

from ._library import BatchError, functions, require


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m farthing_batches.agent", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", help="the coordinator's: batches://host:port or batches://host:port/NAME")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS", help="ends after this time without jobs (30)")
    arguments = parser.parse_args()
    try:
        require(functions().run_agent(arguments.address.encode(), arguments.idle))
    except BatchError as error:
        print(f"farthing_batches.agent: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
