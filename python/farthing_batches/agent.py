"""Runs this machine's agent of the batch cache: the one process that talks to a coordinator elsewhere, for all jobs and data workers here.

    python -m farthing_batches.agent batches://host:port [--idle SECONDS]

The first job of a machine starts one by itself; it ends when it has had no jobs for a while. Where there is one already, this
ends at once."""
import argparse
import signal
import sys

if __package__:
    from ._library import BatchError, functions, require
else:  # as jobs start it: by its path, so that it needs neither NumPy nor the package's place on the path
    from _library import BatchError, functions, require


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m farthing_batches.agent", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?", help="the coordinator's: batches://host:port, or http://host:port")
    parser.add_argument("--url", help="the same")
    parser.add_argument("--pinned-key", metavar="FINGERPRINT", help="of the coordinator's key, for TLS")
    parser.add_argument("--ca-file", metavar="FILE", help="certificates that the coordinator's may be signed by")
    parser.add_argument("--memory", type=int, default=0, metavar="BYTES", help="for entries; 0: a quarter of what is free, 1 GiB at most")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS", help="ends after this time without jobs (30)")
    arguments = parser.parse_args()
    url = arguments.url or arguments.address
    if not url:
        parser.error("no coordinator: give its address")
    url = url.replace("batches+tls://", "https://").replace("batches://", "http://")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler would wait for the call to end
    try:
        require(functions().run_agent(url.encode(), arguments.pinned_key and arguments.pinned_key.encode(),
                                      arguments.ca_file and arguments.ca_file.encode(), arguments.memory, arguments.idle))
    except BatchError as error:
        print(f"farthing_batches.agent: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
