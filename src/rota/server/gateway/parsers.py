"""Parsers of what is submitted: job files, calendars, and carts with their items.

Each is given a body and returns what it says, or raises `Invalid`. Large bodies are given to them
in child processes (`parsing.py`), so this module imports no web framework: children load it, too.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn, TypeAlias

from rota.domain.calendars import Calendar
from rota.domain.carts.definition import MAX_ITEMS, CartItem, CartTemplate
from rota.domain.carts.intake import MAX_PROBLEMS
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import JobFile, read_cart, read_file
from rota.domain.jobfile.calendars import read_calendar
from rota.domain.jobfile.cart_fields import ITEM
from rota.domain.jobfile.carts import build_item
from rota.domain.jobfile.sections import NAME
from rota.domain.jobfile.text import At, Report
from rota.domain.run import why_not_portable
from rota.domain.schedule.expressions import read_absolute

# What a job file has and a request has not, with what to do instead.
NOT_HERE = {
    "items_from": "send the items themselves",
    "schedule": "send starts_at, or apply the cart as part of a job file",
    "timezone": "send starts_at with an offset",
}
_TO_COME = "items.jsonl"  # a header is read as that of a cart whose items are elsewhere
_MAX_TIME = 100


@dataclass(frozen=True, slots=True)
class FileCheck:
    """Answer about a job file that is only checked."""

    projects: frozenset[str]  # that it says something about
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """Cart without its items, and the other fields of the request."""

    template: CartTemplate
    count: int  # how many items there will be
    starts_at: datetime | None  # None: at once


@dataclass(frozen=True, slots=True)
class WholeCart:
    """Cart that came as one document, with its items."""

    template: CartTemplate
    starts_at: datetime | None  # None: at once


@dataclass(frozen=True, slots=True)
class SentTemplate:
    """Name of an applied cart that is to be submitted."""

    name: str
    inputs: Mapping[str, Any]  # of every item
    starts_at: datetime | None  # None: at once


SentCart: TypeAlias = WholeCart | SentTemplate


@dataclass(frozen=True, slots=True)
class ReadItems:
    """Some of a cart's items, and what is wrong with the others."""

    items: tuple[CartItem, ...]
    seen: int  # good and bad
    bad: int
    problems: tuple[Problem, ...]  # of the bad ones, at most `MAX_PROBLEMS`


def parse_json(body: bytes) -> Any:
    """Parse JSON as RFC 8259 has it; raise ValueError if it is not.

    Python by itself accepts repeated keys, `NaN`, and escapes that no text can hold.
    """
    text = body.decode()
    value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    # Half a character (a lone surrogate) can only come by an escape: no UTF-8 has one.
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise json.JSONDecodeError("a key is there twice", "", 0)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise json.JSONDecodeError(f"{name} is not a number", "", 0)


def why_unreadable(error: Exception) -> str:
    """Return why a text cannot be parsed as JSON."""
    match error:
        case json.JSONDecodeError():
            return error.msg
        case UnicodeError():
            return "it is not UTF-8"
        case RecursionError():
            return "it is nested too deeply"
        case _:
            return str(error)


def parse_job_file(body: bytes, *, name: str | None, project: str) -> JobFile:
    """Parse the body of a request that is a job file."""
    return read_file(_text(body), name=name, project=project)


def check_job_file(body: bytes, *, name: str | None, project: str) -> FileCheck:
    """Parse a job file, and return little of it: the rest need not leave the child."""
    file = parse_job_file(body, name=name, project=project)
    return FileCheck(file.projects, file.warnings)


def parse_job_file_with_items(body: bytes, *, name: str | None, project: str) -> JobFile:
    """Parse lines of JSON: the text of a job file, then items with the name of their cart."""
    first, *others = body.split(b"\n")
    text = _parsed_line(1, first)
    if not isinstance(text, str):
        raise _bad_line(1, "the first line is the text of the job file, as a JSON string")
    items: dict[str, list[Any]] = defaultdict(list)
    for number, line in enumerate(others, 2):
        if line.strip():
            item = _parsed_line(number, line)
            cart = item.pop("cart", None) if isinstance(item, dict) else None
            if not isinstance(cart, str):
                raise _bad_line(number, 'an item is an object with the name of its "cart"')
            items[cart].append(item)
    return read_file(text, name=name, project=project, items=items)


