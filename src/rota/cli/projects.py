"""`rota project` and `rota pool`: tenants, what they may ask for, and whose workers are whose."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from rota.api.projects import Pool, Project, ProjectChange
from rota.cli import times
from rota.cli.failures import counted
from rota.cli.limits import UNLIMITED, Most, require_consent, write_quota
from rota.cli.options import (
    DESTROYING,
    GIVING,
    REMOTE,
    WRITING,
    AtMost,
    Destroying,
    Giving,
    Remote,
    Writing,
)
from rota.cli.printing import Column, ListView, print_list, print_one, write_pairs
from rota.cli.references import ask, ask_all, ask_list, complete_pools, complete_projects
from rota.cli.terminal import CommandFailed, Exit, Terminal, inert
from rota.sdk.client import Client

if TYPE_CHECKING:
    from cyclopts import Token

app = App(name="project", help="Tenants: list, show, create, set, delete.")

_ANY = "any"
_LISTS = frozenset(
    {*("isolation", "network", "run_as", "registries", "mounts"), "container_users", "executors"}
)
_WORDS = {
    "timeout": "timeout",
    "attempts": "attempts",
    "priority": "priority",
    "log_limit": "log limit",
    "max_concurrency": "max concurrency",
}


def _bounds(policy: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield what a policy bounds, as names and words."""
    for name, value in policy.items():
        if name == "resources":
            for resource, most in value.items():
                yield resource, f"at most {most}"
        elif name == "limits":
            for limit, most in value.items():
                yield f"limits.{limit}", f"at most {most}"
        elif name == "pinned_images":
            yield "images", "by digest"
        elif isinstance(value, list):
            yield name, ", ".join(value) or "none"
        else:
            yield _WORDS.get(name, name), f"at most {value}"


def _policy(project: Project) -> str:
    return ", ".join(f"{name} {words}" for name, words in _bounds(project.policy)) or "no bounds"


