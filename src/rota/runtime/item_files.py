"""Files of items on this machine's disk, as the carts of a job file name them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rota.domain.carts.item_files import MAX_LINE, Demands, read_items
from rota.domain.carts.template import CartItem, ItemsFile
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import JobFile, read_file


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of items, to be read once."""

    label: str  # how messages call the file
    cart: str  # that names it
    items: Iterator[CartItem]  # `Invalid` has every bad line

    def documents(self) -> Iterator[dict[str, object]]:
        """The items as the server takes them, each with its cart."""
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
    """What reading a file of items found."""

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
    """The files of items that belong to the text of a job file; none if that is not valid."""
    try:
        file = read_file(text, name=name)
    except Invalid:
        return
    yield from files_of_items(file, folder)


def files_of_items(file: JobFile, folder: Path) -> Iterator[FoundFile]:
    """The files of items that carts name; `folder` is the job file's."""
    specs = {job.name: job.spec for job in file.jobs if job.spec.project == file.project}
    for entry in file.carts:
        source = entry.template.items
        if isinstance(source, ItemsFile):
            items = read_item_file(source, folder, Demands.of(entry.template, specs))
            yield FoundFile(str(folder / source.path), entry.template.name, items)


def read_item_file(file: ItemsFile, folder: Path, demands: Demands) -> Iterator[CartItem]:
    """The items of a file, as `read_items` has them; `Invalid` also if it cannot be opened."""
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
    """The lines of a file, never much more of one than is allowed."""
    with path.open(encoding="utf-8", newline="") as file:
        while line := file.readline(MAX_LINE + 1):
            yield line
