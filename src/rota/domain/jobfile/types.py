"""Fields of jobs of plug-in types: the name of the type, and what it is given.

Which types there are, and what each takes, only a store knows: here a job is read with any name
that a type may have. `operations/job_types` compares it with what workers have offered.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rota.domain.errors import did_you_mean, listed, shown
from rota.domain.jobfile.http import NOT_OF_HTTP
from rota.domain.jobfile.kinds import INVALID, Refused, Scalar, Schema
from rota.domain.jobfile.sections import Field
from rota.domain.jobfile.text import At
from rota.domain.run import why_not_portable
from rota.domain.spec import (
    TYPE_NAME,
    InputType,
    JobType,
    is_plugin_type,
)

MAX_PARAMETERS = 64 * 1024  # bytes as JSON
# What only commands and functions have.
NOT_OF_PLUGINS = NOT_OF_HTTP
_NO_COMMANDS = "a plug-in does the work, which has no commands"
_BUILT_IN = tuple(map(str, JobType))


@dataclass(frozen=True, slots=True)
class TypeName(Scalar):
    """Name of a type of jobs: one that Rota brings, or one that a plug-in may have."""

    @property
    def words(self) -> str:
        return f"{listed(_BUILT_IN)}, or a type that a plug-in brings, such as ticket"

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, str):
            raise Refused
        if not TYPE_NAME.fullmatch(value):
            hint = did_you_mean(value.lower(), _BUILT_IN)
            raise Refused(
                f"{at.name} must be a name of lower case letters, digits, _ and - that begins with "
                f"a letter, not {shown(value)}",
                hint,
            )
        return value

    def schema(self) -> Schema:
        return {
            "type": "string",
            "pattern": f"^(?:{TYPE_NAME.pattern})$",
            "examples": [*_BUILT_IN, "ticket"],
        }


@dataclass(frozen=True, slots=True)
class Parameters(Scalar):
    """Mapping of anything that JSON has."""

    words: str = "a mapping, as the type describes it"

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, Mapping):
            raise Refused
        if complaint := why_not_portable(value):
            raise Refused(f"{at.name}: {complaint}")
        if len(json.dumps(value).encode()) > MAX_PARAMETERS:
            raise Refused(f"{at.name} must have at most {MAX_PARAMETERS // 1024} KiB")
        return dict(value)

    def schema(self) -> Schema:
        return {"type": "object"}


PARAMETERS = Field(
    "parameters",
    Parameters(),
    "What the job gives the type of a plug-in, as that describes it: `rota job types NAME` prints "
    "its JSON Schema.",
    examples=({"queue": "OPS"},),
    shared=False,
)


def check_plugin_type(document: Mapping[str, Any], written: Mapping[str, object], at: At) -> None:
    """Report what does not go together in a job of a plug-in type, or only in one."""
    kind = document.get("type", JobType.SHELL)
    if not is_plugin_type(kind):
        if written.get("parameters") is not None and written.get("type") in (None, kind):
            message = f'"parameters" go with types of plug-ins, not with type {kind}'
            at.child("parameters").refuse_key(message)
        return
    for name in NOT_OF_PLUGINS:
        if written.get(name) is not None:
            message = f'"{name}" does not go with type {kind}: {_NO_COMMANDS}'
            at.child(name).refuse_key(message, did_you_mean(kind, _BUILT_IN))
    for name, given in document.get("inputs", {}).items():
        if given is not INVALID and given.get("type") == InputType.FILE:
            message = f"jobs of type {kind} have no work folder: their inputs cannot be files"
            at.child("inputs").child(name).child("type").refuse(message)


def places_of(parameters: object, at: At) -> Iterator[tuple[tuple[str, ...], At]]:
    """Yield all places in parameters, so that what is wrong there can be told where it stands."""
    below: list[tuple[tuple[str, ...], object, At]] = [(("parameters",), parameters, at)]
    while below:
        path, value, place = below.pop()
        yield path, place
        if isinstance(value, Mapping):
            below += [((*path, name), each, place.child(name)) for name, each in value.items()]
        elif isinstance(value, list | tuple):
            below += [
                ((*path, str(number)), each, place.child(number))
                for number, each in enumerate(value)
            ]
