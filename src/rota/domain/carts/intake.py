"""Intake of a cart's items: each is checked against its job and given its wave."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, repeat
from typing import Any, assert_never

from rota.domain.carts.definition import MAX_ITEMS, CartItem, CartRules, CartTemplate, Order, Share
from rota.domain.errors import Invalid, Problem
from rota.domain.ids import JobId
from rota.domain.job import Job
from rota.domain.jobfile import parse_inputs, read_job
from rota.domain.spec import JobSpec, JobType

_MOST_PARTS = 8  # of a text for people


def wave_of_each(order: Order, total: int, group_sizes: Sequence[Share] = ()) -> Iterator[int]:
    """Yield the order number of each item in turn, from 1. EXPLICIT ones stand at the items."""
    sizes = wave_sizes(order, total, group_sizes)
    return chain.from_iterable(repeat(number, size) for number, size in enumerate(sizes, 1))


def wave_sizes(order: Order, total: int, group_sizes: Sequence[Share] = ()) -> Iterator[int]:
    """Yield how many items each wave has. `group_sizes` of GROUPS are never empty."""
    match order:
        case Order.SERIAL:
            return repeat(1, total)
        case Order.PARALLEL:
            return repeat(total, min(total, 1))
        case Order.GROUPS:
            return _ramp(total, group_sizes)
        case Order.EXPLICIT:
            raise ValueError("explicit order numbers are written at the items")
        case _:
            assert_never(order)


def _ramp(total: int, group_sizes: Sequence[Share]) -> Iterator[int]:
    sizes = [max(1, size.rounded_up(total)) for size in group_sizes]
    left = total
    for size in chain(sizes, repeat(sizes[-1])):
        if not left:
            return
        yield min(size, left)
        left -= min(size, left)


def waves_in_words(sizes: Iterable[int]) -> str:
    """Format the sizes of waves: `1, 5, 20, 100 × 9, 74`; of many, the first ones and the last."""
    runs = [(size, sum(1 for _ in equal)) for size, equal in groupby(sizes)]
    parts = [f"{size} × {count}" if count > 1 else str(size) for size, count in runs]
    if len(parts) <= _MOST_PARTS:
        return ", ".join(parts)
    waves = sum(count for _, count in runs)
    return f"{', '.join(parts[: _MOST_PARTS - 2])}, …, {parts[-1]} ({waves} waves)"


MAX_PROBLEMS = 100  # that are reported one by one


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item as it is stored: its inputs fit its job, and its wave is known."""

    key: str
    wave: int
    job_id: JobId
    job_version: int
    inputs: Mapping[str, Any] | None
    needs: Mapping[str, str] | None = None  # over those of its job; None: it has none of its own


@dataclass(frozen=True, slots=True)
class ItemJob:
    """A job that items may name."""

    job: Job
    spec: JobSpec

    @classmethod
    def of(cls, job: Job) -> ItemJob:
        return cls(job, read_job(job.document))


@dataclass(slots=True)
class _Complaints:
    """Collector of problems of items: each problem once, at the first item that has it."""

    left_out: int = 0  # for which there was no room
    _first: dict[str, Problem] = field(default_factory=dict)  # by message
    _count: Counter[str] = field(default_factory=Counter)

    def add(self, problem: Problem) -> None:
        if problem.message not in self._first and len(self._first) == MAX_PROBLEMS:
            self.left_out += 1
            return
        self._first.setdefault(problem.message, problem)
        self._count[problem.message] += 1

    def problems(self) -> list[Problem]:
        """List the problems, each with how many more items it concerns."""
        return [
            replace(problem, message=f"{message}{_and_more(self._count[message] - 1)}")
            for message, problem in self._first.items()
        ]


def _and_more(items: int) -> str:
    if not items:
        return ""
    return " (and 1 more item)" if items == 1 else f" (and {items:,} more items)"


Needs = tuple[tuple[str, str], ...]  # labels of items, in their order


@dataclass(slots=True)
class ItemDemands:
    """Different demands of a cart's items on workers, each with how many have it."""

    items: Counter[tuple[str, Needs]] = field(default_factory=Counter)  # by job, and own needs
    first: dict[tuple[str, Needs], str] = field(default_factory=dict)  # the key of an item of it

    @property
    def have_needs(self) -> bool:
        """Return whether any item has needs of its own."""
        return any(needs for _, needs in self.items)

    def add(self, demand: tuple[str, Needs], key: str) -> None:
        self.items[demand] += 1
        self.first.setdefault(demand, key)


