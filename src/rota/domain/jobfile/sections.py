"""Values made of values: lists, mappings of free names, and sections with a table of fields."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rota.domain.errors import quoted, shown
from rota.domain.jobfile.kinds import INVALID, Kind, Refused, Rejected, Scalar, Schema, Text
from rota.domain.jobfile.slips import Advice
from rota.domain.jobfile.text import MAX_INTEGER, MAX_NAME, At, Report
from rota.domain.spec import RESERVED_ENV

JOINERS = "\u200c\u200d"
_TAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Kind
    most: int
    least: int = 0
    instead: str = ""  # what to write, if a list of the single value that is there would not do

    @property
    def words(self) -> str:
        return f"a list, each {self.item.words}"

    def check(self, value: object, at: At) -> object:
        """Check the items. Invalid ones keep their place, so that others keep their numbers."""
        if not isinstance(value, list | tuple):
            at.refuse(f"{at.name} must be a list, not {shown(value)}", self.hint(value, at))
            return INVALID
        if not self.least <= len(value) <= self.most:
            at.refuse(f"{at.name} must have {self.least:,} to {self.most:,} entries")
            return INVALID
        return [self.item.check(entry, at.child(index)) for index, entry in enumerate(value)]

    def hint(self, value: object, at: At) -> str:
        """Return a hint on what to write instead of a value that is no list."""
        if isinstance(value, Mapping):
            return _with_dashes(value, self.item)
        if not self.instead and self.item.check(value, At.root(Report())) is not INVALID:
            is_plain = at.written and _TAME.fullmatch(at.written)
            return f"write [{at.written if is_plain else shown(value)}]"
        return self.instead

    def schema(self) -> Schema:
        limits = {"minItems": self.least, "maxItems": self.most}
        return {"type": "array", "items": self.item.schema(), **limits}


def _with_dashes(value: Mapping[object, object], item: Kind) -> str:
    """Write the entries of a list that were written as a mapping, perhaps under their own names."""
    named = next(iter(value), "")
    if isinstance(item, Section) and (meant := item.advice.slips.get(str(named))):
        return meant
    if not isinstance(item, Section) or named in item.by_name or not isinstance(named, str):
        return "begin each entry with a dash"
    name = named if _TAME.fullmatch(named) else quoted(named)
    return f"begin each entry with a dash: - {item.fields[0].name}: {name}"


@dataclass(frozen=True, slots=True)
class Either:
    """A single value or a list of such."""

    one: Kind
    many: ListOf

    @property
    def words(self) -> str:
        return f"{self.one.words}, or a list"

    def check(self, value: object, at: At) -> object:
        return (self.many if isinstance(value, list | tuple) else self.one).check(value, at)

    def schema(self) -> Schema:
        return {"anyOf": [self.one.schema(), self.many.schema()]}


@dataclass(frozen=True, slots=True)
class MapOf:
    """Mapping of names chosen by the user, each with a value."""

    name: Text
    value: Kind
    most: int
    max_bytes: int | None = None  # of all names and values together; None: no such limit
    instead: str = "write it as {NAME: VALUE}"  # for a value that is no mapping
    reserved: str = ""  # names that begin so are refused, as Rota sets them; "": none are

    @property
    def words(self) -> str:
        return f"a mapping of names to values, each {self.value.words}"

    def check(self, value: object, at: At) -> object:
        if not isinstance(value, Mapping):
            at.refuse(f"{at.name} must be a mapping, not {shown(value)}", self.instead)
            return INVALID
        if len(value) > self.most:
            at.refuse(f"{at.name} must have at most {self.most:,} entries")
            return INVALID
        entries = {key: self._entry(key, item, at) for key, item in value.items()}
        if self.max_bytes and _bytes(entries) > self.max_bytes:
            at.refuse(f"{at.name} must have at most {self.max_bytes // 1024} KiB in total")
            return INVALID
        return entries

    def _entry(self, key: object, item: object, at: At) -> object:
        if not isinstance(key, str) or not re.fullmatch(self.name.pattern, key):
            place = at.child(str(key))
            place.refuse_key(f"{at.name} name {quoted(str(key))} must be {self.name.words}")
            return INVALID
        if self.reserved and key.startswith(self.reserved):
            message = f"{at.name} must not set {quoted(key)}: only Rota sets {self.reserved}*"
            at.child(key).refuse_key(message, "give the variable another name")
            return INVALID
        return self.value.check(item, at.child(key))

    def schema(self) -> Schema:
        unless = f"(?!{self.reserved})" if self.reserved else ""
        return {
            "type": "object",
            "propertyNames": {"pattern": f"^{unless}(?:{self.name.pattern})$"},
            "additionalProperties": self.value.schema(),
            "maxProperties": self.most,
        }


def _bytes(entries: Mapping[str, object]) -> int:
    return sum(len(f"{name}{value}".encode(errors="replace")) for name, value in entries.items())


@dataclass(frozen=True, slots=True)
class TextOr:
    """Text that stands for a whole thing, or a mapping that says more of it; both are kept."""

    text: Text
    section: Section
    is_name: bool = True  # the text may be any name, also that of a field

    @property
    def words(self) -> str:
        return f"{self.text.words}, or {self.section.words}"

    def check(self, value: object, at: At) -> object:
        if isinstance(value, Mapping):
            return self.section.check(value, at)
        if not self.is_name and isinstance(value, str) and value in self.section.by_name:
            message = f"{at.name} must be {self.text.words}, or a mapping, not {shown(value)}"
            at.refuse(message, f"for all of them write {{{value}: {{}}}}")
            return INVALID
        return self.text.check(value, at)

    def schema(self) -> Schema:
        return {"anyOf": [self.text.schema(), self.section.schema()]}


@dataclass(frozen=True, slots=True)
class NotYet:
    """Field of the format that this version refuses by name, rather than as a typing error."""

    words: str = "not available in this version of Rota"

    def check(self, value: object, at: At) -> object:
        at.refuse_key(f"{quoted(at.name)} is {self.words}")
        return INVALID

    def schema(self) -> Schema:
        return {"not": {}}


@dataclass(frozen=True, slots=True)
class Field:
    """Row of the table: what may be written under a name, and what it means."""

    name: str
    kind: Kind
    doc: str  # one sentence
    default: object = None  # as it would be written; None: nothing
    examples: tuple[object, ...] = ()
    required: bool = False
    shared: bool = True  # may also stand under `defaults`

    @property
    def is_available(self) -> bool:
        return not isinstance(self.kind, NotYet)

    def schema(self) -> Schema:
        about: Schema = {"description": self.doc}
        if self.default is not None:
            about["default"] = self.default
        if self.examples:
            about["examples"] = list(self.examples)
        return self.kind.schema() | about


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with a fixed table of fields."""

    title: str  # what one of them is called: "job", "step"; "" for the file itself
    fields: tuple[Field, ...]
    shorthand: str = ""  # the field meant by a bare value instead of a mapping
    needs_one_of: tuple[str, ...] = ()  # fields of which one has to be there
    advice: Advice = Advice()
    by_name: Mapping[str, Field] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {row.name: row for row in self.fields})

    @property
    def available(self) -> tuple[Field, ...]:
        return tuple(row for row in self.fields if row.is_available)

    @property
    def words(self) -> str:
        return f"a mapping with the fields of {self.title}"

    def check(self, value: object, at: At) -> dict[str, Any] | Rejected:
        """Return the valid part of the mapping; `INVALID` only if it is no mapping at all."""
        if self._is_bare(value):
            meant = self.by_name[self.shorthand].kind.check(value, at)
            return INVALID if meant is INVALID else {self.shorthand: meant}
        if not isinstance(value, Mapping):
            at.refuse(f"{at.name} must be {self._forms}, not {shown(value)}", self._form(value, at))
            return INVALID
        at = at.within(self.scope(value, at))
        self._refuse_missing(value, at)
        checked = {key: self._entry(key, item, at) for key, item in value.items()}
        return {key: item for key, item in checked.items() if item is not INVALID}

    def scope(self, value: Mapping[str, object], at: At) -> str:
        """Return what messages call this one: `step 2 of job BuildAndTest`."""
        if not self.title:
            return ""
        name, index = value.get("name"), at.path[-1] if at.path else ""
        label = self.title
        if isinstance(name, str):
            label += f" {name}" if _TAME.fullmatch(name) else f" {quoted(name)}"
        elif isinstance(index, int):
            label += f" {index + 1}"
        return f"{label} of {at.scope}" if at.scope else label

    @property
    def _forms(self) -> str:
        """Describe what may be written."""
        match self.by_name[self.shorthand].kind if self.shorthand else None:
            case None:
                return "a mapping"
            case ListOf():
                return "a list or a mapping"
            case Text():
                return "text or a mapping"
            case Either():
                return "text, a list or a mapping"
            case _:
                return "a whole number or a mapping"

    def _is_bare(self, value: object) -> bool:
        """Return whether it stands for a mapping of which only the shorthand is written."""
        if not self.shorthand:
            return False
        match self.by_name[self.shorthand].kind:
            case ListOf():
                return isinstance(value, list | tuple)
            case Text():
                return isinstance(value, str)
            case Either():
                return isinstance(value, str | list | tuple)
            case _:
                return isinstance(value, int) and not isinstance(value, bool)

    def _entry(self, key: object, item: object, at: At) -> object:
        """Return the checked value; a field left empty counts as not written."""
        if at.report.is_full:
            return INVALID
        row = self.by_name.get(key) if isinstance(key, str) else None
        if row is None:
            known = [each.name for each in self.available]
            at.refuse_unknown(str(key), self.advice.about(str(key), known))
            return INVALID
        return INVALID if item is None else row.kind.check(item, at.child(row.name))

    def _form(self, value: object, at: At) -> str:
        """Return a hint on what to write instead of a value that is no mapping."""
        meant = self.by_name[self.shorthand].kind if self.shorthand else None
        if isinstance(meant, ListOf):
            return meant.hint(value, at)
        if isinstance(value, list | tuple) and self.advice.for_list:
            return self.advice.for_list
        return f"write it as {self.advice.form}" if self.advice.form else ""

    def _refuse_missing(self, value: Mapping[str, object], at: At) -> None:
        for row in self.fields:
            if row.required and value.get(row.name) is None:
                at.refuse(f'{at.scope or "the file"} has no "{row.name}"')
        if self.needs_one_of and all(value.get(name) is None for name in self.needs_one_of):
            at.refuse(f'{at.scope or "the file"} has no "{self.needs_one_of[0]}"')

    def schema(self) -> Schema:
        return {"$ref": f"#/$defs/{self.title}"}

    def definition(self) -> Schema:
        """Return the schema itself, for the place that `schema` refers to."""
        mapping: Schema = {
            "type": "object",
            "properties": {row.name: row.schema() for row in self.available},
            "required": [row.name for row in self.fields if row.required],
            "additionalProperties": False,
        }
        if self.needs_one_of:
            mapping["anyOf"] = [{"required": [name]} for name in self.needs_one_of]
        if not self.shorthand:
            return mapping
        return {"anyOf": [mapping, self.by_name[self.shorthand].kind.schema()]}


