"""The verbs of `rota run` for one run that waits."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rota.cli.asking import ask
from rota.cli.options import WRITING, Writing
from rota.cli.printing import print_one
from rota.cli.references import ActiveRunReference, active_run
from rota.cli.terminal import Terminal
from rota.cli.whole_numbers import WholeNumber
from rota.sdk import steering_calls
from rota.sdk.answers import Run
from rota.sdk.client import Client
from rota.sdk.exchange import Call


def hold(run: ActiveRunReference, /, *, writing: Writing = WRITING) -> None:
    """Keep a run that waits from starting until it is released."""
    with writing.connect() as client:
        found = active_run(client, run)
        if not _is_rehearsed(writing, client, found, "hold"):
            _steer(writing, client, steering_calls.hold_run(found))


def release(run: ActiveRunReference, /, *, writing: Writing = WRITING) -> None:
    """End a hold: the run waits again like any other."""
    with writing.connect() as client:
        found = active_run(client, run)
        if not _is_rehearsed(writing, client, found, "release"):
            _steer(writing, client, steering_calls.release_run(found))


def reprioritise(
    run: ActiveRunReference,
    priority: Annotated[
        WholeNumber,
        Parameter(name="PRIORITY", validator=Number(gte=0, lte=9), help="0 to 9; 9 goes first."),
    ],
    /,
    *,
    writing: Writing = WRITING,
) -> None:
    """Give a run that waits another priority."""
    with writing.connect() as client:
        found = active_run(client, run)
        if not _is_rehearsed(writing, client, found, f"give priority {priority} to"):
            _steer(writing, client, steering_calls.reprioritise_run(found, priority))


VERBS = (hold, release, reprioritise)


def _is_rehearsed(writing: Writing, client: Client, run: str, what: str) -> bool:
    """Whether nothing is to be done but to say what would be."""
    if writing.dry_run:
        state = client.get_run(run).state.lower()
        writing.terminal().tell(f"would {what} {run}, {state} now")
    return writing.dry_run


def _steer(writing: Writing, client: Client, call: Call[Run]) -> None:
    print_one(writing, ask(client, call), name=lambda run: run.id, page=_write_standing)


def _write_standing(terminal: Terminal, run: Run) -> None:
    waiting = f": {run.waiting}" if run.waiting else ""
    terminal.tell(f"{run.id} is {run.state.lower()} now, priority {run.priority}{waiting}")