@dataclass(slots=True)
class ItemReader:
    """Reader of items one after another; it reports all their problems at the end."""

    template: CartTemplate
    count: int  # how many were announced
    undo: JobSpec | None = None  # the job that may have to undo an item; None: there is none
    jobs: dict[str, ItemJob] = field(default_factory=dict)  # those known so far
    waves: Counter[int] = field(default_factory=Counter)  # items of each
    demands: ItemDemands = field(default_factory=ItemDemands)
    seen: int = 0
    bad: int = 0  # items with which something is wrong
    _complaints: _Complaints = field(default_factory=_Complaints)
    _keys: dict[str, int] = field(default_factory=dict)
    _assigned: Iterator[int] | None = None
    _is_numbered: bool = False
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def unknown_jobs(self, items: Sequence[CartItem]) -> set[str]:
        """Return names of jobs that these items need and nobody has looked up."""
        names = {item.job or self.template.job for item in items}
        return names - self.jobs.keys() - {""}

    def read_all(self, items: Sequence[CartItem]) -> list[NewItem]:
        """Read items; return those without a problem."""
        return [read for item in items if (read := self.read(item)) is not None]

    def read(self, item: CartItem) -> NewItem | None:
        """Return the item as it is stored; None if something is wrong with it."""
        number, self.seen = self.seen, self.seen + 1
        if self.seen == 1:
            self._is_numbered = item.order is not None
        told = (item.key, item.order, item.job, sorted(item.inputs.items()))
        needed = repr(sorted(item.needs.items())) if item.needs else ""
        self._digest.update(f"{told!r}{needed}".encode())
        try:
            return self._checked(number, item)
        except Invalid as error:
            self.bad += 1
            place = f"items[{number}] ({item.key})"
            for wrong in error.problems or [Problem(error.message, hint=error.hint)]:
                self._complaints.add(Problem(wrong.message, place, hint=wrong.hint))
            return None

    def rules(self) -> CartRules:
        """Rules of the cart; the first item tells whether items bring their own order numbers."""
        return replace(self.template.rules, order=self._order())

    def digest(self) -> str:
        """Return the digest of all items read so far."""
        return self._digest.hexdigest()

    def finish(self) -> None:
        """Raise `Invalid` with everything that is wrong."""
        if not self.seen:
            raise Invalid("the cart has no items", hint="give it at least one")
        if self.seen != self.count:
            raise Invalid(f"{self.count} items were announced, {self.seen} came")
        if self.bad:
            left_out = self._complaints.left_out
            more = f", {MAX_PROBLEMS} problems and {left_out:,} more" if left_out else ""
            message = f"{self.bad} of {self.seen} items cannot be run{more}"
            raise Invalid(message, self._complaints.problems())

    def _checked(self, number: int, item: CartItem) -> NewItem:
        if number >= MAX_ITEMS:
            raise Invalid(f"a cart has at most {MAX_ITEMS:,} items")
        if item.key in self._keys:
            raise Invalid(f'the key "{item.key}" is that of items[{self._keys[item.key]}] already')
        self._keys[item.key] = number
        name = item.job or self.template.job
        found = self.jobs.get(name)
        if found is None:
            raise _no_job(name)
        if item.needs and found.spec.type == JobType.EXTERNAL:
            message = f"job {name} is of type external: no worker does it, so items need none"
            raise Invalid(message, hint="leave out needs")
        inputs = parse_inputs(found.spec, item.inputs)
        if self.undo is not None:
            _require_undoable(self.undo, inputs)
        wave = self._wave(item)
        self.waves[wave] += 1
        self.demands.add((name, tuple(sorted(item.needs.items()))), item.key)
        needs = item.needs or None
        return NewItem(item.key, wave, found.job.id, found.job.version, inputs or None, needs)

    def _wave(self, item: CartItem) -> int:
        if (item.order is not None) != self._is_numbered:
            raise Invalid("either every item has an order number or none has")
        if item.order is not None:
            if self.template.order_is_written:
                raise Invalid(
                    f"the cart's order is {self.template.rules.order}: "
                    "items must not bring their own numbers"
                )
            return item.order
        if self._assigned is None:
            rules = self.template.rules
            self._assigned = wave_of_each(self._order(), self.count, rules.group_sizes)
        return next(self._assigned, 1)

    def _order(self) -> Order:
        order = self.template.rules.order
        if self._is_numbered:
            return Order.EXPLICIT
        return Order.SERIAL if order is Order.EXPLICIT else order


def inputs_for(job: JobSpec, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of an item's inputs that another job takes."""
    return {name: value for name, value in inputs.items() if name in job.inputs}


def _require_undoable(undo: JobSpec, inputs: Mapping[str, Any]) -> None:
    """Refuse an item that cannot be undone before it is done."""
    try:
        parse_inputs(undo, inputs_for(undo, inputs))
    except Invalid as error:
        hint = "a rollback job has the inputs of the items; give others of it a default"
        problems = [
            Problem(f"rollback job {undo.name}: {problem.message}", hint=hint)
            for problem in error.problems
        ]
        raise Invalid(error.message, problems) from error


def _no_job(name: str) -> Invalid:
    if not name:
        return Invalid("the item names no job")
    return Invalid(f"there is no job {name!r}", hint="app.apply() or rota apply defines it")