@dataclass(frozen=True, slots=True)
class Title(Scalar):
    """Text for people, in any script, that looks the same wherever it stands."""

    words: str = "text on one line"

    def accept(self, value: object, at: At) -> object:
        text = Text(self.words, MAX_TITLE).accept(value, at)
        assert isinstance(text, str)
        if found := next(filter(_is_unseen, text), None):
            raise Refused(
                f"{at.name} must not contain U+{ord(found):04X}, which is not seen",
                "it may change how the text around it looks: leave it out",
            )
        if text != text.strip():
            raise Refused(f"{at.name} must not begin or end with a blank")
        return text

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": MAX_TITLE}


def _is_unseen(character: str) -> bool:
    """Return whether a character only steers how others are shown; scripts need the joiners."""
    return unicodedata.category(character) == "Cf" and character not in JOINERS


@dataclass(frozen=True, slots=True)
class Folder(Scalar):
    """Path of a folder below another one."""

    words: str = "a path below the work folder such as src/app"

    def accept(self, value: object, at: At) -> object:
        text = Text(self.words, 1_024).accept(value, at)
        assert isinstance(text, str)
        if text.startswith("/"):
            raise Refused(hint="a folder of the worker is source: {path: /FOLDER}")
        parts = text.removesuffix("/").split("/")
        if ".." in parts:
            raise Refused(f"{at.name} must not lead out of the work folder", "leave out ..")
        if any(not part or part == "." for part in parts):
            raise Refused(hint="write its names with one slash between them: src/app")
        return text.removesuffix("/")

    def schema(self) -> Schema:
        pattern = r"^(?!/)(?!(.*/)?\.{1,2}(/|$))(?!.*//)[^\x00-\x1f]+$"
        return {"type": "string", "maxLength": 1_024, "pattern": pattern}


