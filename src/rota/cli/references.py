"""The thing a person means: a name, an id, the beginning of an id, or a pasted address."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import unquote, urlsplit

from cyclopts import Parameter

from rota.api.carts import CartDetail
from rota.cli.exits import CommandFailed, Exit
from rota.sdk.answers import Page
from rota.sdk.client import Client
from rota.sdk.errors import NotFound, RotaApiError
from rota.sdk.exchange import Call

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

T = TypeVar("T")

_PATIENCE_SECONDS = 1.0
_MOST = 200


def complete_jobs(context: CompletionContext) -> list[tuple[str, str]]:
    """Job names with their schedules in words."""
    jobs = _ask(Client.list_jobs(name=f"{context.incomplete}*", limit=_MOST))
    return [(job.name, job.schedule.words if job.schedule else "on demand") for job in jobs]


def complete_runs(context: CompletionContext) -> list[tuple[str, str]]:
    """The newest runs with job and state."""
    return [(run.id, f"{run.job} {run.state.lower()}") for run in _ask(Client.list_runs(limit=50))]


def complete_carts(_: CompletionContext) -> list[tuple[str, str]]:
    """The newest carts with name and state."""
    carts = _ask(Client.list_carts(limit=50))
    return [(cart.id, f"{cart.name} {cart.state.lower()}") for cart in carts]


def complete_calendars(_: CompletionContext) -> list[tuple[str, str]]:
    """Calendar names with their windows in words."""
    return [(it.name, it.words) for it in _ask(Client.list_calendars(limit=_MOST))]


def complete_limits(_: CompletionContext) -> list[tuple[str, str]]:
    """Names of rate limits with what they allow."""
    return [(it.name, it.words) for it in _ask(Client.list_limits(limit=_MOST))]


def complete_resources(_: CompletionContext) -> list[tuple[str, str]]:
    """Names of resources with what they allow."""
    return [(it.name, it.words) for it in _ask(Client.list_resources(limit=_MOST))]


def _ask(call: Call[Page[T]]) -> Iterable[T]:
    try:
        with Client(timeout_seconds=_PATIENCE_SECONDS) as client:
            return client.send(call).items
    except RotaApiError:
        return ()


JobReference = Annotated[
    str, Parameter(help="Name, id or address of a job.", completer=complete_jobs)
]
JobReferences = Annotated[
    tuple[str, ...],
    Parameter(name="JOB…", help="Names, ids or addresses of jobs.", completer=complete_jobs),
]
RunReference = Annotated[
    str,
    Parameter(help="Id of a run, the beginning of one, or its address.", completer=complete_runs),
]
LatestRunReference = Annotated[
    str,
    Parameter(
        help="Id of a run, the beginning of one, its address, or a job for its newest run.",
        completer=complete_runs,
    ),
]
ActiveRunReference = Annotated[
    str,
    Parameter(
        help="Id of a run, the beginning of one, its address, or a job with one active run.",
        completer=complete_runs,
    ),
]
ActiveRunReferences = Annotated[
    tuple[str, ...],
    Parameter(
        name="RUN…",
        help="Ids or addresses of runs, or names of jobs with one active run.",
        completer=complete_runs,
    ),
]

CartReference = Annotated[
    str,
    Parameter(
        help="Id of a cart, the beginning of one, its name or its address.",
        completer=complete_carts,
    ),
]

_WHOLE_RUN_ID = re.compile(r"r_[0-9a-z]{24}")
_UNMISTAKABLE = ("r_", "http://", "https://", "/")  # how nothing but a run is named
_SHOWN = 10


def job_named(reference: str) -> str:
    return _from_address(reference, "jobs")


def run_id(client: Client, reference: str) -> str:
    """The whole id of the one run that is meant."""
    given = _from_address(reference, "runs")
    if _WHOLE_RUN_ID.fullmatch(given):
        return given
    return client.get_run(given if given.startswith("r_") else f"r_{given}").id


def find_cart(client: Client, reference: str) -> CartDetail:
    """The one cart that is meant; of several with the same name the newest."""
    given = _from_address(reference, "carts")
    try:
        return client.get_cart(given)
    except NotFound as error:
        no_such_cart = error
    try:
        return client.get_cart(f"c_{given}")
    except NotFound:
        raise no_such_cart from None


def run_or_latest(client: Client, reference: str) -> str:
    """The id of a run, or of the newest run of the job of that name."""
    return _run_or(_latest_run, client, reference)


def active_run(client: Client, reference: str) -> str:
    """The id of a run, or of the only active run of the job of that name."""
    return _run_or(_only_active_run, client, reference)


def _run_or(run_of_job: Callable[[Client, str], str], client: Client, reference: str) -> str:
    try:
        return run_id(client, reference)
    except NotFound as error:
        no_such_run = error
    try:
        job = client.get_job(job_named(reference)).name
    except NotFound:
        if reference.startswith(_UNMISTAKABLE):
            raise no_such_run from None
        hint = "rota job list and rota run list show them"
        raise NotFound(f"no job or run named {reference}", hint=hint) from None
    return run_of_job(client, job)


def _latest_run(client: Client, job: str) -> str:
    history = client.get_history(job, limit=1)
    if not history.items:
        raise NotFound(f"job {job} has never run", hint=f"rota trigger {job}")
    return history.items[0].id


def _only_active_run(client: Client, job: str) -> str:
    page = client.list_runs(job=job, active=True, limit=_SHOWN)
    match [run.id for run in page.items]:
        case []:
            raise NotFound(f"job {job} has no active run", hint="rota ps lists what is active")
        case [only]:
            return only
        case several:
            named = ", ".join(several) + (" …" if page.next_cursor else "")
            message = f"job {job} has several active runs: {named}"
            raise CommandFailed(message, code=Exit.USAGE, hint="name the runs that are meant")


def _from_address(reference: str, noun: str) -> str:
    """The segment after `/jobs/`, `/runs/` … of an address; anything else stays as it is."""
    if not reference.startswith(("http://", "https://", f"/{noun}/")):
        return reference
    segments = urlsplit(reference).path.split("/")
    if noun in segments[:-1]:
        return unquote(segments[segments.index(noun) + 1])
    return reference
