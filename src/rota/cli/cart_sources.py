"""The cart that `submit` and `plan` mean: one that was applied, or one in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rota.cli.asking import Answered, ask
from rota.cli.exits import CommandFailed, Exit
from rota.cli.failures import FileRefused
from rota.cli.files import NamedText, nearest_file, read_text
from rota.sdk import cart_calls, errors
from rota.sdk.cart_answers import Cart, CartPlan
from rota.sdk.cart_items import encoded_item
from rota.sdk.client import Client
from rota.sdk.exchange import Call

if TYPE_CHECKING:
    from rota.runtime.cart_files import CartFile

T = TypeVar("T")

_MOST_LOOKED_UP = 20  # jobs
_FILE_SUFFIXES = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for on the command line."""

    cart: str  # a name, or the path of a file
    choice: str | None = None  # of several carts of a file
    inputs: Mapping[str, str] = field(default_factory=dict)  # for every item
    at: str | None = None
    key: str | None = None

    @property
    def is_file(self) -> bool:
        """Anything that looks like a file; the names of carts do not."""
        path = Path(self.cart)
        return self.cart == "-" or path.suffix in _FILE_SUFFIXES or len(path.parts) > 1


@dataclass(frozen=True, slots=True)
class AppliedCart:
    """A cart that the server knows."""

    wanted: Wanted
    project: str | None  # None: the usual one
    note: str = ""

    def plan(self, client: Client) -> Answered[CartPlan]:
        wanted = self.wanted
        with _at_named(wanted):
            return ask(client, cart_calls.plan_template(wanted.cart, wanted.inputs, at=wanted.at))

    def submit(self, client: Client) -> Answered[Cart]:
        wanted = self.wanted
        call = cart_calls.submit_template(wanted.cart, wanted.inputs, at=wanted.at, key=wanted.key)
        with _at_named(wanted):
            return ask(client, call)


@dataclass(frozen=True, slots=True)
class CartInFile:
    """A cart that this machine reads, once: what is planned and agreed to is what is sent."""

    wanted: Wanted
    file: str  # how messages call the job file
    label: str  # how they call the file that has the items
    document: Mapping[str, Any]  # the cart, without its items
    items: Sequence[cart_calls.Item]
    jobs: Collection[str]  # that the items need
    project: str | None
    defined: frozenset[str]  # jobs of the same file, which are not applied
    note: str  # what its reader may not expect; "": nothing

    def plan(self, client: Client) -> Answered[CartPlan]:
        call = cart_calls.plan_cart(self.document, self.items, at=self.wanted.at)
        return self._ask(client, call)

    def submit(self, client: Client) -> Answered[Cart]:
        call = cart_calls.submit_cart(
            self.document, self.items, at=self.wanted.at, key=self.wanted.key
        )
        return self._ask(client, call)

    def _ask(self, client: Client, call: Call[T]) -> Answered[T]:
        try:
            with _at_named(self.wanted):
                return ask(client, call)
        except errors.Invalid as error:
            self._refuse_unknown_job(client)
            if not error.errors:
                raise
            raise FileRefused(self.label, error.message, error.errors) from error

    def _refuse_unknown_job(self, client: Client) -> None:
        """Say that a job has to be applied first, rather than what is wrong with each item."""
        for name in sorted(self.jobs)[:_MOST_LOOKED_UP]:
            with suppress(errors.NotFound):
                client.get_job(name)
                continue
            hint = "rota job list shows those there are"
            if name in self.defined:
                hint = f"submit applies no jobs; define it first: rota apply {self.file}"
            raise CommandFailed(f"there is no job {name}", code=Exit.NOT_FOUND, hint=hint)


CartSource: TypeAlias = AppliedCart | CartInFile


def find_source(wanted: Wanted, project: str | None) -> CartSource:
    """The cart, its items checked as far as that goes without the server."""
    if wanted.is_file:
        return _from_file(wanted, project)
    if wanted.choice is not None:
        raise CommandFailed("--cart chooses among the carts of a file", code=Exit.USAGE)
    return AppliedCart(wanted, project)


def _from_file(wanted: Wanted, project: str | None) -> CartInFile:
    from rota.runtime.cart_files import CartChoice, read_cart_file  # not for those who give a name

    text = read_text(Path(wanted.cart))
    folder = Path(wanted.cart).parent
    choice = CartChoice(text.text, text.stem, folder, wanted.choice, project)
    with _refused_as(text.label):
        found = read_cart_file(choice, wanted.inputs)
    label = text.label if found.items_path is None else str(found.items_path)
    _require_items(text.label, found)
    with _refused_as(label):
        items, jobs = _encoded(found)
    return CartInFile(
        wanted=wanted,
        file=text.label,
        label=label,
        document=found.document,
        items=items,
        jobs=jobs,
        project=found.project,
        defined=frozenset(found.jobs),
        note=_note(text, found.is_scheduled),
    )


def _require_items(label: str, cart: CartFile) -> None:
    """Name the line of the job file whose file of items is not there."""
    from rota.runtime.offline import Problem

    path = cart.items_path
    if path is not None and not path.exists():
        message = f"there is no file {path}"
        problem = Problem(message, "items_from", line=cart.line, hint=nearest_file(path))
        raise FileRefused(label, "the items cannot be read", [problem])


def _encoded(cart: CartFile) -> tuple[list[cart_calls.Item], set[str]]:
    """The items as they travel, and the names of their jobs."""
    items: list[cart_calls.Item] = []
    jobs: set[str] = set()
    for item in cart.items():
        items.append(encoded_item(item.key, item.inputs, order=item.order, job=item.job))
        jobs.add(item.job or cart.template.job)
    return items, jobs


def _note(text: NamedText, is_scheduled: bool) -> str:
    if not is_scheduled:
        return ""
    return f"its schedule is left aside: rota apply {text.label} lets it start by itself"


@contextmanager
def _at_named(wanted: Wanted) -> Iterator[None]:
    """Blame the flag for a time that the server cannot read or that has passed."""
    try:
        yield
    except errors.Invalid as error:
        for problem in error.errors:
            if problem.path == "starts_at":
                message = f"--at {wanted.at}: {problem.message}"
                raise CommandFailed(message, code=Exit.USAGE, hint=problem.hint or "") from error
        raise


@contextmanager
def _refused_as(label: str) -> Iterator[None]:
    """Tell what is wrong with a file at its lines."""
    from rota.cli.local_errors import told_as_failures
    from rota.runtime.offline import Invalid

    with told_as_failures():
        try:
            yield
        except Invalid as error:
            if not error.problems:
                raise
            raise FileRefused(label, error.message, error.problems) from error