MAX_SCRIPT = 1024 * 1024
MAX_TITLE = 120
MAX_ENV_BYTES = 128 * 1024
MAX_EXPRESSIONS = 20
MAX_INPUT_TEXT = 64 * 1024

NAME = Text(
    f"a name of at most {MAX_NAME} letters, digits, dots, dashes and underscores "
    "that begins with a letter or digit",
    MAX_NAME,
    pattern=rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}",
)
VARIABLE = Text(
    "letters, digits and underscores, not beginning with a digit",
    MAX_NAME,
    pattern=rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}",
)
LABEL = Text(
    "at most 63 letters, digits, dots, dashes, slashes and underscores "
    "that begin with a letter or digit",
    63,
    pattern=r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}",
)
LINE = Text("text on one line", 200)
TITLE = Title()
FOLDER = Folder()
PROSE = Text(max_length=10_000, min_length=0, lines=True)
PATH = Text("an absolute path", 4_096, pattern=r"/[^\x00-\x1f]*")
SHELL = Text("the name of a shell", 64, pattern=r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True)
class _Expression(Text):
    """Expression of when something is due; whether it can be read is a rule of its own."""

    words: str = "a cron expression, an interval or a time"

    def accept(self, value: object, at: At) -> object:
        parts = list(value.values()) if isinstance(value, Mapping) else []
        if len(parts) == 1 and isinstance(parts[0], str):
            raise Refused(hint=f"write {quoted(parts[0])} alone, without a name for it")
        return Text.accept(self, value, at)  # super() does not work with slots


