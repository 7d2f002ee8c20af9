"""`rota simulate`: what a workload, or a change to the live system, would do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.cli.asking import ask
from rota.cli.completers import complete_jobs
from rota.cli.durations import Duration
from rota.cli.exits import CommandFailed, Exit
from rota.cli.failures import counted, describe_problem
from rota.cli.files import read_text
from rota.cli.options import REMOTE, Format, Remote
from rota.cli.printing import print_data, print_one
from rota.cli.simulation_views import write_comparison, write_report
from rota.runtime.offline import Invalid
from rota.runtime.simulation import DEFAULT_POOL, Simulation, report_document, simulate_text
from rota.sdk import simulation_calls

app = App(name="simulate", usage="rota simulate [OPTIONS] [WORKLOAD]")

_DAY = timedelta(days=1)

Workload = Annotated[
    Path | None,
    Parameter(name="WORKLOAD", help="File of workers, jobs and limits; - is standard input."),
]
Length = Annotated[
    Duration,
    Parameter(name="--for", help="How much time: 1h, 7d. Default: 24h.", show_default=False),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Sampling:
    """How a workload file is simulated."""

    seed: Annotated[int, Parameter(metavar="N", help="The same seed finds the same.")] = 1
    sample: Annotated[
        float,
        Parameter(
            metavar="PART",
            validator=Number(gt=0, lte=1),
            help="Simulate only this part of workers, runs and limits, such as 0.01.",
        ),
    ] = 1.0


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Changes:
    """What if, on the live system."""

    add_workers: Annotated[
        tuple[str, ...],
        Parameter(metavar="N[:POOL]", help="So many more workers like the first of the pool."),
    ] = ()
    move: Annotated[
        tuple[str, ...], Parameter(metavar='JOB="CRON"', help="The job at other times.")
    ] = ()
    without: Annotated[
        tuple[str, ...],
        Parameter(metavar="JOB", help="As if the job were not there.", completer=complete_jobs),
    ] = ()

    def __bool__(self) -> bool:
        return bool(self.add_workers or self.move or self.without)


_SAMPLING = Sampling()
_NO_CHANGES = Changes()


@app.default
def simulate(
    workload: Workload = None,
    /,
    *,
    for_: Length = _DAY,
    sampling: Sampling = _SAMPLING,
    changes: Changes = _NO_CHANGES,
    remote: Remote = REMOTE,
) -> Exit:
    """Say how runs would wait and how busy workers would be.

    A workload file needs no server: the scheduler's own decisions are made on a virtual clock.
    Without a file, the live system is looked at as it is and as it would be after a change;
    nothing is changed.
    """
    if workload is not None and not changes:
        return _simulate_file(workload, Simulation(for_, sampling.sample, sampling.seed), remote)
    if workload is not None or not changes:
        raise CommandFailed(
            "either a workload file or changes to the live system",
            code=Exit.USAGE,
            hint="rota simulate WORKLOAD.yaml, or rota simulate --add-workers 2",
        )
    call = simulation_calls.simulate(
        f"{for_.total_seconds():.3f}s",
        add_workers=dict(map(_pool_and_count, changes.add_workers)),
        move=dict(map(_job_and_schedule, changes.move)),
        without=changes.without,
    )
    with remote.connect() as client:
        found = ask(client, call)
    print_one(remote, found, name=lambda _: "", page=write_comparison)
    return Exit.DONE


def _simulate_file(path: Path, simulation: Simulation, remote: Remote) -> Exit:
    source = read_text(path)
    terminal = remote.terminal()
    try:
        report = simulate_text(source.text, simulation)
    except Invalid as error:
        for problem in error.problems:
            terminal.tell(describe_problem(problem, file=source.label))
        errors = sum(not problem.warning for problem in error.problems)
        terminal.tell(f"{source.label}: {counted(errors, 'error')}")
        return Exit.INVALID_FILE
    if remote.format in (Format.JSON, Format.JSONL, Format.YAML):
        print_data(remote, report_document(report))
    else:
        write_report(terminal, report)
    return Exit.DONE


def _pool_and_count(text: str) -> tuple[str, int]:
    number, _, pool = text.partition(":")
    if not number.isdecimal() or int(number) == 0:
        raise CommandFailed(
            f"--add-workers {text} is no number of workers",
            code=Exit.USAGE,
            hint="write --add-workers 2, or --add-workers 2:gpu for another pool",
        )
    return pool or DEFAULT_POOL, int(number)


def _job_and_schedule(text: str) -> tuple[str, str]:
    job, _, schedule = text.partition("=")
    if not job or not schedule:
        raise CommandFailed(
            f"--move {text} names no job and schedule",
            code=Exit.USAGE,
            hint='write --move nightly="0 4 * * *"',
        )
    return job, schedule
