"""P8: how long it takes until a cluster that lost a part of itself serves fully again."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

from bench.contest import Contestant, Figures, Plan, Result, take_turns
from bench.figures import Comparison, Sample, at_most_times
from bench.machine import counted_as_own
from rota.sdk.client import Client
from testkit.chaos.bounds import SERVER_LEASE, Stopwatch
from testkit.chaos.client import AnyServer
from testkit.chaos.network import ProxiedCluster
from testkit.chaos.workload import job_file, measured, scheduled
from testkit.cluster import Size
from testkit.evidence import Evidence

_SIZE = Size(servers=2, workers=2)
_LEASE = timedelta(seconds=6)  # of workers; that of servers is fixed
_ALLOWED = timedelta(seconds=2)  # beyond the lease
_OF_SERVERS = "dead server"  # how the name of a bound begins which their lease is for
_UNIT = "s"


def run(plan: Plan) -> list[Comparison]:
    result = take_turns([Contestant("rota", _measure)], plan)["rota"]
    return list(map(partial(_line, result), result.turns[0].figures))


def _line(result: Result, bound: str) -> Comparison:
    lease = SERVER_LEASE if bound.startswith(_OF_SERVERS) else _LEASE
    allowed = (lease + _ALLOWED).total_seconds()
    return Comparison(
        "P8",
        bound,
        result.sample(bound, _UNIT),
        f"lease + {_ALLOWED.seconds} s",
        Sample((allowed,), _UNIT),
        at_most_times(1),
        result.foreign_cores,
    )


def _measure() -> Figures:
    """Seconds, by what was lost."""
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as a user of its own
        evidence = Evidence(folder / "evidence")
        settings = {"lease": f"{_LEASE.seconds}s", "stop_grace": "5s"}
        with (
            ProxiedCluster(folder / "cluster", _SIZE, settings) as cluster,
            # What a PostgreSQL had worked before it was killed is taken for foreign: it is little.
            counted_as_own(lambda: cluster.postgres.pid),
        ):
            cluster.wait_until_shared()
            return _recoveries(cluster, evidence)


def _recoveries(cluster: ProxiedCluster, evidence: Evidence) -> Figures:
    canaries = [promise for promise in scheduled(evidence) if promise.catches_up]
    urls: Sequence[str] = [server.url for server in cluster.servers]
    with closing(AnyServer.of(urls, cluster.token)) as observer:
        observer.send(Client.apply(job_file([*canaries, *measured(evidence)])))
        names = [promise.job for promise in canaries]
        bounds = Stopwatch(cluster, evidence, observer, names, _LEASE).measure()
    return {bound.name: bound.measured.total_seconds() for bound in bounds}
