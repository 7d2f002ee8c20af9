"""Fields by which a job says what its runs take and wait for, and how they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from rota.domain.errors import did_you_mean
from rota.domain.following import MAX_SOURCE, SOURCES, parse_source
from rota.domain.jobfile.kinds import Choice, Duration, Integer, Refused, Scalar, Schema
from rota.domain.jobfile.sections import NAME, VARIABLE, Field, ListOf, MapOf, Section, TextOr
from rota.domain.jobfile.slips import AFTER_ADVICE, FOLLOW_ADVICE, TAKEN_LIMIT_ADVICE
from rota.domain.jobfile.text import At
from rota.domain.keys import READERS
from rota.domain.quantities import PATTERN as SIZE
from rota.domain.quantities import parse_duration
from rota.domain.resources import MOST_UNITS, UNIT, parse_amount
from rota.domain.spec import After, Follow, When

MOST_TOKENS = 1_000_000


class Access(StrEnum):
    """Access of a run to a resource that many may read, or one write."""

    READ = "read"
    WRITE = "write"


_UNITS = {Access.READ: 1, Access.WRITE: READERS}


@dataclass(frozen=True, slots=True)
class Amount(Scalar):
    """Amount that a run takes of a resource."""

    words: str = "a number with at most 3 decimals, a size such as 4GiB, or read or write"

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, str) and value in list(Access):
            return value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise Refused
        if isinstance(value, str) and not re.fullmatch(SIZE, value):
            raise Refused(hint=did_you_mean(value, list(Access)))
        try:
            parse_amount(value)
        except ValueError as error:
            raise Refused from error
        return value

    def schema(self) -> Schema:
        number = {"type": "number", "minimum": 0, "maximum": MOST_UNITS}
        size = {"type": "string", "pattern": f"^({SIZE}|read|write)$"}
        return {"anyOf": [number, size]}


RATE_LIMIT = Section(
    "rate_limit",
    (
        Field("name", NAME, "The limit.", required=True),
        Field("tokens", Integer(1, MOST_TOKENS), "How many of its tokens a run takes.", 1),
    ),
    shorthand="name",
    advice=TAKEN_LIMIT_ADVICE,
)


@dataclass(frozen=True, slots=True)
class Handed(Scalar):
    """Value that an input gets of the run that is followed."""

    words: str = SOURCES

    def accept(self, value: object, at: At) -> object:
        if not isinstance(value, str) or len(value) > MAX_SOURCE:
            raise Refused
        try:
            parse_source(value)
        except ValueError as error:
            raise Refused(hint=str(error)) from error
        return value

    def schema(self) -> Schema:
        pattern = r"^(outputs|run|job|state|(outputs|artifacts)\.\S+)$"
        return {"type": "string", "maxLength": MAX_SOURCE, "pattern": pattern}


FOLLOW = Section(
    "follow",
    (
        Field("job", NAME, "A job of the same project.", required=True),
        Field(
            "when",
            Choice(When),
            "The ends of its runs that are followed: `failed` is timed out, too; `ended` is any of "
            "these and `completed`, or cancelled.",
            "completed",
        ),
        Field(
            "with",
            MapOf(VARIABLE, Handed(), most=100, instead="write it as {INPUT: outputs.KEY}"),
            "What inputs of this job are given of the run that is followed, the others having "
            "their defaults: one of its `outputs` by its name or all of them as JSON, its `run` "
            "id, its `job` or its `state`, or one of its `artifacts` by its path.",
            examples=({"rows": "outputs.rows", "reason": "state"},),
        ),
    ),
    advice=FOLLOW_ADVICE,
)

AFTER = Section(
    "after",
    (
        Field(
            "jobs",
            ListOf(TextOr(NAME, FOLLOW), most=100, least=1),
            "Jobs of the same project; a bare name is one whose completed runs are followed.",
            required=True,
            examples=(["extract"], [{"job": "extract", "when": "failed"}]),
        ),
        Field(
            "within",
            Duration(timedelta(milliseconds=1)),
            "How long a due run waits for them before it is MISSED; for ever, unless given.",
            examples=("2h",),
        ),
    ),
    shorthand="jobs",
    advice=AFTER_ADVICE,
)

DEMANDS = (
    Field(
        "resources",
        MapOf(NAME, Amount(), most=64, instead="write it as {NAME: AMOUNT}"),
        "What a run occupies while it runs, of its worker (`cpu`, `memory`, `gpu`, …) and of the "
        "named resources that all share; those of kind `read_write` are taken to `read` or to "
        "`write`.",
        examples=({"cpu": 2, "memory": "4GiB", "pg-license": 1}, {"catalog": "read"}),
    ),
    Field(
        "rate_limits",
        ListOf(RATE_LIMIT, most=50),
        "Limits on how often runs start; a bare name takes one token.",
        examples=([{"name": "s3-put", "tokens": 2}], ["s3-put"]),
    ),
    Field(
        "exclusive_by",
        ListOf(VARIABLE, most=20),
        "Inputs of which no two runs with equal values run at once, also of other jobs of the "
        "project that name the same inputs.",
    ),
    Field(
        "after",
        AFTER,
        "Jobs to follow: without a schedule a run for each of their completed runs, with one a due "
        "run waits until each has completed since the due time before; a bare list means `jobs`.",
        examples=(
            ["nightly-vacuum"],
            {"jobs": ["nightly-vacuum"], "within": "2h"},
            [{"job": "extract", "when": "failed", "with": {"reason": "state"}}],
        ),
        shared=False,
    ),
)


def build_resources(document: Mapping[str, Any]) -> dict[str, int]:
    """Return thousandths by name, without what is not needed at all."""
    amounts = {name: _thousandths(written) for name, written in document.items()}
    return {name: amount for name, amount in amounts.items() if amount}


def build_rate_limits(documents: list[Mapping[str, Any]]) -> dict[str, int]:
    """Return tokens by name."""
    return {document["name"]: document.get("tokens", 1) for document in documents}


def build_after(document: Mapping[str, Any]) -> After:
    within = document.get("within")
    follows = tuple(map(_follow, document["jobs"]))
    return After(follows, parse_duration(within) if within else None)


def _follow(written: str | Mapping[str, Any]) -> Follow:
    if isinstance(written, str):
        return Follow(written)
    when = When(written.get("when", When.COMPLETED))
    return Follow(written["job"], when, written.get("with", {}))


def job_of(written: str | Mapping[str, Any]) -> str:
    """Return the name of a job that is followed, as it stands in a document."""
    return written if isinstance(written, str) else str(written["job"])


def _thousandths(written: float | str) -> int:
    if isinstance(written, str) and written in list(Access):
        return _UNITS[Access(written)] * UNIT
    return parse_amount(written)
