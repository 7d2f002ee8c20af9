"""`rota limit`, `rota resource`, `rota quota` and `rota share`: limits that runs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.api.limits import Bucket, DeclarationChange, Limit, Quota, Resource, Share, Use
from rota.cli import times
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
from rota.cli.references import ask, ask_all, ask_list, complete_limits, complete_resources
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.sdk.answers import Page
from rota.sdk.client import Client
from rota.sdk.exchange import Call
from rota.sdk.limits import Kind

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
    """Print a rate limit on one page."""
    pairs = [("limit", limit.name), ("allows", limit.words), ("tokens", _tokens(limit))]
    if limit.bucket is not None:
        pairs += [
            ("queued runs take", _amount(limit.bucket.queued)),
            ("next token", _next(limit.bucket, present) if limit.bucket.next_token_at else ""),
            ("waiting", counted(limit.bucket.waiting, "run")),
        ]
    write_pairs(terminal, [*pairs, *_changed(limit, present)])


def write_resource(terminal: Terminal, resource: Resource, present: datetime) -> None:
    """Print a named resource on one page."""
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
    """Print the quota of a project and its usage."""
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
            ("file bytes", f"{_most(quota.file_bytes)}, {quota.file_bytes_now:,} now"),
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
    """Kind of declaration: how to ask for it, and how it is shown."""

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
    """Save a declaration and print what that changed, or would change."""
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
    """End the command for a dry run, or without consent."""
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


if TYPE_CHECKING:
    from cyclopts import Token

quota_app = App(name="quota", help="What a project may have: show, set, clear.")

UNLIMITED = "unlimited"


def _number(_: type, tokens: Sequence[Token]) -> int | str:
    text = tokens[0].value
    try:
        return text if text == UNLIMITED else int(text)
    except ValueError:
        raise ValueError(f'"{text}" is neither a whole number nor {UNLIMITED}') from None


def _size(kind: type, tokens: Sequence[Token]) -> int | str:
    text = tokens[0].value
    if text == UNLIMITED or text.isdecimal():
        return _number(kind, tokens)
    from rota.runtime.offline import parse_size  # not for those who give no size

    return parse_size(text)


Most = int | str | None  # None: as it is
_NUMBER = Parameter(metavar="N", converter=_number)
_SIZE = Parameter(metavar="SIZE", converter=_size)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a quota."""

    running: Annotated[Most, _NUMBER, Parameter(help="Runs at a time.")] = None
    queued: Annotated[Most, _NUMBER, Parameter(help="Runs that wait; more are refused.")] = None
    runs_per_minute: Annotated[Most, _NUMBER, Parameter(help="Runs started a minute.")] = None
    output_bytes_per_day: Annotated[
        Most, _SIZE, Parameter(help="Output of all runs in a day, such as 10GiB.")
    ] = None
    file_bytes: Annotated[
        Most, _SIZE, Parameter(help="Uploads, inputs and artifacts that are kept, such as 20GiB.")
    ] = None
    jobs: Annotated[Most, _NUMBER, Parameter(help="Jobs.")] = None

    def of(self, quota: Quota) -> dict[str, int | None]:
        """Return the whole quota with the changes."""
        return {
            name: getattr(quota, name) if most is None else None if most == UNLIMITED else most
            for name, most in asdict(self).items()
        }


_AS_IT_IS = Changes()


@quota_app.command(name="show")
def show_quota(*, remote: Remote = REMOTE) -> None:
    """Show the quota of a project, and what it has of it."""
    with remote.connect() as client:
        found = ask(client, Client.get_quota())
    print_one(
        remote,
        found,
        name=lambda quota: quota.project,
        page=lambda terminal, quota: write_quota(terminal, quota, times.now()),
    )