_VALUE = Text(max_length=MAX_ENV_BYTES, min_length=0, lines=True, takes_numbers=True)
_EXPRESSION = _Expression()

ENV = MapOf(VARIABLE, _VALUE, most=1_000, max_bytes=MAX_ENV_BYTES, reserved=RESERVED_ENV)
LABELS = MapOf(LABEL, Text(max_length=256, min_length=0, takes_numbers=True), most=64)
NEEDS = replace(LABELS, instead='write labels as {site: fra}; jobs to follow stand under "after"')
SCHEDULE = Either(_EXPRESSION, ListOf(_EXPRESSION, most=MAX_EXPRESSIONS, least=1))
COMMAND = Either(Text("a script", MAX_SCRIPT, lines=True), ListOf(_VALUE, most=1_000, least=1))
WORDS = ListOf(
    Text(max_length=4_096), most=50, least=1, instead="write its words as a list: [perl, -w]"
)


@dataclass(frozen=True, slots=True)
class InputValue(Scalar):
    """Value of an input; whether it fits the input's type is a rule of its own."""

    words: str = "text, a number, true or false"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, str):
            return Text(max_length=MAX_INPUT_TEXT, min_length=0, lines=True).accept(value, at)
        if isinstance(value, int | float) and -MAX_INTEGER <= value <= MAX_INTEGER:
            return value
        raise Refused

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"], "maxLength": MAX_INPUT_TEXT}
