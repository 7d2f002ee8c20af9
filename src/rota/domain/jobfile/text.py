"""Parser of job file text into plain data, as YAML 1.2 core, with the position of every value.

It works on the parser's events, so that each guard acts before anything is built from hostile
text: memory and time stay proportional to a text of at most `MAX_BYTES`. An alias counts as if all
that it stands for had been written out, so that a short text cannot become a long one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import yaml

from rota.domain.errors import Invalid, Problem, did_you_mean, quoted
from rota.domain.jobfile.slips import explain_syntax

MAX_INTEGER = 2**63 - 1

NULL = re.compile(r"~|null|Null|NULL|")
BOOLEAN = re.compile(r"true|True|TRUE|false|False|FALSE")
DECIMAL = re.compile(r"[-+]?[0-9]+")
PREFIXED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")

_SPECIAL_START = frozenset("~nNtTfF.+-0123456789")
_IF_TEXT = "put it in quotes if it is meant as text"
_MAX_DIGITS = 20  # also keeps clear of Python's own limit on converting digits


class UnusableNumber(ValueError):
    """Scalar that is a number to YAML, but none that can be kept or sent as JSON."""

    hint = _IF_TEXT


def resolve(text: str) -> bool | int | float | str | None:
    """Return the value of an unquoted scalar."""
    if text and text[0] not in _SPECIAL_START:
        return text
    if NULL.fullmatch(text):
        return None
    if BOOLEAN.fullmatch(text):
        return text[0] in "tT"
    return _resolve_number(text)


def _resolve_number(text: str) -> int | float | str:
    if DECIMAL.fullmatch(text):
        return _whole(text, 10)
    if PREFIXED.fullmatch(text):
        return _whole(text, 0)
    if NOT_FINITE.fullmatch(text):
        raise UnusableNumber(f"{quoted(text)} is not a number that can be stored")
    if FLOAT.fullmatch(text):
        return _fraction(text)
    return text


def _whole(text: str, base: int) -> int:
    number = int(text, base) if len(text) <= _MAX_DIGITS else MAX_INTEGER + 1
    if abs(number) > MAX_INTEGER:
        raise UnusableNumber(f"{quoted(text)} is too large a number")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise UnusableNumber(f"{quoted(text)} is too large a number")
    return number


MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 300_000
MAX_ANCHORS = 1_000

Data: TypeAlias = "bool | int | float | str | list[Data] | dict[str, Data] | None"

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})", re.IGNORECASE
)


class Position(NamedTuple):
    line: int  # from 1
    column: int  # from 1


@dataclass(slots=True)
class Mark:
    """Position of a value in the text, with the marks of the values inside it."""

    position: Position
    key: Position  # of the name it stands under; its own position inside a list
    written: str | None = None  # an unquoted scalar as typed: `1.10`, not 1.1
    children: dict[str | int, Mark] | None = None  # None: a scalar


@dataclass(frozen=True, slots=True)
class Source:
    data: Data
    mark: Mark
    problems: tuple[Problem, ...]  # faults that did not keep the rest from being read


def parse_text(text: str) -> Source:
    """Read one YAML or JSON document; `Invalid` when it cannot be read at all."""
    _refuse_oversize(text)
    _refuse_unprintable(text)
    tree = _Tree()
    parsed = _join_surrogates(text)
    event: yaml.Event | None = None
    try:
        for event in yaml.parse(parsed, Loader=yaml.CSafeLoader):
            tree.take(event)
    except yaml.MarkedYAMLError as error:
        slip = explain_syntax(error, event, parsed)
        position = Position(slip.line, slip.column)
        raise unreadable(f"not valid YAML: {slip.message}", position, slip.hint) from error
    except yaml.YAMLError as error:
        hint = "save the file as UTF-8 text"
        raise unreadable("not valid YAML: a character cannot be read", hint=hint) from error
    return tree.source()


def unreadable(message: str, position: Position | None = None, hint: str = "") -> Invalid:
    line, column = position or (None, None)
    problem = Problem(message, line=line, column=column, hint=hint)
    return Invalid("the job file cannot be read", [problem])


def _refuse_oversize(text: str) -> None:
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        limit = MAX_BYTES // (1024 * 1024)
        raise unreadable(f"the file is larger than {limit} MiB", hint="split it into several files")


def _refuse_unprintable(text: str) -> None:
    if found := _UNPRINTABLE.search(text, 1 if text.startswith("\ufeff") else 0):
        before = text[: found.start()]
        position = Position(before.count("\n") + 1, found.start() - before.rfind("\n"))
        code = ord(found.group())
        raise unreadable(f"character U+{code:04X} is not allowed in YAML", position)


def _join_surrogates(text: str) -> str:
    """Join surrogates: JSON writes one character as two escapes where YAML knows only one."""
    if not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return text

    def join(pair: re.Match[str]) -> str:
        high, low = int(pair[2], 16), int(pair[3], 16)
        return f"{pair[1]}{chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))}"

    return _SURROGATE_PAIR.sub(join, text)


@dataclass(frozen=True, slots=True)
class _Anchored:
    """Value that aliases may stand for, and what it takes to write it out."""

    value: Data
    mark: Mark
    nodes: int
    characters: int
    depth: int  # 0: a single value


class _Open:
    """A list or mapping whose end has not been seen."""

    awaits_key = False

    def __init__(self, value: Any, mark: Mark, nodes: int, characters: int) -> None:
        self.value = value
        self.mark = mark
        self.anchor: str | None = None
        self.began = (nodes, characters)  # how many there were before it
        self.depth = 0  # of what it has in it
        self._children: dict[str | int, Mark] = mark.children if mark.children is not None else {}

    def attach(self, value: Data, mark: Mark) -> None: ...

    def close(self) -> None: ...


class _OpenList(_Open):
    """A list whose end has not been seen."""

    def attach(self, value: Data, mark: Mark) -> None:
        self._children[len(self.value)] = mark
        self.value.append(value)


class _OpenMapping(_Open):
    """A mapping whose end has not been seen."""

    def __init__(self, value: dict[str, Data], mark: Mark, nodes: int, characters: int) -> None:
        super().__init__(value, mark, nodes, characters)
        self._key = ""
        self._key_position = Position(0, 0)
        self._merged: tuple[Data, Mark] | None = None  # what stands under `<<`
        self._is_merge = False  # of the next value
        self.awaits_key = True

    def take_key(self, key: str, position: Position, *, is_merge: bool) -> Mark | None:
        """Remember the key of the next value; return where it stood before, if it is repeated."""
        self._key, self._key_position, self._is_merge = key, position, is_merge
        self.awaits_key = False
        if is_merge:
            return self._merged[1] if self._merged else None
        return self._children.get(key)

    def attach(self, value: Data, mark: Mark) -> None:
        mark.key = self._key_position
        if self._is_merge:
            self._merged = self._merged or (value, mark)
        else:
            self._children.setdefault(self._key, mark)
            self.value.setdefault(self._key, value)
        self.awaits_key = True

    def close(self) -> None:
        """Merge what stands under `<<`: keys of the mapping itself win, then the first mapping."""
        if self._merged is None:
            return
        value, mark = self._merged
        is_list = isinstance(value, list)
        for index, each in enumerate(value if isinstance(value, list) else [value]):
            where = (mark.children or {})[index] if is_list else mark
            if not isinstance(each, dict):
                hint = "write <<: *NAME, or <<: [*ONE, *OTHER]"
                raise unreadable("<< takes a mapping, or a list of such", where.position, hint)
            for key, entry in each.items():
                if key not in self.value:
                    self.value[key] = entry
                    self._children[key] = (where.children or {})[key]


@dataclass(slots=True)
class _Tree:
    """Builder of data and marks from parser events."""

    stack: list[_Open] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    anchors: dict[str, _Anchored] = field(default_factory=dict)
    nodes: int = 0
    characters: int = 0  # of all values
    documents: int = 0
    root: tuple[Data, Mark] | None = None

    def take(self, event: yaml.Event) -> None:
        if handle := _HANDLERS.get(type(event)):
            handle(self, event)

    def source(self) -> Source:
        if self.root is None:
            raise unreadable("the file is empty", hint='it needs at least "jobs:"')
        data, mark = self.root
        return Source(data, mark, tuple(self.problems))

    def start_document(self, event: yaml.DocumentStartEvent) -> None:
        self.documents += 1
        if self.documents > 1:
            hint = 'keep one document per file, without "---" between jobs'
            raise unreadable("the file has more than one YAML document", _position(event), hint)

    def take_alias(self, event: yaml.AliasEvent) -> None:
        """Take what an anchor stands at, as if it were written out here."""
        position, name = _position(event), event.anchor or ""
        if any(each.anchor == name for each in self.stack):
            raise unreadable(f"*{name} stands inside of what it names", position)
        found = self.anchors.get(name)
        if found is None:
            hint = did_you_mean(name, self.anchors) or _IF_TEXT
            raise unreadable(f"nothing before has the anchor &{name}", position, hint)
        self._count(position, found.nodes, found.characters)
        self._refuse_depth(found.depth, position)
        top = self.stack[-1] if self.stack else None
        if top is not None and top.awaits_key:
            if not isinstance(found.value, str):
                raise unreadable("a key must be text, not an alias of another value", position)
            self._take_key(top, found.value, position, plain=False)
            return
        # What is wrong inside is told where it is written; what is wrong with the whole, here.
        mark = Mark(position, position, found.mark.written, found.mark.children)
        self._attach(found.value, mark, found.depth)

    def take_scalar(self, event: yaml.ScalarEvent) -> None:
        position = self._enter(event)
        plain = event.implicit[0]
        top = self.stack[-1] if self.stack else None
        if isinstance(top, _OpenMapping) and top.awaits_key:
            self._take_key(top, event.value, position, plain)
        else:
            value = self._resolve(event.value, position) if plain else event.value
            mark = Mark(position, position, event.value if plain else None)
            self._attach(value, mark)
            if event.anchor is not None:
                self._keep(event.anchor, _Anchored(value, mark, 1, len(event.value), 0), position)

    def open_list(self, event: yaml.SequenceStartEvent) -> None:
        self._open(event, _OpenList, [])

    def open_mapping(self, event: yaml.MappingStartEvent) -> None:
        self._open(event, _OpenMapping, {})

    def close(self, _: yaml.CollectionEndEvent) -> None:
        closed = self.stack.pop()
        closed.close()
        if self.stack:
            self.stack[-1].depth = max(self.stack[-1].depth, closed.depth + 1)
        if closed.anchor is not None:
            nodes, characters = closed.began
            size = (self.nodes - nodes, self.characters - characters)
            anchored = _Anchored(closed.value, closed.mark, *size, closed.depth + 1)
            self._keep(closed.anchor, anchored, closed.mark.position)

    def _keep(self, anchor: str, anchored: _Anchored, position: Position) -> None:
        """Keep what an anchor stands at; one of that name before is for aliases before."""
        if len(self.anchors) >= MAX_ANCHORS:
            raise unreadable(f"the file has more than {MAX_ANCHORS:,} anchors", position)
        self.anchors[anchor] = anchored

    def _enter(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> Position:
        """Apply the guards that every key and value passes."""
        position = _position(event)
        self._count(position, 1, len(event.value) if isinstance(event, yaml.ScalarEvent) else 0)
        if event.tag is not None:
            raise unreadable("YAML tags (!name) are not supported", position, _IF_TEXT)
        return position

    def _count(self, position: Position, nodes: int, characters: int) -> None:
        self.nodes += nodes
        self.characters += characters
        if self.nodes > MAX_NODES:
            raise unreadable(f"the file has more than {MAX_NODES:,} keys and values", position)
        if self.characters > MAX_BYTES:
            limit = MAX_BYTES // (1024 * 1024)
            message = f"the file is larger than {limit} MiB with aliases written out"
            raise unreadable(message, position)

    def _open(self, event: yaml.CollectionStartEvent, kind: type[_Open], value: Data) -> None:
        began = (self.nodes, self.characters)
        position = self._enter(event)
        if self.stack and self.stack[-1].awaits_key:
            raise unreadable("a key must be text, not a list or a mapping", position, _IF_TEXT)
        self._refuse_depth(1, position)
        mark = Mark(position, position, children={})
        self._attach(value, mark)
        opened = kind(value, mark, *began)
        opened.anchor = event.anchor
        self.stack.append(opened)

    def _refuse_depth(self, more: int, position: Position) -> None:
        if len(self.stack) + more > MAX_DEPTH:
            raise unreadable(f"nested deeper than {MAX_DEPTH} levels", position)

    def _attach(self, value: Data, mark: Mark, depth: int = 0) -> None:
        if self.stack:
            self.stack[-1].depth = max(self.stack[-1].depth, depth)
            self.stack[-1].attach(value, mark)
        else:
            self.root = (value, mark)

    def _take_key(self, parent: _Open, key: str, position: Position, plain: bool) -> None:
        assert isinstance(parent, _OpenMapping)  # nothing else awaits a key
        if first := parent.take_key(key, position, is_merge=plain and key == "<<"):
            self._note(f"key {quoted(key)} is already in line {first.key.line}", position)

    def _resolve(self, text: str, position: Position) -> Data:
        try:
            return resolve(text)
        except UnusableNumber as error:
            self._note(str(error), position, error.hint)
            return None

    def _note(self, message: str, position: Position, hint: str = "") -> None:
        self.problems.append(Problem(message, "", position.line, position.column, hint))


def _position(event: yaml.Event) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)


_HANDLERS: Mapping[type[yaml.Event], Callable[[_Tree, Any], None]] = {
    yaml.DocumentStartEvent: _Tree.start_document,
    yaml.AliasEvent: _Tree.take_alias,
    yaml.ScalarEvent: _Tree.take_scalar,
    yaml.SequenceStartEvent: _Tree.open_list,
    yaml.MappingStartEvent: _Tree.open_mapping,
    yaml.SequenceEndEvent: _Tree.close,
    yaml.MappingEndEvent: _Tree.close,
}


MAX_PROBLEMS = 1_000
MAX_NAME = 128


class Report:
    """Problems found so far, of each severity at most `MAX_PROBLEMS`."""

    def __init__(self, errors: Sequence[Problem] = ()) -> None:
        self._errors = list(errors[:MAX_PROBLEMS])
        self._warnings: list[Problem] = []

    @property
    def is_full(self) -> bool:
        """Return whether looking for more errors is useless: a hostile file has 10⁵ of them."""
        return len(self._errors) >= MAX_PROBLEMS

    def add(self, problem: Problem) -> None:
        problems = self._warnings if problem.warning else self._errors
        if len(problems) < MAX_PROBLEMS:
            problems.append(problem)

    def warnings(self) -> tuple[Problem, ...]:
        return tuple(sorted(self._warnings, key=_line_order))

    def raise_errors(self, what: str) -> None:
        """Raise `Invalid` with everything found, warnings too, if any of it is an error."""
        if not self._errors:
            return
        problems = sorted([*self._errors, *self._warnings], key=_line_order)
        if self.is_full:
            problems.append(Problem(f"only the first {MAX_PROBLEMS:,} errors are shown"))
        count = len(self._errors)
        raise Invalid(f"{what} has {'1 error' if count == 1 else f'{count:,} errors'}", problems)


def _line_order(problem: Problem) -> tuple[int, int]:
    return (problem.line or 0, problem.column or 0)


@dataclass(frozen=True, slots=True)
class At:
    """Position in the document being checked: where a problem there is reported."""

    report: Report
    path: tuple[str | int, ...] = ()
    scope: str = ""  # the thing it belongs to, for messages: "job BuildAndTest"
    mark: Mark | None = None  # None: not in the text itself
    position: Position | None = None  # of the nearest thing that is; None: there is no text

    @classmethod
    def root(cls, report: Report, mark: Mark | None = None) -> At:
        return cls(report, mark=mark, position=mark.position if mark else None)

    def child(self, key: str | int) -> At:
        mark = self.mark.children.get(key) if self.mark and self.mark.children else None
        position = mark.position if mark else self.position
        return At(self.report, (*self.path, key), self.scope, mark, position)

    def within(self, scope: str) -> At:
        return At(self.report, self.path, scope, self.mark, self.position)

    @property
    def name(self) -> str:
        """Name of this value in a message: its field, or its field and number."""
        field = next((part for part in reversed(self.path) if isinstance(part, str)), "the file")
        is_item = self.path and isinstance(self.path[-1], int)
        return f"{field}[{self.path[-1]}]" if is_item else field

    @property
    def written(self) -> str | None:
        """Scalar as typed, when it was typed without quotes."""
        return self.mark.written if self.mark else None

    def refuse(self, message: str, hint: str = "") -> None:
        """Report a wrong value."""
        self._add(message, hint, self.position)

    def warn(self, message: str, hint: str = "") -> None:
        self._add(message, hint, self.position, warning=True)

    def refuse_key(self, message: str, hint: str = "") -> None:
        """Report the name a value stands under."""
        self._add(message, hint, self.mark.key if self.mark else self.position)

    def refuse_unknown(self, key: str, hint: str) -> None:
        """Report a key, a child of this position, that means nothing here."""
        where = f" in {self.scope}" if self.scope else ""
        self.child(key).refuse_key(f"unknown key {quoted(key)}{where}", hint)

    def _add(
        self, message: str, hint: str, position: Position | None, warning: bool = False
    ) -> None:
        line, column = position or (None, None)
        path = dotted(self.path)
        self.report.add(Problem(message, path, line, column, hint, warning))


def refuse_repeated(what: str, name: str, at: At, first: dict[str, At]) -> None:
    """Refuse a name that is there twice; `first` remembers where each stood first."""
    earlier = first.setdefault(name, at)
    if earlier is not at:
        known = earlier.position
        where = f"in line {known.line}" if known else f"at {dotted(earlier.path)}"
        at.refuse(f"{what} is already {where}")


def dotted(path: tuple[str | int, ...]) -> str:
    """Format a path: `("jobs", 0, "run")` as `jobs[0].run`."""
    return "".join(_step(part) for part in path).removeprefix(".")


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    is_tame = part.isprintable() and len(part) <= MAX_NAME
    return f".{part}" if is_tame else f"[{quoted(part)}]"