@quota_app.command(name="set")
def set_quota(*, changes: Changes = _AS_IT_IS, writing: Writing = WRITING) -> Exit:
    """Change the quota of a project; what is not named stays, `unlimited` takes a number away."""
    if changes == _AS_IT_IS:
        hint = (
            "--running, --queued, --runs-per-minute, --output-bytes-per-day, --file-bytes or --jobs"
        )
        raise CommandFailed("say what is to be different", code=Exit.USAGE, hint=hint)
    with writing.connect() as client:
        quota = client.get_quota()
    call = Client.put_quota(**changes.of(quota), plan=writing.dry_run)
    return set_declared(writing, f"quota of project {quota.project}", call)


@quota_app.command(name="clear")
def clear_quota(*, destroying: Destroying = DESTROYING) -> None:
    """Let a project have as much as it likes."""
    with destroying.connect() as client:
        project = client.get_quota().project
        require_consent(destroying, f"clear the quota of project {project}")
        client.delete_quota()
    destroying.terminal().tell(f"cleared the quota of project {inert(project)}")


resource_app = App(
    name="resource", help="Named resources that runs share: list, show, set, delete."
)

ResourceName = Annotated[str, Parameter(help="Name of a resource.", completer=complete_resources)]
_RESOURCE = Declared(
    "resource",
    Client.list_resources,
    Client.get_resource,
    Client.delete_resource,
    RESOURCES,
    write_resource,
)


@resource_app.command(name="list")
def list_resources(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List named resources: what is in use, which runs hold it, and how many wait."""
    list_declared(remote, _RESOURCE, limit)


@resource_app.command(name="show")
def show_resource(name: ResourceName, /, *, remote: Remote = REMOTE) -> None:
    """Show a named resource: what is in use, which runs hold it, and how many wait."""
    show_declared(remote, _RESOURCE, name)


@resource_app.command(name="set")
def set_resource(
    name: ResourceName,
    /,
    *,
    total: Annotated[
        WholeNumber | None,
        Parameter(validator=Number(gte=1), help="How many units there are."),
    ] = None,
    mutex: Annotated[bool, Parameter(help="One run has it at a time.")] = False,
    read_write: Annotated[bool, Parameter(help="Many runs read, or one writes.")] = False,
    writing: Writing = WRITING,
) -> Exit:
    """Create a named resource, or change it; runs that wait for it follow it at once."""
    if (total is not None) + mutex + read_write != 1:
        raise CommandFailed(
            "say what it is, in one way",
            code=Exit.USAGE,
            hint="--total N, --mutex or --read-write",
        )
    kind: Kind = "mutex" if mutex else "read_write" if read_write else "counted"
    call = Client.put_resource(name, total=total, kind=kind, plan=writing.dry_run)
    return set_declared(writing, f"resource {name}", call)


@resource_app.command(name="delete")
def delete_resource(name: ResourceName, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a named resource that no job uses."""
    delete_declared(destroying, _RESOURCE, name)


share_app = App(
    name="share", help="Weights of shares, by which busy workers are divided: list, set."
)


@share_app.command(name="list")
def list_shares(*, remote: Remote = REMOTE) -> None:
    """List the shares whose weight somebody has set; all others weigh 1."""
    with remote.connect() as client:
        listing = ask_all(client, Client.list_shares())
    print_list(remote, listing, SHARES)


@share_app.command(name="set")
def set_share(
    share: Annotated[
        str,
        Parameter(help="A project, a user in it (PROJECT/USER), or the `share` that jobs name."),
    ],
    /,
    *,
    weight: Annotated[
        float,
        Parameter(metavar="N", validator=Number(gte=0.001, lte=1000), help="1 is the usual one."),
    ],
    writing: Writing = WRITING,
) -> None:
    """Set the weight of a share: twice the weight is twice the part of a busy pool."""
    if writing.dry_run:
        writing.rehearse(f"would set the weight of {share} to {weight:g}")
    with writing.connect() as client:
        saved = ask(client, Client.put_share(share, weight))
    print_one(
        writing,
        saved,
        name=lambda share: share.share,
        page=lambda terminal, share: terminal.tell(
            f"{inert(share.share)} weighs {share.weight:g} now"
        ),
    )
