"""`rota forecast`: what starts when, what it waits for, and what runs out."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from rota.cli import times
from rota.cli.asking import ask
from rota.cli.completers import complete_jobs
from rota.cli.forecast_views import write_forecast, write_quiet
from rota.cli.options import REMOTE, Limit, Remote
from rota.cli.printing import print_one
from rota.sdk import forecast_calls


def forecast(
    *,
    for_: Annotated[
        str, Parameter(name="--for", metavar="TIME", help="How far to look: 5m, 24h, at most 7d.")
    ] = "24h",
    resource: Annotated[
        str | None,
        Parameter(
            metavar="NAME",
            help="What may run out: slots, cpu, a named resource, a rate limit. Default: slots.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        Parameter(metavar="NAME", help="Every start of this job alone.", completer=complete_jobs),
    ] = None,
    quiet: Annotated[bool, Parameter(help="Where one more job would find room.")] = False,
    limit: Limit = 50,
    remote: Remote = REMOTE,
) -> None:
    """Show what is coming: starts, waits, and what runs out.

    Due times, carts and waiting runs are placed on the workers that are there now, by the rules
    that schedule them, with the durations of earlier runs. It changes and delays nothing.
    """
    call = forecast_calls.forecast(for_, measure=resource, job=job)
    with remote.connect() as client:
        found = ask(client, call)
    print_one(
        remote,
        found,
        name=lambda ahead: "\n".join(entry.job for entry in ahead.jobs),
        page=lambda terminal, ahead: (
            write_quiet(terminal, ahead)
            if quiet
            else write_forecast(terminal, ahead, times.now(), limit)
        ),
    )
