"""Messages between the server and its parsing children, in MessagePack; the children's program.

An order names a function and its options; the body comes behind it. The answer is a sequence of
parts, each of which takes a millisecond or two to read: between two of them the server's event loop
serves others. Whatever a child says is checked against the types below, and can make nothing else
of this process: what it has read is hostile, and it may have lost against it.

A child imports this module, so it imports neither a web framework nor an event loop.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from typing import Any, BinaryIO, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from rota.domain.calendars import Calendar
from rota.domain.carts.definition import (
    CartItem,
    CartRules,
    CartTemplate,
    ItemsFile,
    ItemSource,
    LiveWorkers,
    Matrix,
)
from rota.domain.errors import (
    Conflict,
    Denied,
    Invalid,
    NotFound,
    Problem,
    RotaError,
    Unavailable,
)
from rota.domain.jobfile import JobFile
from rota.domain.jobfile.carts import CartEntry, Reference
from rota.domain.jobfile.read import CalendarsAt, JobEntry
from rota.domain.jobfile.uses import Use, UsedJob, UsedLimit, UsedResource, Written
from rota.domain.keys import Limit, Resource
from rota.domain.spec import JobSpec, Schedule
from rota.server.gateway.parsers import FileCheck, Header, ReadItems, SentTemplate, WholeCart

_PART = 64 * 1024  # bytes; a single entry may be longer
LENGTH = struct.Struct(">I")  # of an order, a body or a part, before it
_ERRORS = {kind.__name__: kind for kind in (Conflict, Denied, NotFound, Unavailable)}

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder(enc_hook=str).encode


class Order(Struct, frozen=True, array_like=True):
    """Request to a child: how to parse the body that follows."""

    function: str  # module:name
    options: dict[str, Any]
    seconds: float  # of a processor, at the most
    longest: int  # bytes of an answer, at the most

    @classmethod
    def of(
        cls,
        function: Callable[..., object],
        options: dict[str, Any],
        seconds: float,
        longest: int,
    ) -> Order:
        return cls(f"{function.__module__}:{function.__qualname__}", options, seconds, longest)

    def run(self, body: bytes) -> object:
        """Return what the function makes of the body, or raise its error."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)(body, **self.options)


def packed_order(order: Order) -> bytes:
    return _encode(order)


read_order = msgspec.msgpack.Decoder(Order).decode


# The parts of an answer. Lists of entries are written one entry at a time, to know how long they
# get, and read in one go. What differs only by its class has a wrapper that names it.


class _Part(Struct, frozen=True, array_like=True, tag=True):
    pass


class _End(_Part, frozen=True):
    """Nothing follows."""


class _Plain(_Part, frozen=True):
    value: Any


class _Refusal(_Part, frozen=True):
    kind: str
    message: str
    code: str
    hint: str
    facts: dict[str, Any]
    problems: tuple[Problem, ...]


class _Checked(_Part, frozen=True):
    it: FileCheck


class _Calendar(_Part, frozen=True):
    it: Calendar


class _SentTemplate(_Part, frozen=True):
    it: SentTemplate


class _ReadItems(_Part, frozen=True):
    seen: int
    bad: int
    problems: tuple[Problem, ...]


class _File(_Part, frozen=True):
    set_name: str
    project: str
    warnings: tuple[Problem, ...]
    calendars: tuple[Calendar, ...]
    limits: tuple[Limit, ...]
    resources: tuple[Resource, ...]
    names_set: bool


class _UsedResource(Struct, frozen=True, array_like=True, tag=1):
    it: UsedResource


class _UsedLimit(Struct, frozen=True, array_like=True, tag=2):
    it: UsedLimit


class _UsedJob(Struct, frozen=True, array_like=True, tag=3):
    it: UsedJob


_USES: dict[type[Use], Callable[[Any], Struct]] = {
    UsedResource: _UsedResource,
    UsedLimit: _UsedLimit,
    UsedJob: _UsedJob,
}


class _Job(Struct, frozen=True, array_like=True):
    name: str
    document: dict[str, Any]
    spec: JobSpec
    line: int
    calendars_at: CalendarsAt
    uses: tuple[_UsedResource | _UsedLimit | _UsedJob, ...]
    share: Written | None
    pool: Written | None
    needs: Written | None
    at: Written | None
    emptied: frozenset[str]
    places: dict[tuple[str, ...], Written]


class _Jobs(_Part, frozen=True):
    them: tuple[_Job, ...]


