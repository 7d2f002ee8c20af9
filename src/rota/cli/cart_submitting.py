"""Submission of a cart that was applied or is in a file: plan, consent, submit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from cyclopts import Parameter

from rota.api.carts import Cart, CartPlan
from rota.cli import times
from rota.cli.cart_views import plan_lines, write_planned
from rota.cli.cart_watching import watch_cart
from rota.cli.failures import FileRefused, counted
from rota.cli.files import as_inputs
from rota.cli.options import Destroying, Duration, Format, Instant, Remote, take_time
from rota.cli.printing import print_one
from rota.cli.references import Answered, ask, page_address
from rota.cli.terminal import MANY, CommandFailed, Exit, Rehearsed, Terminal, inert
from rota.cli.texts import NamedText, nearest_file, read_text
from rota.sdk import errors
from rota.sdk.carts import Item, encoded_item
from rota.sdk.client import Client
from rota.sdk.exchange import Call

if TYPE_CHECKING:
    from rota.runtime.cart_files import CartFile

T = TypeVar("T")

_MOST_LOOKED_UP = 20  # jobs
_FILE_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Arguments of the command line."""

    cart: str  # a name, or the path of a file
    choice: str | None = None  # of several carts of a file
    inputs: Mapping[str, str] = field(default_factory=dict)  # for every item
    at: str | None = None  # as it was written
    starts_at: datetime | None = None  # what that means
    key: str | None = None

    @property
    def is_file(self) -> bool:
        """Return whether it looks like a file; the names of carts do not."""
        path = Path(self.cart)
        return self.cart == "-" or path.suffix in _FILE_SUFFIXES or len(path.parts) > 1


@dataclass(frozen=True, slots=True)
class AppliedCart:
    """Cart that the server knows."""

    wanted: Wanted
    project: str | None  # None: the usual one
    note: str = ""

    def plan(self, client: Client) -> Answered[CartPlan]:
        wanted, inputs = self.wanted, self._inputs(client)
        with _blame_at_flag(wanted):
            return ask(client, Client.plan_template(wanted.cart, inputs, at=wanted.starts_at))

    def submit(self, client: Client) -> Answered[Cart]:
        wanted, inputs = self.wanted, self._inputs(client)
        call = Client.submit_template(wanted.cart, inputs, at=wanted.starts_at, key=wanted.key)
        with _blame_at_flag(wanted):
            return ask(client, call)

    def _inputs(self, client: Client) -> Mapping[str, Any]:
        """Return the inputs for every item, with the files that `NAME=@FILE` gives uploaded."""
        given = dict(self.wanted.inputs)
        if not any(value.startswith("@") for value in given.values()):
            return given
        job = client.get_cart_template(self.wanted.cart).document.get("job")
        return as_inputs(client, job, given) if job else given


@dataclass(frozen=True, slots=True)
class CartInFile:
    """Cart that is read here, once: what is planned and agreed to is what is sent."""

    wanted: Wanted
    file: str  # how a command line names the job file
    label: str  # how they call the file that has the items
    document: Mapping[str, Any]  # the cart, without its items
    items: Sequence[Item]
    jobs: Collection[str]  # that the items need
    project: str | None
    defined: frozenset[str]  # jobs of the same file, which are not applied
    note: str  # what its reader may not expect; "": nothing

    def plan(self, client: Client) -> Answered[CartPlan]:
        call = Client.plan_cart(self.document, self.items, at=self.wanted.starts_at)
        return self._ask(client, call)

    def submit(self, client: Client) -> Answered[Cart]:
        call = Client.submit_cart(
            self.document, self.items, at=self.wanted.starts_at, key=self.wanted.key
        )
        return self._ask(client, call)

    def _ask(self, client: Client, call: Call[T]) -> Answered[T]:
        try:
            with _blame_at_flag(self.wanted):
                return ask(client, call)
        except errors.Invalid as error:
            self._refuse_unknown_job(client)
            if not error.errors:
                raise
            raise FileRefused(self.label, error.message, error.errors) from error

    def _refuse_unknown_job(self, client: Client) -> None:
        """Raise a failure that a job has to be applied first, rather than one for each item."""
        for name in sorted(self.jobs)[:_MOST_LOOKED_UP]:
            try:
                client.get_job(name)
            except errors.NotFound as error:
                hint = error.hint
                if name in self.defined:
                    hint = f"submit applies no jobs; define it first: rota apply {self.file}"
                message = f"there is no job {name}"
                raise CommandFailed(message, code=Exit.NOT_FOUND, hint=hint) from error


