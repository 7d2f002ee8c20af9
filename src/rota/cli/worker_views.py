"""Workers as tables and pages."""

from __future__ import annotations

from rota.cli import times
from rota.cli.printing import ListView
from rota.cli.table import Column, write_pairs
from rota.cli.terminal import Terminal
from rota.sdk.cluster_answers import Worker


def _running(worker: Worker) -> str:
    return f"{worker.running or 0} of {worker.slots}"


def _in_use(worker: Worker) -> str:
    """`cpu 1/4 memory 2GiB/8GiB`."""
    return " ".join(f"{name} {_used(worker, name)}/{all_}" for name, all_ in _offered(worker))


def _offered(worker: Worker) -> list[tuple[str, str]]:
    return list(worker.resources.items())


def _used(worker: Worker, name: str) -> str:
    return worker.used.get(name, "0")


def _labels(worker: Worker) -> str:
    return ",".join(f"{key}={value}" for key, value in worker.labels.items())


WORKERS: ListView[Worker] = ListView(
    columns=(
        Column("WORKER", lambda worker: worker.worker or worker.id),
        Column("STATE", lambda worker: worker.state),
        Column("POOL", lambda worker: worker.pool),
        Column("RUNNING", _running),
        Column("IN USE", _in_use),
        Column("SINCE", lambda worker: times.moment(worker.registered_at, times.now())),
        Column("LABELS", _labels),
        Column("ID", lambda worker: worker.id, only_wide=True),
        Column("VERSION", lambda worker: worker.version, only_wide=True),
        Column("SERVER", lambda worker: worker.server, only_wide=True),
        Column("GUARD", lambda worker: worker.guard_mode, only_wide=True),
        Column("FUNCTIONS", lambda worker: ",".join(worker.functions), only_wide=True),
    ),
    name=lambda worker: worker.worker or worker.id,
    empty="no workers; start one with: rota worker",
)


def write_worker(terminal: Terminal, worker: Worker) -> None:
    """A worker on one page."""
    write_pairs(
        terminal,
        [
            ("worker", f"{worker.worker} ({worker.id}, version {worker.version})"),
            ("state", worker.state),
            ("pool", worker.pool),
            ("running", _running(worker)),
            *((name, f"{_used(worker, name)} of {all_} in use") for name, all_ in _offered(worker)),
            ("labels", _labels(worker)),
            ("functions", ", ".join(worker.functions)),
            ("since", times.moment(worker.registered_at, times.now())),
            ("lease", worker.lease),
            ("server", worker.server),
            ("guard", worker.guard_mode),
        ],
    )
