"""The table of fields of a cart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.carts.definition import MAX_ITEMS, OnBreach, Scope
from rota.domain.carts.template import ITEM_FILE, MAX_ORDER
from rota.domain.jobfile.calendars import MAX_CALENDARS_OF_JOB
from rota.domain.jobfile.kinds import (
    INVALID,
    Choice,
    Flag,
    Integer,
    Refused,
    Scalar,
    Schema,
    Text,
)
from rota.domain.jobfile.measures import Duration, Zone
from rota.domain.jobfile.report import At
from rota.domain.jobfile.sections import Either, Field, ListOf, MapOf, Section
from rota.domain.jobfile.slips import (
    BETWEEN_ADVICE,
    CART_ADVICE,
    FAILURES_ADVICE,
    ITEM_ADVICE,
)
from rota.domain.jobfile.vocabulary import LABELS, NAME, PROSE, SCHEDULE, VARIABLE, InputValue
from rota.domain.jobfile.wording import shown
from rota.domain.spec import GREATEST_PRIORITY, LEAST_PRIORITY

MAX_CARTS = 1_000
MAX_GROUP_SIZES = 1_000
MAX_INPUTS = 100

_PERCENTAGE = r"(?:100(?:\.0{1,6})?|[0-9]{1,2}(?:\.[0-9]{1,6})?)%"
_NO_PERCENTAGE = r"0{1,2}(?:\.0{1,6})?%"
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Quantity(Scalar):
    """A number of items, or a part of them as a percentage."""

    least: int

    @property
    def words(self) -> str:
        above = "above 0%, " if self.least else ""
        return (
            f"a whole number from {self.least} to {MAX_ITEMS:,}, "
            f"or a percentage such as 10% ({above}at most 100%)"
        )

    def accept(self, value: object, at: At) -> object:
        if isinstance(value, str):
            return self._percentage(value)
        if isinstance(value, float):
            percentage = value * 100 if 0 < value < 1 else value
            raise Refused(hint=f"for a part of the items write {percentage:g}%")
        return Integer(self.least, MAX_ITEMS).accept(value, at)

    def _percentage(self, text: str) -> str:
        if _NUMBER.fullmatch(text):
            raise Refused(hint=f"write {text} without quotes, or {text}%")
        if not re.fullmatch(_PERCENTAGE, text, re.ASCII):
            raise Refused
        if self.least and re.fullmatch(_NO_PERCENTAGE, text, re.ASCII):
            raise Refused
        return text

    def schema(self) -> Schema:
        never = f"(?!{_NO_PERCENTAGE}$)" if self.least else ""
        percentage = {"type": "string", "pattern": f"^{never}{_PERCENTAGE}$"}
        return {"anyOf": [Integer(self.least, MAX_ITEMS).schema(), percentage]}


@dataclass(frozen=True, slots=True)
class FileOr:
    """The path of a file of items, or a mapping that says where else they are."""

    path: Text
    section: Section

    @property
    def words(self) -> str:
        return f"{self.path.words}, or {self.section.words}"

    def check(self, value: object, at: At) -> object:
        if isinstance(value, str) and value in self.section.by_name:
            message = f"{at.name} must be {self.path.words}, or a mapping, not {shown(value)}"
            at.refuse(message, f"for all of them write {{{value}: {{}}}}")
            return INVALID
        is_mapping = isinstance(value, Mapping)
        return self.section.check(value, at) if is_mapping else self.path.check(value, at)

    def schema(self) -> Schema:
        return {"anyOf": [self.path.schema(), self.section.schema()]}


ITEM = Section(
    "item",
    (
        Field(
            "key",
            Text(
                "text without blanks at its ends", 200, pattern=r"\S(?:.*\S)?", takes_numbers=True
            ),
            "What the item is called, unique in the cart.",
            examples=("db-001",),
            required=True,
        ),
        Field(
            "order",
            Integer(1, MAX_ORDER),
            "When its turn comes: equal numbers run together, higher ones later; every item of a "
            "cart has a number or none has.",
            examples=(10,),
        ),
        Field(
            "with",
            MapOf(VARIABLE, InputValue(), most=MAX_INPUTS),
            "The inputs of its run.",
            examples=({"host": "db-001"},),
        ),
        Field("job", NAME, "The job it runs; the cart's, unless given."),
    ),
    advice=ITEM_ADVICE,
)

FAILURES = Section(
    "failures",
    (
        Field(
            "allow",
            Quantity(0),
            "How many items may fail; one more breaches the limit.",
            0,
            (3, "2.5%"),
        ),
        Field("of", Choice(Scope), "Whether failures count per cart or per wave.", "cart"),
        Field("then", Choice(OnBreach), "What a breach does to the cart.", "pause"),
        Field(
            "strict",
            Flag(),
            "Keep so few items in flight that the limit can be exceeded by one at most.",
            False,
        ),
    ),
    advice=FAILURES_ADVICE,
)

BETWEEN = Section(
    "between",
    (
        Field(
            "wait",
            Duration(most=timedelta(days=30)),
            "How long to wait after a wave.",
            "0s",
            ("10m",),
        ),
        Field("check", NAME, "A job that must complete before the next wave opens."),
        Field(
            "approve",
            Choice(("operator", "editor", "admin")),
            "The role whose approval the next wave needs; the submitter's own does not count.",
            examples=("admin",),
        ),
    ),
    advice=BETWEEN_ADVICE,
)

ITEMS_FROM = Section(
    "items_from",
    (
        Field(
            "workers",
            LABELS,
            "Labels that live workers must have to be an item each.",
            examples=({"site": "fra"},),
            required=True,
        ),
    ),
)

_ITEM_FILE = Text("the path of a .csv, .json or .jsonl file", 4_096, pattern=ITEM_FILE)

_WHAT = (
    Field("name", NAME, "Unique among the carts of its project.", required=True),
    Field("description", PROSE, "What the cart is for."),
    Field("labels", LABELS, "Free names and values to find carts by.", examples=({"tier": "db"},)),
    Field("job", NAME, "The job of the items that name none.", examples=("upgrade-db",)),
    Field(
        "items",
        ListOf(ITEM, most=MAX_ITEMS, least=1, instead="those of a file: items_from: FILE"),
        "The items.",
        examples=([{"key": "db-001", "with": {"host": "db-001"}}],),
    ),
    Field(
        "items_from",
        FileOr(_ITEM_FILE, ITEMS_FROM),
        "Where the items are: a file, beside the job file unless its path says else, or the live "
        "workers.",
        examples=("fleet.csv", {"workers": {"site": "fra"}}),
    ),
    Field(
        "rollback",
        NAME,
        "The job that runs, on request, for items of a cart that was cancelled or breached.",
    ),
    Field(
        "priority",
        Integer(LEAST_PRIORITY, GREATEST_PRIORITY),
        "9 goes first; each job's own, unless given.",
    ),
)

_WHEN = (
    Field(
        "schedule",
        SCHEDULE,
        "When it is submitted: a cron expression, an ISO 8601 time, or a list of these; without "
        "it on demand only.",
        examples=("2026-06-01T22:00:00+02:00", "0 2 * * 6"),
    ),
    Field("timezone", Zone(), "The zone of the schedule.", "UTC", ("Europe/Berlin",)),
    Field(
        "calendars",
        ListOf(NAME, most=MAX_CALENDARS_OF_JOB),
        "Names of the calendars in whose windows no wave opens.",
        examples=(["no-deploy-weekends"],),
    ),
)

_IN_WHICH_ORDER = (
    Field(
        "order",
        Choice(("serial", "parallel", "groups")),
        "One item after the other, all together, or in groups; the items' own numbers, if they "
        "have such, else `serial`.",
        examples=("parallel",),
    ),
    Field(
        "group_size",
        Either(Quantity(1), ListOf(Quantity(1), most=MAX_GROUP_SIZES, least=1)),
        "How many items a group has, or a list of group after group whose last value repeats; "
        "percentages of all items are rounded up.",
        examples=(5, "10%", [1, 5, 20, "10%"]),
    ),
    Field("max_parallel", Integer(1, MAX_ITEMS), "At most this many items are in flight."),
    Field("failures", FAILURES, "How many items may fail, and what happens then."),
    Field("between", BETWEEN, "What must happen before the next wave opens."),
)

CART = Section("cart", (*_WHAT, *_WHEN, *_IN_WHICH_ORDER), advice=CART_ADVICE)
CARTS = Field(
    "carts",
    ListOf(CART, most=MAX_CARTS),
    "Batches of runs in a given order, with a limit on failures.",
)