CartSource: TypeAlias = AppliedCart | CartInFile


def find_source(wanted: Wanted, project: str | None) -> CartSource:
    """Find the cart, and check its items as far as that goes without the server."""
    if wanted.is_file:
        return _from_file(wanted, project)
    if wanted.choice is not None:
        raise CommandFailed("--cart chooses among the carts of a file", code=Exit.USAGE)
    return AppliedCart(wanted, project)


def _from_file(wanted: Wanted, project: str | None) -> CartInFile:
    from rota.runtime.cart_files import CartChoice, read_cart_file
    from rota.sdk.packing import as_if_uploaded

    text = read_text(Path(wanted.cart))
    folder = Path(wanted.cart).parent
    written = as_if_uploaded(text.text, folder)  # submitting applies no jobs
    choice = CartChoice(written, text.stem, folder, wanted.choice, project)
    with _problems_as_failure(text.label):
        found = read_cart_file(choice, wanted.inputs)
    label = text.label if found.items_path is None else str(found.items_path)
    _require_items(text.label, found)
    with _problems_as_failure(label):
        items, jobs = _encoded(found)
    return CartInFile(
        wanted=wanted,
        file=text.argument,
        label=label,
        document=found.document,
        items=items,
        jobs=jobs,
        project=found.project,
        defined=frozenset(found.jobs),
        note=_note(text, found.is_scheduled),
    )


def _require_items(label: str, cart: CartFile) -> None:
    """Raise a failure with the line of the job file whose file of items is missing."""
    from rota.runtime.offline import Problem

    path = cart.items_path
    if path is not None and not path.exists():
        message = f"there is no file {path}"
        problem = Problem(message, "items_from", line=cart.line, hint=nearest_file(path))
        raise FileRefused(label, "the items cannot be read", [problem])


def _encoded(cart: CartFile) -> tuple[list[Item], set[str]]:
    """Encode the items; return them and the names of their jobs."""
    items: list[Item] = []
    jobs: set[str] = set()
    for item in cart.items():
        items.append(
            encoded_item(item.key, item.inputs, order=item.order, job=item.job, needs=item.needs)
        )
        jobs.add(item.job or cart.template.job)
    return items, jobs


def _note(text: NamedText, is_scheduled: bool) -> str:
    if not is_scheduled:
        return ""
    return f"its schedule is left aside: rota apply {text.argument} lets it start by itself"


@contextmanager
def _blame_at_flag(wanted: Wanted) -> Iterator[None]:
    """Turn errors about the start time, unreadable or past, into usage errors of --at."""
    try:
        yield
    except errors.Invalid as error:
        for problem in error.errors:
            if problem.path == "starts_at":
                message = f"--at {wanted.at}: {problem.message}"
                raise CommandFailed(message, code=Exit.USAGE, hint=problem.hint or "") from error
        raise


@contextmanager
def _problems_as_failure(label: str) -> Iterator[None]:
    """Turn `Invalid` into a failure that shows the problems with their lines."""
    from rota.cli.failures import errors_as_failures
    from rota.runtime.offline import Invalid

    with errors_as_failures():
        try:
            yield
        except Invalid as error:
            if not error.problems:
                raise
            raise FileRefused(label, error.message, error.problems) from error