def parse_calendar(body: bytes, *, name: str) -> Calendar:
    """Parse the body of a request that is a calendar."""
    return read_calendar(_text(body), name=name)


def _parsed_line(number: int, line: bytes) -> Any:
    try:
        return parse_json(line)
    except (ValueError, RecursionError) as error:
        raise _bad_line(number, f"not valid JSON: {why_unreadable(error)}") from error


def _bad_line(number: int, message: str) -> Invalid:
    where = f"line {number} of the body"
    return Invalid(f"{where} cannot be read", [Problem(message, where)], code="malformed")


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Invalid(
            f"the body is not UTF-8: {error.reason} at byte {error.start}", code="malformed"
        ) from error


def parse_cart(body: bytes) -> SentCart:
    """Parse a cart that is sent as one document, or the name of one that was applied."""
    document = _cart_document(body)
    return _sent_template(document) if "template" in document else _read_whole(document)


def parse_header(body: bytes, *, line: int) -> Header:
    """Parse the first line of a cart whose items follow it."""
    return read_header(_cart_document(body, line=line))


def _cart_document(text: bytes, line: int | None = None) -> Mapping[str, Any]:
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        problem = Problem(f"not valid JSON: {why_unreadable(error)}", line=line)
        raise Invalid("the cart cannot be read", [problem], code="malformed") from error
    if not isinstance(document, dict):
        problem = Problem("a cart is a JSON object", line=line)
        raise Invalid("the cart cannot be read", [problem])
    return document


def _sent_template(document: Mapping[str, Any]) -> SentTemplate:
    fields = dict(document)
    problems: list[Problem] = []
    starts_at = _starts_at(fields, problems)
    name, inputs = fields.pop("template"), fields.pop("with", None) or {}
    if not isinstance(name, str) or not re.fullmatch(NAME.pattern, name):
        problems.append(Problem("template must be the name of a cart", "template"))
    if not isinstance(inputs, dict):
        problems.append(Problem("with must be an object of inputs", "with"))
    elif complaint := why_not_portable(inputs):
        problems.append(Problem(f"with cannot be kept: {complaint}", "with"))
    problems += [Problem(f'"{key}" is not for templates', key) for key in fields]
    if problems:
        raise _refusal(problems)
    return SentTemplate(name, inputs, starts_at)


def read_header(document: Mapping[str, Any]) -> Header:
    """Read the header of a cart whose `count` items follow it."""
    fields = dict(document)
    problems = list(_strays(fields))
    if fields.pop("items", None) is not None:
        problems.append(Problem("items come after the header, one a line", "items"))
    count = fields.pop("count", None)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_ITEMS:
        message = f"count must be the number of items that follow, from 1 to {MAX_ITEMS:,}"
        problems.append(Problem(message, "count"))
    starts_at = _starts_at(fields, problems)
    template = _template(fields | {"items_from": _TO_COME}, problems)
    return Header(replace(template, items=()), int(count or 0), starts_at)


def _read_whole(document: Mapping[str, Any]) -> WholeCart:
    fields = dict(document)
    problems = list(_strays(fields))
    if fields.get("items") is None:
        problems.append(Problem("the cart has no items", "items", hint="give it at least one"))
        fields |= {"items_from": _TO_COME}
    starts_at = _starts_at(fields, problems)
    return WholeCart(_template(fields, problems), starts_at)


def _strays(fields: dict[str, Any]) -> Iterator[Problem]:
    """Remove fields that only a job file has, and yield a problem for each."""
    for name, hint in NOT_HERE.items():
        if fields.pop(name, None) is not None:
            yield Problem(f'"{name}" is for job files', name, hint=hint)


