"""The thing a person means: a name, an id, the beginning of an id, or a pasted address."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote, urlsplit

from cyclopts import Parameter

from rota.cli.completers import complete_jobs, complete_runs
from rota.sdk.client import Client
from rota.sdk.errors import NotFound

JobReference = Annotated[
    str, Parameter(help="Name, id or address of a job.", completer=complete_jobs)
]
RunReference = Annotated[
    str,
    Parameter(help="Id of a run, the beginning of one, or its address.", completer=complete_runs),
]

_WHOLE_RUN_ID = re.compile(r"r_[0-9a-z]{20}")


def job_named(reference: str) -> str:
    return _from_address(reference, "jobs")


def run_id(client: Client, reference: str) -> str:
    """The whole id of the one run that is meant."""
    given = _from_address(reference, "runs")
    if _WHOLE_RUN_ID.fullmatch(given):
        return given
    return client.get_run(given if given.startswith("r_") else f"r_{given}").id


def run_or_latest(client: Client, reference: str) -> str:
    """The id of a run, or of the newest run of the job of that name."""
    try:
        return run_id(client, reference)
    except NotFound as error:
        try:
            history = client.get_history(job_named(reference), limit=1)
        except NotFound:
            raise error from None
        if not history.items:
            raise NotFound(
                f"job {reference} has never run", hint=f"rota trigger {reference}"
            ) from None
        return history.items[0].id


def _from_address(reference: str, noun: str) -> str:
    """The segment after `/jobs/` or `/runs/` of an address; anything else stays as it is."""
    if not reference.startswith(("http://", "https://", f"/{noun}/")):
        return reference
    segments = urlsplit(reference).path.split("/")
    if noun in segments[:-1]:
        return unquote(segments[segments.index(noun) + 1])
    return reference
