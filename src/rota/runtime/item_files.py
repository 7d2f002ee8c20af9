"""Files of items on this machine's disk, as the carts of a job file name them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rota.domain.carts.item_files import MAX_LINE, Demands, read_items
from rota.domain.carts.template import CartItem, ItemsFile
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import JobFile


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
    specs = {job.name: job.spec for job in file.jobs if job.spec.project == file.project}
    for entry in file.carts:
        source = entry.template.items
        if isinstance(source, ItemsFile):
            items = read_item_file(source, folder, Demands.of(entry.template, specs))
            yield _checked(str(folder / source.path), entry.template.name, items)


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


def _checked(label: str, cart: str, items: Iterator[CartItem]) -> CheckedItems:
    try:
        return CheckedItems(label, cart, sum(1 for _ in items))
    except Invalid as error:
        return CheckedItems(label, cart, 0, error.message, error.problems)


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file, never much more of one than is allowed."""
    with path.open(encoding="utf-8", newline="") as file:
        while line := file.readline(MAX_LINE + 1):
            yield line
