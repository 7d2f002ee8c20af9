"""`rota simulate`: what a workload, or a change to the live system, would do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.api.forecasts import Comparison, SimulatedJob, SimulationReport
from rota.cli import times
from rota.cli.failures import counted, describe_problem
from rota.cli.forecasts import key_words
from rota.cli.options import REMOTE, Duration, Format, Remote
from rota.cli.printing import Column, print_data, print_one, write_table
from rota.cli.references import ask, complete_jobs
from rota.cli.terminal import CommandFailed, Exit, Terminal, drawn_progress, inert
from rota.cli.texts import read_text
from rota.runtime.offline import (
    DEFAULT_POOL,
    Invalid,
    JobResult,
    Report,
    Saturation,
    Simulation,
    Throughput,
    Waits,
    report_document,
    simulate_text,
)
from rota.sdk.client import Client

_MOST_STRETCHES = 10
_MEBIBYTE = 1024 * 1024
_WAITS = ("RUNS", "WAIT p50", "p90", "p99", "LONGEST")


def write_report(terminal: Terminal, report: Report) -> None:
    """Print the whole report, the most wanted first."""
    for line in _summary(report):
        terminal.write(line)
    for headings, rows in _tables(report):
        terminal.write("")
        write_rows(terminal, headings, rows)
    terminal.write("")
    for line in _stretches(report.saturations):
        terminal.write(inert(line))
    terminal.write(_throughput(report.throughput))


def write_rows(terminal: Terminal, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of texts; the first cell is a name."""
    columns = [
        Column(heading, itemgetter(place), is_whole=not place)
        for place, heading in enumerate(headings)
    ]
    write_table(terminal, columns, rows)


def write_comparison(terminal: Terminal, found: Comparison) -> None:
    """Print the present and the changed state, side by side where something differs."""
    before, after = found.before, found.after
    write_rows(terminal, ("", "NOW", "THEN"), _totals(before, after))
    terminal.write("")
    headings = ("JOB", "RUNS", "THEN", "WAIT p90", "THEN", "LONGEST", "THEN", "LATE", "THEN")
    write_rows(terminal, headings, _changed_jobs(before, after))
    terminal.write("")
    write_rows(terminal, ("POOL", "RESOURCE", "USED", "THEN"), _changed_uses(before, after))


def _totals(before: SimulationReport, after: SimulationReport) -> list[Sequence[str]]:
    both = (before, after)
    return [
        ("workers", *(f"{each.workers:,}" for each in both)),
        ("runs started", *(f"{each.started:,}" for each in both)),
        ("still waiting", *(f"{each.still_waiting:,}" for each in both)),
        ("wait p90", *(times.length(each.waits.p90) for each in both)),
        ("longest wait", *(times.length(each.waits.longest) for each in both)),
        ("late", *(f"{sum(job.late for job in each.jobs):,}" for each in both)),
    ]


def _changed_jobs(before: SimulationReport, after: SimulationReport) -> Iterator[Sequence[str]]:
    now, then = ({job.name: job for job in each.jobs} for each in (before, after))
    for name in sorted(now | then):
        cells = (_cells_of_job(now.get(name)), _cells_of_job(then.get(name)))
        yield (name, *(cell for pair in zip(*cells, strict=True) for cell in pair))


def _cells_of_job(job: SimulatedJob | None) -> Sequence[str]:
    if job is None:
        return ("–",) * 4
    lengths = times.length(job.waits.p90), times.length(job.waits.longest)
    late = late_in_words(job)
    return (f"{job.waits.runs:,}", *lengths, late)


def _changed_uses(before: SimulationReport, after: SimulationReport) -> Iterator[Sequence[str]]:
    then = {(use.pool, use.resource): use for use in after.uses}
    for use in before.uses:
        later = then.get((use.pool, use.resource))
        yield use.pool, use.resource, percent(use.mean), percent(later.mean) if later else "–"


def percent(fraction: float) -> str:
    return f"{fraction * 100:.1f} %"


def waits_in_cells(waits: Waits) -> list[str]:
    lengths = (waits.p50, waits.p90, waits.p99, waits.longest)
    return [f"{waits.runs:,}", *(times.length(seconds) for seconds in lengths)]


def _summary(report: Report) -> Iterator[str]:
    yield (
        f"{times.length(report.seconds)} of {counted(report.workers, 'worker')}: "
        f"{counted(report.started, 'run')} started, {report.ended:,} ended, "
        f"{report.still_waiting:,} still waiting"
    )
    if report.part < 1:
        yield (
            f"a sample: {report.part * 100:g} % of workers, runs and limits; "
            "in the whole, waits are rather shorter"
        )


def _tables(report: Report) -> Iterator[tuple[Sequence[str], Iterable[Sequence[str]]]]:
    jobs = report.jobs.items()
    yield (
        ("JOB", *_WAITS, "LATE"),
        [(name, *waits_in_cells(each.waits), late_in_words(each)) for name, each in jobs],
    )
    if len(report.priorities) > 1:
        priorities = sorted(report.priorities.items(), reverse=True)
        yield (
            ("PRIORITY", *_WAITS),
            [(str(priority), *waits_in_cells(waits)) for priority, waits in priorities],
        )
    if len(report.shares) > 1:
        yield (
            ("SHARE", *_WAITS, "GOT", "ENTITLED"),
            [
                (name, *waits_in_cells(each.waits), percent(each.got), percent(each.entitled))
                for name, each in report.shares.items()
            ],
        )
    yield (
        ("POOL", "RESOURCE", "USED", "AT MOST"),
        [(use.pool, use.resource, percent(use.mean), percent(use.peak)) for use in report.uses],
    )


def late_in_words(job: JobResult | SimulatedJob) -> str:
    if job.start_within is None:
        return "–"
    return f"{job.late:,} ({job.dropped:,} dropped)" if job.dropped else f"{job.late:,}"


def _stretches(found: Sequence[Saturation]) -> Iterator[str]:
    """Yield the longest times in which something waited, in their order."""
    longest = sorted(found, key=lambda each: each.begins_at - each.ends_at)[:_MOST_STRETCHES]
    for each in sorted(longest, key=lambda each: each.begins_at):
        begin, length = _clock(each.begins_at), times.length(each.ends_at - each.begins_at)
        yield f"from {begin} for {length}: up to {each.most_waiting:,} wait for {_thing(each.what)}"
    if len(found) > len(longest):
        yield f"and {len(found) - len(longest):,} shorter times in which somebody waited"


def _thing(what: str) -> str:
    """Return `rate limit s3-put` for `rate:default/s3-put`."""
    kind, is_key, rest = what.partition(":")
    if not is_key:
        return what
    match kind:
        case "worker":
            return f"a worker of pool {rest} that could take them"
        case "job":
            return f"other runs of job {rest}"
        case "after":
            return f"{rest.partition('/')[2]} to complete"
        case _:
            return key_words(what)


def _clock(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86_400)
    clock = f"{rest // 3_600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"day {days + 1}, {clock}" if days else clock


def _throughput(found: Throughput) -> str:
    return (
        f"{found.runs_per_second:,.2f} runs/s, {found.busiest_minute:,.2f} in the busiest minute; "
        f"a day makes {found.rows_per_day:,.0f} rows "
        f"and {found.output_bytes_per_day / _MEBIBYTE:,.1f} MiB of output"
    )


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
    """Options of a simulated workload file."""

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
    """Changes to simulate on the live system."""

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
    call = Client.simulate(
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
        with drawn_progress(terminal, "simulating") as draw:
            report = simulate_text(source.text, simulation, draw)
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