class _Template(Struct, frozen=True, array_like=True):
    """Template of a cart. Items that it has itself follow as parts."""

    name: str
    rules: CartRules
    file: ItemsFile | None
    workers: LiveWorkers | None
    order_is_written: bool
    job: str
    title: str
    description: str
    labels: dict[str, str]
    schedule: Schedule | None
    rollback: str
    priority: int | None
    matrix: Matrix | None


class _Items(_Part, frozen=True):
    """Items of the cart before it, or of those that were asked for."""

    them: tuple[CartItem, ...]


class _Cart(_Part, frozen=True):
    """A cart of the file."""

    template: _Template
    line: int
    references: tuple[Reference, ...]


class _WholeCart(_Part, frozen=True):
    template: _Template
    starts_at: datetime | None


class _Header(_Part, frozen=True):
    template: _Template
    count: int
    starts_at: datetime | None


Part: TypeAlias = (
    _End
    | _Plain
    | _Refusal
    | _Checked
    | _Calendar
    | _SentTemplate
    | _ReadItems
    | _File
    | _Jobs
    | _Items
    | _Cart
    | _WholeCart
    | _Header
)
_read = msgspec.msgpack.Decoder(Part)


def packed_parts(found: object) -> Iterator[bytes]:
    """Yield the parts of an answer, encoded; the last one says so."""
    for part in _parts(found):
        yield part if isinstance(part, bytes) else _encode(part)
    yield _encode(_End())


def read_part(data: bytes) -> Part:
    """Return a part of an answer; raise `msgspec.DecodeError` if it is none."""
    part: Part = _read.decode(data)
    return part


def is_end(part: Part) -> bool:
    return isinstance(part, _End)


def _parts(found: object) -> Iterator[Part | bytes]:
    match found:
        case RotaError():
            yield _refusal(found)
        case JobFile():
            yield from _of_file(found)
        case FileCheck():
            yield _Checked(found)
        case Calendar():
            yield _Calendar(found)
        case SentTemplate():
            yield _SentTemplate(found)
        case WholeCart():
            yield _WholeCart(_template(found.template), found.starts_at)
            yield from _own_items(found.template)
        case Header():
            yield _Header(_template(found.template), found.count, found.starts_at)
        case ReadItems():
            yield _ReadItems(found.seen, found.bad, found.problems)
            yield from _in_parts(_Items, found.items)
        case _:
            yield _Plain(found)


def _refusal(error: RotaError) -> _Refusal:
    kind = next(name.__name__ for name in type(error).__mro__ if name.__name__ in _KNOWN_ERRORS)
    problems = error.problems if isinstance(error, Invalid) else ()
    return _Refusal(kind, error.message, error.code, error.hint, dict(error.facts), problems)


_KNOWN_ERRORS = {*_ERRORS, Invalid.__name__, RotaError.__name__}


def _of_file(file: JobFile) -> Iterator[Part | bytes]:
    limits = tuple(each for each in file.declarations if isinstance(each, Limit))
    resources = tuple(each for each in file.declarations if isinstance(each, Resource))
    yield _File(
        file.set_name,
        file.project,
        file.warnings,
        file.calendars,
        limits,
        resources,
        file.names_set,
    )
    yield from _in_parts(_Jobs, map(_job, file.jobs))
    for cart in file.carts:
        yield _Cart(_template(cart.template), cart.line, cart.references)
        yield from _own_items(cart.template)


def _job(entry: JobEntry) -> _Job:
    return _Job(
        entry.name,
        dict(entry.document),
        entry.spec,
        entry.line,
        entry.calendars_at,
        tuple(_USES[type(use)](use) for use in entry.uses),  # type: ignore[misc]
        entry.share,
        entry.pool,
        entry.needs,
        entry.at,
        entry.emptied,
        dict(entry.places),
    )


def _template(template: CartTemplate) -> _Template:
    items = template.items
    return _Template(
        template.name,
        template.rules,
        items if isinstance(items, ItemsFile) else None,
        items if isinstance(items, LiveWorkers) else None,
        template.order_is_written,
        template.job,
        template.title,
        template.description,
        dict(template.labels),
        template.schedule,
        template.rollback,
        template.priority,
        template.matrix,
    )


def _own_items(template: CartTemplate) -> Iterator[bytes]:
    if isinstance(template.items, tuple):
        yield from _in_parts(_Items, template.items)


