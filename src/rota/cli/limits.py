"""Rate limits, named resources, quotas and shares as tables and pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.api.limits import Bucket, DeclarationChange, Limit, Quota, Resource, Share, Use
from rota.cli import times
from rota.cli.asking import ask, ask_list
from rota.cli.exits import Exit
from rota.cli.failures import counted
from rota.cli.options import (
    DESTROYING,
    REMOTE,
    WRITING,
    AtMost,
    Destroying,
    Duration,
    Remote,
    WholeNumber,
    Writing,
)
from rota.cli.printing import (
    Column,
    ListView,
    exit_of_change,
    print_list,
    print_one,
    write_change,
    write_pairs,
)
from rota.cli.references import complete_limits
from rota.cli.terminal import Terminal, inert
from rota.sdk.answers import Page
from rota.sdk.client import Client
from rota.sdk.exchange import Call

_NOTHING = "–"


def _tokens(limit: Limit) -> str:
    if limit.bucket is None:
        return f"a bucket for each {limit.each}"
    return f"{limit.bucket.tokens:,} of {limit.burst:,}"


def _next(bucket: Bucket | None, present: datetime) -> str:
    return _NOTHING if bucket is None else times.moment(bucket.next_token_at, present)


def _in_use(resource: Resource) -> str:
    held = resource.use.held
    if resource.total is not None:
        return f"{held:,} of {resource.total:,}"
    return "1 writer" if resource.is_written else counted(held, "reader")


def _holders(use: Use) -> str:
    return " ".join(use.holders)


LIMITS: ListView[Limit] = ListView(
    columns=(
        Column("NAME", lambda limit: limit.name, is_whole=True),
        Column("ALLOWS", lambda limit: limit.words),
        Column("TOKENS", _tokens),
        Column("NEXT", lambda limit: _next(limit.bucket, times.now())),
        Column("WAITING", lambda limit: f"{limit.bucket.waiting:,}" if limit.bucket else _NOTHING),
        Column(
            "CHANGED", lambda limit: times.moment(limit.updated_at, times.now()), only_wide=True
        ),
        Column("BY", lambda limit: limit.updated_by, only_wide=True),
    ),
    name=lambda limit: limit.name,
    empty="no limits; set one with: rota limit set NAME --tokens 10 --per 1s",
)

RESOURCES: ListView[Resource] = ListView(
    columns=(
        Column("NAME", lambda resource: resource.name, is_whole=True),
        Column("ALLOWS", lambda resource: resource.words),
        Column("IN USE", _in_use),
        Column("WAITING", lambda resource: f"{resource.use.waiting:,}"),
        Column("HELD BY", lambda resource: _holders(resource.use) or _NOTHING),
        Column(
            "CHANGED",
            lambda resource: times.moment(resource.updated_at, times.now()),
            only_wide=True,
        ),
        Column("BY", lambda resource: resource.updated_by, only_wide=True),
    ),
    name=lambda resource: resource.name,
    empty="no resources; set one with: rota resource set NAME --total 4",
)

SHARES: ListView[Share] = ListView(
    columns=(
        Column("SHARE", lambda share: share.share, is_whole=True),
        Column("WEIGHT", lambda share: f"{share.weight:g}"),
        Column("CHANGED", lambda share: times.moment(share.updated_at, times.now())),
        Column("BY", lambda share: share.updated_by),
    ),
    name=lambda share: share.share,
    empty="all shares weigh 1; set one with: rota share set SHARE --weight 2",
)


def write_limit(terminal: Terminal, limit: Limit, present: datetime) -> None:
    """A rate limit on one page."""
    pairs = [("limit", limit.name), ("allows", limit.words), ("tokens", _tokens(limit))]
    if limit.bucket is not None:
        pairs += [
            ("queued runs take", _amount(limit.bucket.queued)),
            ("next token", _next(limit.bucket, present) if limit.bucket.next_token_at else ""),
            ("waiting", counted(limit.bucket.waiting, "run")),
        ]
    write_pairs(terminal, [*pairs, *_changed(limit, present)])


def write_resource(terminal: Terminal, resource: Resource, present: datetime) -> None:
    """A named resource on one page."""
    write_pairs(
        terminal,
        [
            ("resource", resource.name),
            ("allows", resource.words),
            ("in use", _in_use(resource)),
            ("held by", _holders(resource.use)),
            ("queued runs take", _amount(resource.use.queued)),
            ("waiting", counted(resource.use.waiting, "run")),
            *_changed(resource, present),
        ],
    )


def write_quota(terminal: Terminal, quota: Quota, present: datetime) -> None:
    """What a project may have, and what it has of it."""
    running = f", {_live(quota.use)}" if quota.use else ""
    write_pairs(
        terminal,
        [
            ("project", quota.project),
            ("jobs", f"{_most(quota.jobs)}, {quota.jobs_now:,} now"),
            ("queued", f"{_most(quota.queued)}, {quota.queued_now:,} now"),
            ("running", _most(quota.running) + running),
            ("runs per minute", _most(quota.runs_per_minute) + _left(quota.bucket)),
            ("output bytes per day", _most(quota.output_bytes_per_day) + _left(quota.output)),
            *_changed(quota, present),
        ],
    )


def _left(bucket: Bucket | None) -> str:
    return f", {bucket.tokens:,} left now{_waiting(bucket.waiting)}" if bucket else ""


def _live(use: Use) -> str:
    queued = f", {use.queued:,} queued" if use.queued else ""
    return f"{use.held:,} now{queued}{_waiting(use.waiting)}"


def _waiting(runs: int) -> str:
    return f", {counted(runs, 'run')} waiting" if runs else ""


def _most(number: int | None) -> str:
    return "unlimited" if number is None else f"at most {number:,}"


def _amount(number: int) -> str:
    return f"{number:,}" if number else ""


def _changed(declared: Limit | Resource | Quota, present: datetime) -> list[tuple[str, str]]:
    if declared.updated_at is None:
        return []
    changed = times.moment(declared.updated_at, present)
    return [("changed", changed), ("by", declared.updated_by or "")]


D = TypeVar("D", Limit, Resource)


@dataclass(frozen=True, slots=True)
class Declared(Generic[D]):
    """What is declared under a name: how to ask for it, and how it is shown."""

    word: str
    list_all: Callable[[], Call[Page[D]]]
    get: Callable[[str], Call[D]]
    delete: Callable[[str], Call[None]]
    table: ListView[D]
    page: Callable[[Terminal, D, datetime], None]


def list_declared(remote: Remote, declared: Declared[D], limit: int) -> None:
    with remote.connect() as client:
        listing = ask_list(client, declared.list_all(), limit=limit)
    print_list(remote, listing, declared.table)


def show_declared(remote: Remote, declared: Declared[D], name: str) -> None:
    with remote.connect() as client:
        found = ask(client, declared.get(name))
    print_one(
        remote,
        found,
        name=lambda found: found.name,
        page=lambda terminal, found: declared.page(terminal, found, times.now()),
    )


def set_declared(writing: Writing, what: str, call: Call[DeclarationChange]) -> Exit:
    """Save it and say what that changed, or would change."""
    with writing.connect() as client:
        change = ask(client, call)
    print_one(
        writing,
        change,
        name=lambda change: change.name,
        page=lambda terminal, change: write_change(terminal, what, change),
    )
    return exit_of_change(change.value)


def delete_declared(destroying: Destroying, declared: Declared[D], name: str) -> None:
    with destroying.connect() as client:
        found = ask(client, declared.get(name)).value
        what = f"{declared.word} {found.name}"
        require_consent(destroying, f"delete {what}")
        ask(client, declared.delete(found.name))
    destroying.terminal().tell(f"deleted {inert(what)}")


def require_consent(destroying: Destroying, what: str) -> None:
    """End a rehearsal here, and anything that nobody agrees to."""
    if destroying.dry_run:
        destroying.rehearse(f"would {what}")
    destroying.terminal().confirm(
        inert(f"{what}?"), yes=destroying.yes, otherwise="add --yes to do it"
    )


app = App(name="limit", help="Rate limits, as token buckets: list, show, set, delete.")

Name = Annotated[str, Parameter(help="Name of a limit.", completer=complete_limits)]
Tokens = Parameter(validator=Number(gte=1))
_LIMIT = Declared(
    "limit",
    Client.list_limits,
    Client.get_limit,
    Client.delete_limit,
    LIMITS,
    write_limit,
)


@app.command(name="list")
def list_(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List rate limits: the tokens there are, when the next comes, and how many runs wait."""
    list_declared(remote, _LIMIT, limit)


@app.command
def show(name: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a rate limit: the tokens there are, when the next comes, and how many runs wait."""
    show_declared(remote, _LIMIT, name)


@app.command(name="set")
def set_(
    name: Name,
    /,
    *,
    tokens: Annotated[WholeNumber, Tokens, Parameter(help="How many tokens come.")],
    per: Annotated[Duration, Parameter(help="The time in which they come (1s, 1m).")],
    burst: Annotated[
        WholeNumber | None,
        Tokens,
        Parameter(help="How many may be taken at once after a rest. Default: as many as --tokens."),
    ] = None,
    each: Annotated[
        Literal["job", "user", "project"] | None,
        Parameter(
            help="Every run of the project takes a token, and each of these has tokens of its own. "
            "Default: only jobs that name the limit, which share them."
        ),
    ] = None,
    writing: Writing = WRITING,
) -> Exit:
    """Create a rate limit, or change it; runs that wait for it follow it at once."""
    call = Client.put_limit(
        name, tokens=tokens, per=per, burst=burst, each=each, plan=writing.dry_run
    )
    return set_declared(writing, f"limit {name}", call)


@app.command
def delete(name: Name, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a rate limit; runs that wait for it are let go."""
    delete_declared(destroying, _LIMIT, name)
