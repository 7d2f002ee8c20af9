"""References to things: a name, an id, the beginning of an id, or a pasted address."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from cyclopts import Parameter

from rota.api.carts import CartDetail
from rota.cli.terminal import CommandFailed, Exit, inert
from rota.sdk.answers import Page, Run
from rota.sdk.client import Client
from rota.sdk.errors import NotFound, RotaApiError
from rota.sdk.exchange import Call, read

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

T = TypeVar("T")

_PATIENCE_SECONDS = 1.0
_MOST = 200


def complete_jobs(context: CompletionContext) -> list[tuple[str, str]]:
    """Complete job names with their schedules in words."""
    jobs = _ask(Client.list_jobs(name=f"{context.incomplete}*", limit=_MOST))
    return [(job.name, job.schedule.words if job.schedule else "on demand") for job in jobs]


def complete_runs(context: CompletionContext) -> list[tuple[str, str]]:
    """Complete the newest runs with job and state."""
    return [(run.id, f"{run.job} {run.state.lower()}") for run in _ask(Client.list_runs(limit=50))]


def complete_carts(_: CompletionContext) -> list[tuple[str, str]]:
    """Complete the newest carts with name and state."""
    carts = _ask(Client.list_carts(limit=50))
    return [(cart.id, f"{cart.name} {cart.state.lower()}") for cart in carts]


def complete_calendars(_: CompletionContext) -> list[tuple[str, str]]:
    """Complete calendar names with their windows in words."""
    return [(it.name, it.words) for it in _ask(Client.list_calendars(limit=_MOST))]


def complete_limits(_: CompletionContext) -> list[tuple[str, str]]:
    """Complete names of rate limits with what they allow."""
    return [(it.name, it.words) for it in _ask(Client.list_limits(limit=_MOST))]


def complete_resources(_: CompletionContext) -> list[tuple[str, str]]:
    """Complete names of resources with what they allow."""
    return [(it.name, it.words) for it in _ask(Client.list_resources(limit=_MOST))]


def complete_projects(_: CompletionContext) -> list[tuple[str, str]]:
    """Complete names of projects with their titles."""
    return [(it.name, it.title) for it in _ask(Client.list_projects(limit=_MOST))]


def complete_pools(_: CompletionContext) -> list[tuple[str, str]]:
    """Complete names of pools with how many workers they have."""
    return [(it.name, f"{it.workers} workers") for it in _ask(Client.list_pools())]


def complete_principals(_: CompletionContext) -> list[tuple[str, str]]:
    """Complete handles with the names of people."""
    return [(it.handle, it.title) for it in _ask(Client.list_principals(limit=_MOST))]


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
    str,
    Parameter(name="JOB…", help="Names, ids or addresses of jobs.", completer=complete_jobs),
]
LatestRunReference = Annotated[
    str,
    Parameter(
        help="Id of a run, the beginning of one, its address, or a job for its newest run.",
        completer=complete_runs,
    ),
]
EndedRunReference = Annotated[
    str,
    Parameter(
        help="Id of a run, the beginning of one, its address, or a job for its newest that ended.",
        completer=complete_runs,
    ),
]
UnknownRunReference = Annotated[
    str,
    Parameter(
        help="Id of a run, the beginning of one, its address, or a job with one unknown run.",
        completer=complete_runs,
    ),
]
WaitingRunReference = Annotated[
    str,
    Parameter(
        help="Id of a run, the beginning of one, its address, or a job with one run that waits.",
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
    str,
    Parameter(
        name="RUN…",
        required=True,
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
WAITING = ("scheduled", "blocked", "queued")
_ACTIVE = (*WAITING, "claimed", "processing", "unknown")


def job_named(reference: str) -> str:
    return _from_address(reference, "jobs")


def run_id(client: Client, reference: str) -> str:
    """Return the whole id of the run that is meant."""
    given = _from_address(reference, "runs")
    if _WHOLE_RUN_ID.fullmatch(given):
        return given
    return client.get_run(given if given.startswith("r_") else f"r_{given}").id


def find_cart(client: Client, reference: str) -> CartDetail:
    """Find the cart that is meant; of several with the same name the newest."""
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
    """Return the id of a run, or of the newest run of the job of that name."""
    return _run_or(lambda newest: newest, client, reference)


def run_or_started(client: Client, reference: str) -> str:
    """Return the id of a run, or of the newest run of the job of that name that has started.

    Runs for a later time are newer, and have printed nothing.
    """

    def newest_started(newest: Run) -> Run:
        if newest.attempt:
            return newest
        history = client.each(Client.get_history(newest.job_id))
        return next((run for run in history if run.attempt and _is_work(run)), newest)

    return _run_or(newest_started, client, reference)


def run_or_ended(client: Client, reference: str) -> str:
    """Return the id of a run, or of the newest ended run of the job of that name."""

    def newest_ended(newest: Run) -> Run:
        if newest.is_final:
            return newest
        history = client.each(Client.get_history(newest.job_id))
        ended = next((run for run in history if run.is_final and _is_work(run)), None)
        if ended is None:
            hint = f"rota run watch {newest.id}"
            raise NotFound(f"no run of job {newest.job} has ended yet", hint=hint)
        return ended

    return _run_or(newest_ended, client, reference)


def active_run(client: Client, reference: str) -> str:
    """Return the id of a run, or of the only active run of the job of that name."""
    return _run_or(lambda newest: _only(client, newest, "active", _ACTIVE), client, reference)


def waiting_run(client: Client, reference: str) -> str:
    """Return the id of a run, or of the only waiting run of the job of that name."""
    return _run_or(lambda newest: _only(client, newest, "waiting", WAITING), client, reference)


def unknown_run(client: Client, reference: str) -> str:
    """Return the id of a run, or of the only unknown run of the job of that name."""
    return _run_or(lambda newest: _only(client, newest, "unknown", ["unknown"]), client, reference)


def _run_or(run_of_job: Callable[[Run], Run], client: Client, reference: str) -> str:
    """Return the run of that id; else one of the job of that name, chosen by its newest run."""
    try:
        return run_id(client, reference)
    except NotFound as error:
        no_such_run = error
    job = job_named(reference)
    try:
        history = client.each(Client.get_history(job, limit=_SHOWN))
        newest = next(filter(_is_work, history), None)
    except NotFound as error:
        if reference.startswith(_UNMISTAKABLE):
            raise no_such_run from None
        raise NotFound(f"no job or run named {reference}", hint=error.hint) from None
    if newest is None:
        raise NotFound(f"job {job} has never run", hint=f"rota trigger {job}")
    return run_of_job(newest).id


def _is_work(run: Run) -> bool:
    """Return whether a run does what its job is for: a probe asks about another one."""
    return run.trigger != "probe"


def _only(client: Client, newest: Run, word: str, states: Sequence[str]) -> Run:
    """Return the only run of a job in these states: choosing one of several would be a guess."""
    page = client.list_runs(job=newest.job, state=",".join(states), limit=_SHOWN)
    match [run for run in page.items if run.job_id == newest.job_id and _is_work(run)]:
        case []:
            hint = f"its newest run is {newest.id}, {newest.state.lower()}"
            raise NotFound(f"job {newest.job} has no {word} run", hint=hint)
        case [only]:
            return only
        case several:
            named = ", ".join(run.id for run in several) + (" …" if page.next_cursor else "")
            message = f"job {newest.job} has several {word} runs: {named}"
            raise CommandFailed(message, code=Exit.USAGE, hint="name the runs that are meant")


def _from_address(reference: str, noun: str) -> str:
    """Return the segment after `/jobs/`, `/runs/` … of an address; else the text itself."""
    if not reference.startswith(("http://", "https://", f"/{noun}/")):
        return reference
    segments = urlsplit(reference).path.split("/")
    if noun in segments[:-1]:
        return unquote(segments[segments.index(noun) + 1])
    return reference


def page_address(server: str, url: str) -> str:
    """Return where people see a page: the server may know an address other than `server`."""
    return inert(url if "://" in url else f"{server}{url}")


_LARGEST_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    value: T
    data: Any  # the JSON document, fields unknown to this version included


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Beginning of a list."""

    items: list[T]
    data: list[Any]  # the JSON document of each item
    next_cursor: str | None  # None: there is no more


def ask(client: Client, call: Call[T]) -> Answered[T]:
    reply = client.exchange(call)
    value = read(call, reply)
    return Answered(value, json.loads(reply.body or b"null"))


def ask_list(client: Client, call: Call[Page[T]], *, limit: int) -> Listing[T]:
    """List at most `limit` items, over as many pages as that takes."""
    items: list[T] = []
    data: list[Any] = []
    cursor: str | None = None
    while True:
        size = min(limit - len(items), _LARGEST_PAGE)
        page = ask(client, call.with_query(limit=size, cursor=cursor))
        items += page.value.items
        data += page.data["items"]
        cursor = page.value.next_cursor
        if cursor is None or len(items) >= limit:
            return Listing(items, data, cursor)


def ask_all(client: Client, call: Call[Page[T]]) -> Listing[T]:
    """List all items of a list that has no pages."""
    page = ask(client, call)
    return Listing(list(page.value.items), page.data["items"], page.value.next_cursor)