def _starts_at(fields: dict[str, Any], problems: list[Problem]) -> datetime | None:
    written = fields.pop("starts_at", None)
    if written is None:
        return None
    if not isinstance(written, str) or len(written) > _MAX_TIME:
        problems.append(Problem("starts_at must be a time with its offset", "starts_at"))
        return None
    try:
        return read_absolute(written)
    except ValueError as error:
        problems.append(Problem(str(error), "starts_at"))
        return None


def _template(fields: Mapping[str, Any], problems: list[Problem]) -> CartTemplate:
    """Read the template of a cart; raise `Invalid` with these problems and all others."""
    try:
        template = read_cart(fields)
    except Invalid as error:
        raise _refusal([*problems, *error.problems]) from error
    if problems:
        raise _refusal(problems)
    return template


def _refusal(problems: list[Problem]) -> Invalid:
    count = "1 error" if len(problems) == 1 else f"{len(problems):,} errors"
    return Invalid(f"the cart has {count}", problems[:MAX_PROBLEMS])


def parse_items(body: bytes, *, line: int, seen: int, count: int) -> ReadItems:
    """Parse some of a cart's items, one a line.

    `line` is the number of the first; `seen` items came before, of the `count` announced ones.
    """
    check = _ItemCheck(count, seen)
    for number, text in enumerate(body.split(b"\n"), line):
        if text.strip():
            check.take_line(number, text)
    return check.found()


def parse_item_messages(body: bytes, *, seen: int, count: int) -> ReadItems:
    """Parse some of a cart's items as a gRPC message has them."""
    from rota.contracts import carts_pb2  # children of a server without gRPC do not have it

    check = _ItemCheck(count, seen)
    for item in carts_pb2.CartItems.FromString(body).items:
        check.take(_entry(item))
    return check.found()


def _entry(item: Any) -> dict[str, Any]:
    """Return an item's message in the job file's vocabulary, without what is empty."""
    inputs = parse_inputs(item.inputs_json)
    entry = {"key": item.key, "with": inputs, "job": item.job, "needs": dict(item.needs)}
    if item.HasField("order"):
        entry["order"] = item.order
    return {name: value for name, value in entry.items() if value not in (None, "", {})}


def parse_inputs(text: str, name: str = "inputs_json") -> dict[str, Any]:
    """Parse inputs, or what else has their form, from JSON; an empty text means none."""
    try:
        inputs = parse_json(text.encode()) if text else {}
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{name}: {error}", code="malformed") from error
    if not isinstance(inputs, dict):
        raise Invalid(f"{name}: an object is needed", code="malformed")
    return inputs


@dataclass(slots=True)
class _ItemCheck:
    """Checks entries to be items, and collects what is wrong."""

    count: int  # how many were announced
    before: int  # how many of them came before these
    items: list[CartItem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    seen: int = 0
    bad: int = 0

    def take_line(self, line: int, text: bytes) -> None:
        try:
            entry = parse_json(text)
        except (ValueError, RecursionError) as error:
            self._number()
            self._refuse([Problem(f"not valid JSON: {why_unreadable(error)}", line=line)])
        else:
            self.take(entry, line)

    def take(self, entry: object, line: int | None = None) -> None:
        number = self._number()
        report = Report()
        checked = ITEM.check(entry, At(report, ("items", number)))
        try:
            report.raise_errors("the item")
        except Invalid as error:
            key = checked.get("key") if isinstance(checked, dict) else None
            place = f"items[{number}] ({key})" if key else f"items[{number}]"
            self._refuse(
                Problem(fault.message, place, line, hint=fault.hint) for fault in error.problems
            )
        else:
            assert isinstance(checked, dict), "whatever is no mapping is an error"
            self.items.append(build_item(checked))

    def found(self) -> ReadItems:
        return ReadItems(tuple(self.items), self.seen, self.bad, tuple(self.problems))

    def _number(self) -> int:
        """Return the number of the next entry; raise `Invalid` at once if it is one too many."""
        number = self.before + self.seen
        self.seen += 1
        if number >= self.count:
            raise Invalid(f"{self.count:,} items were announced, and more came")
        return number

    def _refuse(self, problems: Iterable[Problem]) -> None:
        self.bad += 1
        self.problems += list(problems)[: MAX_PROBLEMS - len(self.problems)]