CartOrFile = Annotated[
    str,
    Parameter(
        name="NAME|FILE",
        help="A cart that was applied, or a job file that has one; - is standard input.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Choices:
    """Options that choose the cart, its inputs, and its start."""

    set: Annotated[
        tuple[str, ...],
        Parameter(
            metavar="NAME=VALUE",
            help="An input for every item, over its own; repeatable. Of an applied cart, a file "
            "is NAME=@FILE.",
        ),
    ] = ()
    cart: Annotated[
        str | None, Parameter(metavar="NAME", help="Which of several carts in the file.")
    ] = None
    at: Annotated[
        Instant | None,
        Parameter(
            help="Start not now but at this time (30m, tomorrow 02:00), in the zone of --tz."
        ),
    ] = None

    def wanted(self, cart: str, key: str | None = None) -> Wanted:
        inputs = dict(_pair(text) for text in self.set)
        starts_at = take_time(self.at, ahead=True).at
        return Wanted(cart, self.cart, inputs, self.at, starts_at, key)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Submission(Choices):
    """Options of a submission: also whether to wait for it."""

    key: Annotated[
        str | None,
        Parameter(metavar="KEY", help="Idempotency key: the same key again gives the same cart."),
    ] = None
    watch: Annotated[
        bool, Parameter(name=["--watch", "-w"], help="Follow the cart until it ends or pauses.")
    ] = False
    timeout: Annotated[
        Duration | None, Parameter(help="With --watch: stop watching after this time (30s, 5m).")
    ] = None


AS_WRITTEN = Choices()
NOW = Submission()


def show_plan(cart: str, choices: Choices, remote: Remote) -> Exit:
    """Print what submitting would do."""
    source = find_source(choices.wanted(cart), remote.project)
    with replace(remote, project=source.project).connect() as client:
        planned = source.plan(client)
    print_one(remote, planned, name=lambda plan: plan.name, page=write_planned)
    return Exit.DONE


def submit_cart(cart: str, choices: Submission, options: Destroying) -> Exit:
    """Plan, ask, submit and, where asked, watch."""
    source = find_source(choices.wanted(cart, choices.key), options.project)
    terminal = options.terminal()
    with replace(options, project=source.project).connect() as client:
        if source.note:
            terminal.tell(source.note)
        if options.dry_run:
            _tell_plan(terminal, source.plan(client).value)
            raise Rehearsed(changes=True)
        was_asked = _has_consent(terminal, client, source, options)
        submitted = source.submit(client)
        if choices.watch or (was_asked and _is_watched(choices, options)):
            terminal.tell(f"cart {submitted.value.id}")
            return watch_cart(client, submitted.value.id, options, timeout=choices.timeout)
        page = partial(_write_submitted, server=client.server.url)
    print_one(options, submitted, name=lambda cart: cart.id, page=page)
    return Exit.DONE


def _is_watched(choices: Submission, options: Destroying) -> bool:
    """Return whether to show the progress to a person who has just agreed."""
    return choices.at is None and options.format in (Format.TABLE, Format.WIDE)


def _has_consent(
    terminal: Terminal, client: Client, source: CartSource, options: Destroying
) -> bool:
    """Return whether a person was asked; raise a failure if one is needed and there is none."""
    plan = source.plan(client).value
    _tell_plan(terminal, plan)
    if options.yes or (not terminal.has_person and plan.items <= MANY):
        return False
    at = source.wanted.starts_at
    question = "start now?" if at is None else f"start at {times.absolute(at)}?"
    if not terminal.has_person:
        question = f"start {counted(plan.items, 'item')} of cart {inert(plan.name)}?"
    terminal.confirm(question, yes=False, otherwise="look with rota cart plan, then add --yes")
    return True


def _tell_plan(terminal: Terminal, plan: CartPlan) -> None:
    for line in plan_lines(plan):
        terminal.tell(line)


def _write_submitted(terminal: Terminal, cart: Cart, server: str) -> None:
    items = counted(cart.items, "item")
    terminal.write(f"cart {cart.id} {cart.state.lower()} · {inert(cart.name)} · {items}")
    if cart.starts_at is not None:
        terminal.tell(f"starts {times.moment(cart.starts_at, times.now())}")
    terminal.tell(f"rota cart watch {cart.id} · {page_address(server, cart.url)}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandFailed(
            f'--set "{text}" is not NAME=VALUE', code=Exit.USAGE, hint="--set version=16.3"
        )
    return name, value