def _default(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


PROJECTS: ListView[Project] = ListView(
    columns=(
        Column("NAME", lambda project: project.name, is_whole=True),
        Column("TITLE", lambda project: project.title),
        Column("POLICY", _policy),
        Column("CHANGED", lambda project: times.moment(project.updated_at, times.now())),
        Column("BY", lambda project: project.updated_by, only_wide=True),
    ),
    name=lambda project: project.name,
    empty="you have a role in no project; ask an admin for one",
)


def write_project(terminal: Terminal, project: Project, present: datetime) -> None:
    """Print a project on one page."""
    write_pairs(
        terminal,
        [
            ("project", project.name),
            ("title", project.title),
            *((f"policy: {name}", words) for name, words in _bounds(project.policy)),
            *((f"default: {name}", _default(it)) for name, it in project.defaults.items()),
            ("changed", times.moment(project.updated_at, present)),
            ("by", project.updated_by),
        ],
    )


Name = Annotated[str, Parameter(help="Name of a project.", completer=complete_projects)]


@app.command(name="list")
def list_(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List the projects in which you have a role."""
    with remote.connect() as client:
        listing = ask_list(client, Client.list_projects(), limit=limit)
    print_list(remote, listing, PROJECTS)


@app.command
def show(name: Name, /, *, remote: Remote = REMOTE) -> None:
    """Show a project: its policy, the defaults of its jobs, and its quota."""
    with remote.connect() as client:
        found = ask(client, Client.get_project(name))
        quota = ask(client, Client.get_quota().with_query(project=name))

    def page(terminal: Terminal, project: Project) -> None:
        write_project(terminal, project, times.now())
        terminal.write("")
        terminal.write(terminal.colour("quota", "bold"))
        write_quota(terminal, quota.value, times.now())

    found.data["quota"] = quota.data
    print_one(remote, found, name=lambda project: project.name, page=page)


def _number_or_unlimited(_: type, tokens: Sequence[Token]) -> int | str:
    text = tokens[0].value
    try:
        return text if text == UNLIMITED else int(text)
    except ValueError:
        raise ValueError(f'"{text}" is neither a whole number nor {UNLIMITED}') from None


_NUMBER = Parameter(metavar="N", converter=_number_or_unlimited)
_PAIRS = Parameter(metavar="NAME=VALUE", negative=())


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Said:
    """What is said about a project. What is not named stays; `unlimited` takes a bound away."""

    title: Annotated[str | None, Parameter(metavar="TEXT", help="What people call it.")] = None
    pool: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME",
            negative=(),
            help="A pool that its jobs may name; repeat it for more, `any` for all.",
            completer=complete_pools,
        ),
    ] = ()
    max_timeout: Annotated[
        str | None,
        Parameter(metavar="TIME", help="The longest timeout; every job needs one then."),
    ] = None
    max_attempts: Annotated[Most, _NUMBER, Parameter(help="The most attempts of a run.")] = None
    max_priority: Annotated[Most, _NUMBER, Parameter(help="The highest priority.")] = None
    max_resource: Annotated[
        tuple[str, ...],
        _PAIRS,
        Parameter(help="The most of a resource that a run may take (cpu=4, memory=8GiB)."),
    ] = ()
    max_log_limit: Annotated[
        str | None, Parameter(metavar="SIZE", help="The most output that an attempt may keep.")
    ] = None
    max_concurrency: Annotated[
        Most, _NUMBER, Parameter(help="The highest max_concurrency; every job needs one then.")
    ] = None
    policy_: Annotated[
        tuple[str, ...],
        _PAIRS,
        Parameter(
            name="--policy",
            help="What else its jobs may ask for (isolation=sandbox,container, network=none, "
            "limits.memory=4GiB, executors=shell, registries=HOST, pinned_images=true, run_as=USER,"
            " mounts=/FOLDER:rw, container_users=root); NAME= takes it away, NAME=[] allows none.",
        ),
    ] = ()
    default: Annotated[
        tuple[str, ...],
        _PAIRS,
        Parameter(
            help="A field of jobs that neither they nor their file set (timezone=Europe/Berlin, "
            "retry.attempts=3); NAME= takes it away. It counts when jobs are applied next."
        ),
    ] = ()

    def policy(self) -> dict[str, object]:
        """Return the changes of the policy, as the API takes them."""
        given: dict[str, object] = {
            "timeout": self.max_timeout,
            "attempts": self.max_attempts,
            "priority": self.max_priority,
            "log_limit": self.max_log_limit,
            "max_concurrency": self.max_concurrency,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        if self.pool:
            changes["pools"] = UNLIMITED if self.pool == (_ANY,) else list(self.pool)
        if self.max_resource:
            changes["resources"] = {
                name: _unless_unlimited(_value(text)) for name, text in _pairs(self.max_resource)
            }
        changes |= _changes(self.policy_, _LISTS)
        return {name: _unless_unlimited(value) for name, value in changes.items()}

    def defaults(self) -> dict[str, object]:
        """Return the changes of the defaults, as the API takes them."""
        return _changes(self.default)


def _changes(written: Sequence[str], lists: Collection[str] = ()) -> dict[str, object]:
    """Return what pairs say, as a merge patch: `retry.attempts=3`, and `NAME=` takes it away.

    Values of fields that are `lists` are separated by commas.
    """
    changes: dict[str, object] = {}
    for name, text in _pairs(written):
        field, _, inner = name.partition(".")
        value = _value(text) if text else None
        if field in lists and value is not None and not isinstance(value, list):
            value = text.split(",")
        if inner:
            within = changes.setdefault(field, {})
            if isinstance(within, dict):
                within[inner] = value
        else:
            changes[field] = value
    return changes


def _pairs(written: Sequence[str]) -> Iterable[tuple[str, str]]:
    for each in written:
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise CommandFailed(f'"{each}" is not NAME=VALUE', code=Exit.USAGE)
        yield name, value


def _value(text: str) -> object:
    """Return the value of a text: a number, a list … where it is JSON, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _unless_unlimited(value: object) -> object:
    return None if value == UNLIMITED else value


_NOTHING = Said()
_FIRST_PROJECT = "default"  # whose jobs were there before there was another


@app.command
def create(
    name: Annotated[str, Parameter(help="Its name, which can never be changed or given again.")],
    /,
    *,
    said: Said = _NOTHING,
    writing: Writing = WRITING,
) -> None:
    """Create a project. Give somebody a role in it with `rota role grant`."""
    if writing.dry_run:
        writing.rehearse(f"would create project {name}")
    with writing.connect() as client:
        call = Client.create_project(
            name, title=said.title or "", policy=said.policy(), defaults=said.defaults()
        )
        made = ask(client, call)
        pools = ask_all(client, Client.list_pools()).items
    closed = [pool.name for pool in pools if pool.workers and pool.refuses_processes]

    def page(terminal: Terminal, project: Project) -> None:
        terminal.tell(inert(f"created project {project.name}: {_policy(project)}"))
        if closed:
            shared = f"several projects may use {', '.join(closed)} now: jobs without walls start"
            keep = f"rota pool set {closed[0]} --project {_FIRST_PROJECT}"
            terminal.tell(inert(f"{shared} nothing there any more; to keep it for one: {keep}"))
        hint = f"rota role grant PRINCIPAL admin --project {project.name}"
        terminal.tell(inert(f"give somebody a role in it: {hint}"))

    print_one(writing, made, name=lambda project: project.name, page=page)


@app.command(name="set")
def set_(name: Name, /, *, said: Said = _NOTHING, writing: Writing = WRITING) -> Exit:
    """Change a project; what is not named stays, `unlimited` takes a bound away.

    A policy counts at once: jobs that ask for more start nothing until they or the policy change.
    """
    if said == _NOTHING:
        hint = "--title, --pool, --max-timeout, --max-priority, …, --policy or --default"
        raise CommandFailed("say what is to be different", code=Exit.USAGE, hint=hint)
    call = Client.change_project(
        name,
        title=said.title,
        policy=said.policy() or None,
        defaults=said.defaults() or None,
        plan=writing.dry_run,
    )
    with writing.connect() as client:
        change = ask(client, call)
    print_one(writing, change, name=lambda change: change.name, page=_write_change)
    is_planned = not change.value.applied and change.value.change != "unchanged"
    return Exit.CHANGES if is_planned else Exit.DONE


def _write_change(terminal: Terminal, change: ProjectChange) -> None:
    if change.change == "unchanged":
        terminal.tell(inert(f"project {change.name} is unchanged"))
        return
    verb = "changed" if change.applied else "would change"
    terminal.tell(inert(f"{verb} project {change.name}"))
    for line in change.differences:
        terminal.tell(inert(f"  {line}"))
    if change.stops:
        terminal.tell(inert(f"these ask for more, and start nothing: {', '.join(change.stops)}"))


@app.command
def delete(name: Name, /, *, destroying: Destroying = DESTROYING) -> None:
    """Delete a project in which nothing lives; its name is never given again."""
    with destroying.connect() as client:
        found = client.get_project(name)
        require_consent(destroying, f"delete project {found.name} for good")
        client.delete_project(found.name)
    destroying.terminal().tell(inert(f"deleted project {found.name}"))


pool_app = App(name="pool", help="Pools of workers, and the projects that may use them.")


def _users(pool: Pool) -> str:
    if pool.is_shared:
        return "all"
    others = f"{counted(pool.other_projects, 'other')}" if pool.other_projects else ""
    return ", ".join(filter(None, [*pool.projects, others]))


def _processes(pool: Pool) -> str:
    """Say whether plain processes may run there."""
    if pool.refuses_processes:
        return "refused: it is shared"
    return "refused once it is shared" if pool.is_private else "allowed"


POOLS: ListView[Pool] = ListView(
    columns=(
        Column("NAME", lambda pool: pool.name, is_whole=True),
        Column("WORKERS", lambda pool: f"{pool.workers:,}"),
        Column("PROJECTS", _users),
        Column("PROCESSES", _processes),
    ),
    name=lambda pool: pool.name,
    empty="no pools; the first worker of one makes it",
)

PoolName = Annotated[str, Parameter(help="Name of a pool.", completer=complete_pools)]


@pool_app.command(name="list")
def list_pools(*, remote: Remote = REMOTE) -> None:
    """List the pools that your projects may use."""
    with remote.connect() as client:
        listing = ask_all(client, Client.list_pools())
    print_list(remote, listing, POOLS)


@pool_app.command(name="show")
def show_pool(name: PoolName, /, *, remote: Remote = REMOTE) -> None:
    """Show a pool: how many workers it has, and who may use it."""
    with remote.connect() as client:
        found = ask(client, Client.get_pool(name))
    print_one(remote, found, name=lambda pool: pool.name, page=_write_pool)


def _write_pool(terminal: Terminal, pool: Pool) -> None:
    pairs = [
        ("pool", pool.name),
        ("workers", f"{pool.workers:,}"),
        ("projects", _users(pool)),
        ("processes", _processes(pool)),
        ("largest run", _amounts(pool.max)),
    ]
    write_pairs(terminal, pairs)


@pool_app.command(name="set")
def set_pool(
    name: PoolName,
    /,
    *,
    shared: Annotated[bool, Parameter(negative=(), help="All projects may use it.")] = False,
    private: Annotated[
        bool | None,
        Parameter(
            negative="--no-private",
            help="Keep plain processes out while several projects may use it.",
        ),
    ] = None,
    most: Annotated[
        tuple[str, ...],
        Parameter(
            name="--max",
            metavar="NAME=AMOUNT",
            help="The most that one run may ask for, as cpu=16 or memory=64GiB; repeat it for more,"
            " `any` for no such limit.",
        ),
    ] = (),
    giving: Giving = GIVING,
) -> None:
    """Give a pool to projects, or to all, and say how large their runs may be.

    Jobs of other projects start nothing there any more, and jobs that ask for more are refused. In
    stores of earlier releases plain processes run in shared pools until these are private.
    """
    is_given = bool(giving.project) or shared
    if (giving.project and shared) or not (is_given or private is not None or most):
        raise CommandFailed(
            "say who may use it, in one way, or how large runs may be",
            code=Exit.USAGE,
            hint="--project NAME, or --shared; and perhaps --private; or --max cpu=16",
        )
    largest = _largest(most)
    done = _words_of_use(giving.project, private, is_given=is_given)
    if largest is not None:
        bound = f"for runs of at most {_amounts(largest)}" if largest else "for runs of any size"
        done = ", ".join(filter(None, [done, bound]))
    if giving.dry_run:
        giving.rehearse(f"would make pool {name} {done}")
    projects = giving.project if giving.project or shared else None
    with giving.connect() as client:
        given = ask(client, Client.put_pool(name, projects, private=private, max=largest))
        strange = _strange(client, largest or {})

    def tell(terminal: Terminal, pool: Pool) -> None:
        terminal.tell(inert(f"pool {pool.name} is {done} now"))
        for remark in strange:
            terminal.tell(inert(remark))

    print_one(giving, given, name=lambda pool: pool.name, page=tell)


def _strange(client: Client, bounded: Mapping[str, str]) -> list[str]:
    """Return remarks about resources that no worker offers: a typing error bounds nothing."""
    from difflib import get_close_matches  # only where something is bounded

    offered = {name for worker in client.list_workers() for name in worker.resources}
    remarks = []
    for name in bounded if offered else ():
        if name not in offered:
            near = get_close_matches(name, offered, 1)
            meant = f': did you mean "{near[0]}"?' if near else " now"
            remarks.append(f"no worker offers {name}{meant}")
    return remarks


def _largest(written: Sequence[str]) -> dict[str, str] | None:
    """Parse NAME=AMOUNT; None: nothing is said, and what was said before stays."""
    if not written:
        return None
    if tuple(written) == (_ANY,):
        return {}
    pairs = [each.partition("=") for each in written]
    if wrong := [name for name, equals, amount in pairs if not (name and equals and amount)]:
        raise CommandFailed(
            f"--max {wrong[0]} is not NAME=AMOUNT",
            code=Exit.USAGE,
            hint="--max cpu=16 --max memory=64GiB, or --max any",
        )
    return {name: amount for name, _, amount in pairs}


def _amounts(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in amounts.items())


def _words_of_use(projects: Sequence[str], private: bool | None, *, is_given: bool) -> str:
    whom = f"for {', '.join(projects) or 'all projects'}" if is_given else ""
    closed = {None: "", True: "private", False: "not private"}[private]
    return ", ".join(filter(None, [whom, closed]))