def _in_parts(kind: type[Part], entries: Iterable[object]) -> Iterator[bytes]:
    """Yield parts with these entries, none of them much longer than `_PART`."""
    them: list[Raw] = []
    size = 0
    for entry in entries:
        them.append(Raw(_encode(entry)))
        size += len(them[-1])
        if size >= _PART:
            yield _encode((kind.__name__, them))
            them, size = [], 0
    if them:
        yield _encode((kind.__name__, them))


def rebuilt(parts: Iterable[Part]) -> object:
    """Return what the parts of an answer say: a refusal is an error that is to be raised."""
    first, *others = parts
    match first:
        case _Plain(value):
            return value
        case _Refusal():
            return _error(first)
        case _Checked(it) | _Calendar(it) | _SentTemplate(it):
            return it
        case _Header():
            return Header(_cart_template(first.template, others), first.count, first.starts_at)
        case _WholeCart():
            return WholeCart(_cart_template(first.template, others), first.starts_at)
        case _ReadItems():
            return ReadItems(_items_in(others), first.seen, first.bad, first.problems)
        case _File():
            return _file(first, others)
        case _:
            raise ValueError(f"an answer does not begin with {type(first).__name__}")


def _error(refusal: _Refusal) -> RotaError:
    code, hint, facts = refusal.code, refusal.hint, refusal.facts
    if kind := _ERRORS.get(refusal.kind):
        return kind(refusal.message, code=code, hint=hint, facts=facts)
    return Invalid(refusal.message, refusal.problems, code=code, hint=hint, facts=facts)


def _file(head: _File, others: Iterable[Part]) -> JobFile:
    jobs: list[JobEntry] = []
    carts: list[tuple[_Cart, list[Part]]] = []
    for part in others:
        match part:
            case _Jobs(them):
                jobs += map(_entry, them)
            case _Cart():
                carts.append((part, []))
            case _:
                carts[-1][1].append(part)
    return JobFile(
        set_name=head.set_name,
        project=head.project,
        jobs=tuple(jobs),
        warnings=head.warnings,
        calendars=head.calendars,
        carts=tuple(
            CartEntry(_cart_template(cart.template, items), cart.line, cart.references)
            for cart, items in carts
        ),
        declarations=(*head.limits, *head.resources),
        names_set=head.names_set,
    )


def _entry(job: _Job) -> JobEntry:
    entry = JobEntry(*astuple(job))
    return replace(entry, uses=tuple(use.it for use in job.uses)) if job.uses else entry


def _cart_template(told: _Template, others: Iterable[Part]) -> CartTemplate:
    items: ItemSource = told.file or told.workers or _items_in(others)
    return CartTemplate(
        name=told.name,
        rules=told.rules,
        items=items,
        order_is_written=told.order_is_written,
        job=told.job,
        title=told.title,
        description=told.description,
        labels=told.labels,
        schedule=told.schedule,
        rollback=told.rollback,
        priority=told.priority,
        matrix=told.matrix,
    )


def _items_in(parts: Iterable[Part]) -> tuple[CartItem, ...]:
    return tuple(item for part in parts if isinstance(part, _Items) for item in part.them)


def serve() -> None:
    """Parse what arrives at standard input until its end: the program of a child."""
    _limit(int(sys.argv[1]))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while packed := _receive(source):
        order, body = read_order(packed), _receive(source)
        # Not caught: a parser in C is stopped by it in the middle, and the process ends.
        signal.setitimer(signal.ITIMER_PROF, order.seconds)
        answer = _answer(order, body)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for part in answer:
            target.write(LENGTH.pack(len(part)))
            target.write(part)
        target.flush()
        del packed, order, body, answer


def _limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)  # what others wait for goes first


def _receive(source: BinaryIO) -> bytes:
    head = source.read(LENGTH.size)
    return source.read(*LENGTH.unpack(head)) if head else b""


def _answer(order: Order, body: bytes) -> list[bytes]:
    """Return the whole answer: nothing is sent before it is known that there is enough memory."""
    try:
        return _bounded(packed_parts(order.run(body)), order.longest)
    except RotaError as error:
        return list(packed_parts(error))
    except MemoryError:
        return list(packed_parts(too_large("more memory than it may have")))


def _bounded(parts: Iterator[bytes], longest: int) -> list[bytes]:
    kept, size = [], 0
    for part in parts:
        kept.append(part)
        size += len(part)
        if size > longest:
            raise too_large(f"{longest:,} bytes and more with all defaults written out")
    return kept


def too_large(cost: str) -> Invalid:
    message = f"to read the file takes {cost}"
    return Invalid(message, code="too_large", hint="split it into several files")
