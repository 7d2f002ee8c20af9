"""A cluster on loopback, until Ctrl-C: `python tools/cluster.py [--servers 3] [--workers 4]`.

PostgreSQL, three NATS nodes, an S3 server, Rota's servers and workers: all real processes in a
temporary folder, which is removed at the end.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

from testkit.cluster import Cluster, Size

JOBS = Path(__file__).resolve().parent.parent / "examples" / "welcome.yaml"


def main() -> None:
    """Start everything, say where it is, and end it when asked to."""
    wanted = parse()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: everything is undone
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="rota-cluster-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        print(f"Starting a cluster in {folder} …", flush=True)
        with Cluster(Path(folder), Size(wanted.servers, wanted.workers)) as cluster:
            cluster.wait_until_shared()
            describe(cluster, Path(folder))
            while True:
                signal.pause()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    return parser.parse_args()


def describe(cluster: Cluster, folder: Path) -> None:
    """Addresses, where the token is, and what to type."""
    token = folder / "admin.token"
    token.touch(0o600)
    token.write_text(cluster.token)
    for name, address in cluster.engine.items():
        print(f"  {name:8} {address}")
    for server in cluster.servers:
        print(f"  {server.name:8} {server.url} · gRPC {server.grpc} · {server.log}")
    for worker in cluster.workers:
        print(f"  {worker.name:8} {worker.log}")
    rota = Path(".venv/bin/rota")
    print(
        f"\nIn another shell:\n"
        f"  export ROTA_URL={cluster.servers[0].url} ROTA_TOKEN=$(cat {token})\n"
        f"  {rota} server status\n"
        f"  {rota} apply {os.path.relpath(JOBS)}\n\n"
        f"Any of the servers will do. Ctrl-C ends all of it.",
        flush=True,
    )


if __name__ == "__main__":
    main()
