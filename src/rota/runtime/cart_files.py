"""Carts of a job file and their files of items, read from this machine's disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rota.domain.carts.definition import CartItem, CartTemplate, ItemsFile, LiveWorkers
from rota.domain.carts.items import MAX_LINE, Demands, read_items
from rota.domain.errors import Invalid, NotFound, Problem
from rota.domain.jobfile import CartEntry, JobFile, cart_document, read_file
from rota.domain.spec import DEFAULT_PROJECT, JobSpec


@dataclass(frozen=True, slots=True)
class FoundFile:
    """File of items, to be read once."""

    label: str  # how messages call the file
    cart: str  # that names it
    items: Iterator[CartItem]  # `Invalid` has every bad line

    def documents(self) -> Iterator[dict[str, object]]:
        """Yield the items as the server expects them, each with its cart."""
        for item in self.items:
            given = {
                "order": item.order,
                "with": dict(item.inputs) or None,
                "job": item.job or None,
            }
            written = {name: value for name, value in given.items() if value is not None}
            yield {"cart": self.cart, "key": item.key, **written}


@dataclass(frozen=True, slots=True)
class CheckedItems:
    """Result of reading a file of items."""

    label: str  # how messages call the file
    cart: str  # that names it
    items: int  # how many it has; 0 when it is not valid
    verdict: str = ""  # "the file of items has 3 errors"; "" when it is valid
    problems: tuple[Problem, ...] = ()  # in the order of its lines; of very many, the first

    @property
    def is_valid(self) -> bool:
        return not self.verdict


def check_item_files(file: JobFile, folder: Path) -> Iterator[CheckedItems]:
    """Read the file of items of each cart that has one; `folder` is the job file's."""
    for found in files_of_items(file, folder):
        yield _checked(found)


def items_beside(text: str, *, name: str, folder: Path) -> Iterator[FoundFile]:
    """Find the files of items that the text of a job file names; none if that is not valid."""
    try:
        file = read_file(text, name=name)
    except Invalid:
        return
    yield from files_of_items(file, folder)


def files_of_items(file: JobFile, folder: Path) -> Iterator[FoundFile]:
    """Find the files of items that carts name; `folder` is the job file's."""
    specs = {job.name: job.spec for job in file.jobs if job.spec.project == file.project}
    for entry in file.carts:
        source = entry.template.items
        if isinstance(source, ItemsFile):
            items = read_item_file(source, folder, Demands.of(entry.template, specs))
            yield FoundFile(str(folder / source.path), entry.template.name, items)


def read_item_file(file: ItemsFile, folder: Path, demands: Demands) -> Iterator[CartItem]:
    """Yield the items of a file like `read_items`; raise `Invalid` also if it cannot be opened."""
    path = folder / file.path
    try:
        yield from read_items(_lines(path), file, demands)
    except OSError as error:
        problem = Problem(f"the file cannot be read: {error.strerror}")
        raise Invalid("the file of items cannot be read", [problem]) from error
    except UnicodeDecodeError as error:
        problem = Problem("the file is not UTF-8 text", hint="save it as UTF-8")
        raise Invalid("the file of items cannot be read", [problem]) from error


def _checked(found: FoundFile) -> CheckedItems:
    try:
        return CheckedItems(found.label, found.cart, sum(1 for _ in found.items))
    except Invalid as error:
        return CheckedItems(found.label, found.cart, 0, error.message, error.problems)


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file, never much more of one than is allowed."""
    with path.open(encoding="utf-8", newline="") as file:
        while line := file.readline(MAX_LINE + 1):
            yield line


# What says when a template is submitted, and where its items are: not fields of a submission.
_NOT_SUBMITTED = frozenset({"schedule", "timezone", "items", "items_from"})


@dataclass(frozen=True, slots=True)
class CartFile:
    """Cart whose items are in its job file, or in a file beside it."""

    template: CartTemplate
    project: str
    jobs: Mapping[str, JobSpec]  # that the job file defines; submitting does not apply them
    folder: Path  # the job file's
    inputs: Mapping[str, str]  # for every item, over its own
    line: int  # of the job file, where the cart begins

    @property
    def name(self) -> str:
        return self.template.name

    @property
    def document(self) -> dict[str, Any]:
        """Return the cart in the file's vocabulary, without its items."""
        written = cart_document(self.template)
        return {name: value for name, value in written.items() if name not in _NOT_SUBMITTED}

    @property
    def is_scheduled(self) -> bool:
        """Return whether it is also submitted by a schedule, once it has been applied."""
        return self.template.schedule is not None

    @property
    def items_path(self) -> Path | None:
        """Return the path of its items; None: they are in the job file."""
        source = self.template.items
        return self.folder / source.path if isinstance(source, ItemsFile) else None

    def items(self) -> Iterator[CartItem]:
        """Yield its items, read again each time; at the end raise `Invalid` with every bad line."""
        for item in self._written():
            yield replace(item, inputs={**item.inputs, **self.inputs}) if self.inputs else item

    def _written(self) -> Iterator[CartItem]:
        match self.template.items:
            case ItemsFile() as file:
                specs = {name: self._with_defaults(spec) for name, spec in self.jobs.items()}
                yield from read_item_file(file, self.folder, Demands.of(self.template, specs))
            case tuple() as items:
                yield from items
            case LiveWorkers():
                raise Invalid(
                    "items from live workers are found by the server",
                    hint=f"apply the file, then: rota cart submit {self.name}",
                )

    def _with_defaults(self, spec: JobSpec) -> JobSpec:
        """Return the job with the cart's inputs as defaults, which items need not give."""
        declared = {
            name: replace(each, default=self.inputs[name]) if name in self.inputs else each
            for name, each in spec.inputs.items()
        }
        return replace(spec, inputs=declared)


@dataclass(frozen=True, slots=True)
class CartChoice:
    """Cart of a file, and the inputs of all its items."""

    text: str  # of the job file
    stem: str  # of its name
    folder: Path
    cart: str | None = None  # None: the only one
    project: str | None = None  # unless the file says otherwise; None: the default one


def read_cart_file(choice: CartChoice, inputs: Mapping[str, str]) -> CartFile:
    """Read the cart; raise `Invalid` with every problem of the job file. Items are not read yet.

    Raise `NotFound` if the file has no such cart.
    """
    project = choice.project or DEFAULT_PROJECT
    file = read_file(choice.text, name=choice.stem, project=project)
    entry = _chosen(file, choice.cart)
    jobs = {job.name: job.spec for job in file.jobs if job.spec.project == file.project}
    return CartFile(entry.template, file.project, jobs, choice.folder, inputs, entry.line)


def _chosen(file: JobFile, name: str | None) -> CartEntry:
    by_name = {entry.template.name: entry for entry in file.carts}
    if not by_name:
        raise Invalid(
            "the job file has no cart", [Problem('there is no "carts"', line=1, column=1)]
        )
    names = ", ".join(by_name)
    if name is None and len(by_name) > 1:
        raise NotFound(f"the job file has several carts: {names}", hint="choose with --cart NAME")
    found = by_name.get(name) if name is not None else next(iter(by_name.values()))
    if found is None:
        raise NotFound(f"the job file has no cart {name}", hint=f"it has {names}")
    return found
