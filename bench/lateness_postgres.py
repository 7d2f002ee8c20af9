"""How late function jobs start on PostgreSQL: Rota beside queues that can schedule a job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench import lateness, stamps
from bench.contest import Figures, Plan, wait_for
from bench.figures import Comparison
from bench.lateness import RUN_SECONDS, SLOTS, Pattern
from bench.peers import environment, node_environment
from bench.postgres import new_database
from bench.rota_cluster import rota_cluster
from bench.rota_up import temporary_home
from testkit.servers.postgres import PostgresServer

Command = Callable[..., list[str]]  # given action, address, count, and perhaps the due times

_PEERS: dict[str, Command] = {
    "PgQueuer": partial(environment.command, "pgqueuer_queue"),
    "graphile-worker": partial(node_environment.command, "graphile_queue"),
    "Procrastinate": partial(environment.command, "procrastinate_queue"),
}


def compare(server: PostgresServer, pattern: Pattern, plan: Plan) -> list[Comparison]:
    peers = {name: partial(_peer, server, command) for name, command in _PEERS.items()}
    return lateness.compare(pattern, "PostgreSQL", partial(_rota, server), peers, plan)


def _rota(server: PostgresServer, pattern: Pattern, patience: int) -> Figures:
    with (
        temporary_home() as home,
        new_database(server) as store,
        rota_cluster(home, store) as cluster,
    ):
        cluster.add_worker(SLOTS).wait_until_ready()
        first = pattern.first_due(patience)
        cluster.client.apply(lateness.job_file(pattern.due_times(first)))
        lateness.check_in_time(first)
        cluster.wait_for(lambda: pattern.is_done(home), RUN_SECONDS)
        return lateness.figures(home)


def _peer(server: PostgresServer, command: Command, pattern: Pattern, patience: int) -> Figures:
    with temporary_home() as home, new_database(server) as address:
        environ = {stamps.VARIABLE: str(home.stamps)}
        environment.finish(command("enqueue", address, 0), environ)
        first = pattern.first_due(patience)
        consume = command("consume", address, pattern.count)
        with environment.background(consume, environ):
            times = (first, pattern.spacing_seconds)
            environment.finish(command("schedule", address, pattern.count, *times), environ)
            lateness.check_in_time(first)
            wait_for(lambda: pattern.is_done(home), RUN_SECONDS, "all jobs")
        return lateness.figures(home)
