"""P4: how late function jobs start, on a durable store."""

from __future__ import annotations

from functools import partial

from bench import lateness, lateness_postgres, stamps
from bench.contest import Figures, Plan, wait_for
from bench.figures import Comparison, at_most
from bench.lateness import RUN_SECONDS, SLOTS, Pattern, TooLate
from bench.peers import environment
from bench.postgres import postgres
from bench.rota_up import FUNCTIONS, rota_up, temporary_home


def run(plan: Plan) -> list[Comparison]:
    stream = Pattern("100 due/s", plan.pick(3_000, 300), 0.01, "p99", at_most(5))
    burst = Pattern("due at once", plan.pick(1_000, 200), 0.0, "max", at_most(100))
    patterns = (stream, burst)
    on_sqlite = [line for pattern in patterns for line in _compare(pattern, plan)]
    with postgres() as server:
        compare = partial(lateness_postgres.compare, server, plan=plan)
        return on_sqlite + [line for pattern in patterns for line in compare(pattern)]


def _compare(pattern: Pattern, plan: Plan) -> list[Comparison]:
    peers = {
        "APScheduler, SQLite": partial(_apscheduler, "sqlite"),
        "APScheduler, memory": partial(_apscheduler, "memory"),
    }
    return lateness.compare(pattern, "SQLite", _rota, peers, plan)


def _rota(pattern: Pattern, patience: int) -> Figures:
    with temporary_home() as home, rota_up(home, slots=SLOTS, app=FUNCTIONS) as server:
        first = pattern.first_due(patience)
        server.client.apply(lateness.job_file(pattern.due_times(first)))
        lateness.check_in_time(first)
        wait_for(lambda: pattern.is_done(home), RUN_SECONDS, "all jobs")
        return lateness.figures(home)


def _apscheduler(kind: str, pattern: Pattern, patience: int) -> Figures:
    with temporary_home() as home:
        store = f"sqlite:///{home.folder}/jobs.db" if kind == "sqlite" else kind
        arguments = [store, pattern.first_due(patience), pattern.spacing_seconds, pattern.count]
        environ = {stamps.VARIABLE: str(home.stamps)}
        with environment.running("apscheduler_dates", *arguments, environ=environ) as process:
            wait_for(
                lambda: pattern.is_done(home) or process.poll() is not None,
                RUN_SECONDS,
                "all jobs",
            )
            if process.poll() is not None:  # it runs until it is stopped, unless it was too late
                raise TooLate
        return lateness.figures(home)
