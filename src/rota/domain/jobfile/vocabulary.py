"""The kinds of text a job file is made of, with their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.domain.jobfile.kinds import Refused, Scalar, Schema, Text
from rota.domain.jobfile.report import MAX_NAME, At
from rota.domain.jobfile.sections import Either, ListOf, MapOf
from rota.domain.jobfile.text import MAX_INTEGER
from rota.domain.spec import RESERVED_ENV
from rota.domain.wording import quoted

MAX_SCRIPT = 1024 * 1024
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
PROSE = Text(max_length=10_000, min_length=0, lines=True)
PATH = Text("an absolute path", 4_096, pattern=r"/[^\x00-\x1f]*")
SHELL = Text("the name of a shell", 64, pattern=r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, slots=True)
class _Expression(Text):
    """When something is due; whether it can be read as that is a rule of its own."""

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
    """The value of an input; whether it fits the input's type is a rule of its own."""

    words: str = "text, a number, true or false"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, str):
            return Text(max_length=MAX_INPUT_TEXT, min_length=0, lines=True).accept(value, at)
        if isinstance(value, int | float) and -MAX_INTEGER <= value <= MAX_INTEGER:
            return value
        raise Refused

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"], "maxLength": MAX_INPUT_TEXT}
