"""Table of fields of a cart, and what they must satisfy together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rota.domain.carts.definition import (
    ITEM_FILE,
    MAX_ITEMS,
    MAX_ORDER,
    ItemsFile,
    Matrix,
    OnBreach,
    Order,
    Scope,
    key_of,
)
from rota.domain.errors import did_you_mean, quoted, shown
from rota.domain.jobfile.build import Document
from rota.domain.jobfile.calendars import MAX_CALENDARS_OF_JOB
from rota.domain.jobfile.files import AnyInputValue
from rota.domain.jobfile.kinds import (
    INVALID,
    Choice,
    Duration,
    Flag,
    Integer,
    Refused,
    Scalar,
    Schema,
    Text,
    Zone,
)
from rota.domain.jobfile.rules import check_schedule
from rota.domain.jobfile.sections import (
    LABELS,
    NAME,
    NEEDS,
    PROSE,
    SCHEDULE,
    TITLE,
    VARIABLE,
    Either,
    Field,
    InputValue,
    ListOf,
    MapOf,
    Section,
    TextOr,
)
from rota.domain.jobfile.slips import BETWEEN_ADVICE, CART_ADVICE, FAILURES_ADVICE, ITEM_ADVICE
from rota.domain.jobfile.text import At, refuse_repeated
from rota.domain.spec import GREATEST_PRIORITY, LEAST_PRIORITY

MAX_CARTS = 1_000
MAX_GROUP_SIZES = 1_000
MAX_INPUTS = 100
MAX_LISTS = 10  # of a matrix
MAX_VALUES = 1_000  # of each
MAX_EXCLUDED = 1_000
MAX_KEY = 200
_MOST_COMPARED = 5_000_000  # combinations times those that are left out

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


ITEM = Section(
    "item",
    (
        Field(
            "key",
            Text(
                "text without blanks at its ends",
                MAX_KEY,
                pattern=r"\S(?:.*\S)?",
                takes_numbers=True,
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
            MapOf(VARIABLE, AnyInputValue(), most=MAX_INPUTS),
            "The inputs of its run.",
            examples=({"host": "db-001"},),
        ),
        Field("job", NAME, "The job it runs; the cart's, unless given."),
        Field(
            "needs",
            NEEDS,
            "Labels that its worker must have, over those that the job needs; `worker` is the "
            "name of one.",
            examples=({"worker": "web-07"},),
        ),
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
            "Labels that live workers of the job's pool must have to be an item each, which runs "
            "on that worker.",
            examples=({"site": "fra"},),
            required=True,
        ),
    ),
)

_ITEM_FILE = Text("the path of a .csv, .json or .jsonl file", 4_096, pattern=ITEM_FILE)

_WHAT = (
    Field("name", NAME, "Unique among the carts of its project.", required=True),
    Field("title", TITLE, "What people are shown beside its name, in any script."),
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
        TextOr(_ITEM_FILE, ITEMS_FROM, is_name=False),
        "Where the items are: a file, beside the job file unless its path says else, or the live "
        "workers.",
        examples=("fleet.csv", {"workers": {"site": "fra"}}),
    ),
    Field(
        "matrix",
        MapOf(
            VARIABLE,
            ListOf(InputValue(), most=MAX_VALUES, least=1, instead="write a list of values"),
            most=MAX_LISTS,
            instead="write it as {INPUT: [VALUE, VALUE]}",
        ),
        "Lists of values for inputs of the cart's job: every combination is an item, the last list "
        "changing fastest; its key is the values with slashes between them.",
        examples=({"python": ["3.11", "3.12"], "database": ["sqlite", "postgres"]},),
    ),
    Field(
        "exclude",
        ListOf(MapOf(VARIABLE, InputValue(), most=MAX_LISTS), most=MAX_EXCLUDED),
        "Combinations of the matrix that are left out: those that have all of these values.",
        examples=([{"python": "3.11", "database": "postgres"}],),
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
    Field(
        "within",
        Duration(most=timedelta(days=30)),
        "How long an item waits for a worker that it names and that is gone, before it has "
        "failed; for ever, unless given.",
        examples=("10m",),
    ),
    Field("failures", FAILURES, "How many items may fail, and what happens then."),
    Field("between", BETWEEN, "What must happen before the next wave opens."),
)

CART = Section("cart", (*_WHAT, *_WHEN, *_IN_WHICH_ORDER), advice=CART_ADVICE)
CARTS = Field(
    "carts",
    ListOf(CART, most=MAX_CARTS),
    "Batches of runs in a given order, with a limit on failures.",
)


Written = Mapping[str, Any]


def check_carts(file: Document, written: Any, root: At) -> None:
    """Apply every rule to the carts of a file.

    `file` has passed its table; `written` is the same before that.
    """
    first: dict[str, At] = {}
    room = MAX_ITEMS  # of all matrices together: a line makes thousands of items
    for index, document in enumerate(file.get("carts", ())):
        at = root.child("carts").child(index)
        if document is INVALID or at.report.is_full:
            continue
        raw = written["carts"][index]
        room -= check_cart(document, raw, at.within(CART.scope(raw, at)), room)
        if name := document.get("name"):
            refuse_repeated(f"cart {name}", name, at.child("name"), first)


def check_cart(document: Document, written: Written, at: At, room: int = MAX_ITEMS) -> int:
    """Apply every rule to one cart; return how many items its matrix has, of at most `room`."""
    _check_source(written, at)
    _check_jobs(document, written, at)
    _check_order(document, written, at)
    _check_group_size(document, written, at)
    _check_keys(document, at.child("items"))
    check_schedule(document, at)
    return _check_matrix(document, at, room) if "matrix" in document else 0


def _has(written: Written, name: str) -> bool:
    return written.get(name) is not None


def _check_source(written: Written, at: At) -> None:
    sources = [name for name in ("items", "items_from", "matrix") if _has(written, name)]
    for other in sources[1:]:
        message = f'"{sources[0]}" and "{other}" exclude each other'
        at.child(other).refuse_key(message, "leave one of them out")
    if not sources:
        at.refuse(f'{at.scope} has neither "items" nor "items_from" nor a "matrix"')
    if _has(written, "exclude") and "matrix" not in sources:
        at.child("exclude").refuse_key('"exclude" needs a matrix', "leave it out")


def _check_jobs(document: Document, written: Written, at: At) -> None:
    """Check that every item has a job, its own or the cart's."""
    if _has(written, "job"):
        return
    if _has(written, "matrix"):
        at.refuse(f'{at.scope} has no "job", which a matrix needs')
        return
    source = document.get("items_from")
    if source is not None and not (isinstance(source, str) and not ItemsFile(source).is_csv):
        at.refuse(f'{at.scope} has no "job", which items from a table or from workers need')
    items = list(_written_items(written))
    without = [(index, item) for index, item in items if not _has(item, "job")]
    if without and len(without) == len(items):
        at.refuse(f'{at.scope} has no "job"', "name the job that its items run")
        return
    for index, item in without:
        place = at.child("items").child(index)
        place.refuse(f'{_called(item, index)} has no "job", and neither has the cart')


def _check_order(document: Document, written: Written, at: At) -> None:
    """Check that order numbers are all explicit or all assigned."""
    items = list(_written_items(written))
    numbered = [(index, item) for index, item in items if _has(item, "order")]
    if not numbered:
        return
    index, item = numbered[0]
    if _has(written, "order"):
        order = document.get("order", "order")
        message = f"the cart's order ({order}) assigns the numbers, so its items must have none"
        place = at.child("items").child(index).child("order")
        place.refuse_key(message, 'leave out either the "order" of the cart or those of its items')
    elif len(numbered) < len(items):
        bare, other = next(entry for entry in items if not _has(entry[1], "order"))
        message = f"{_called(other, bare)} has no order, but {_called(item, index)} has"
        at.child("items").child(bare).refuse(message, "give every item a number, or none")


def _check_group_size(document: Document, written: Written, at: At) -> None:
    order = document.get("order")
    if _has(written, "order") and order is None:
        return
    if order == Order.GROUPS and not _has(written, "group_size"):
        at.child("order").refuse("order: groups needs a group_size", "add one: group_size: 5")
    if order != Order.GROUPS and _has(written, "group_size"):
        at.child("group_size").refuse_key('"group_size" needs order: groups', "add order: groups")
    if order == Order.PARALLEL and _has(written, "between"):
        at.child("between").warn("nothing comes between: order: parallel makes a single wave")


def _check_keys(document: Document, at: At) -> None:
    first: dict[str, At] = {}
    for index, item in enumerate(document.get("items", ())):
        if item is not INVALID and (key := item.get("key")):
            refuse_repeated(f"key {quoted(key)}", key, at.child(index).child("key"), first)


def build_matrix(document: Document) -> Matrix:
    """Build the matrix of a document that has one."""
    lists = {name: tuple(values) for name, values in document["matrix"].items()}
    return Matrix(lists, tuple(document.get("exclude", ())))


def _check_matrix(document: Document, at: At, room: int) -> int:
    """Check that a matrix has items, not too many, and a key of its own for each; count them."""
    place = at.child("matrix")
    if not document["matrix"]:
        place.refuse("a matrix needs a list", "write it as {INPUT: [VALUE, VALUE]}")
        return 0
    if not _is_clean(document):
        return 0
    matrix = build_matrix(document)
    for name, values in matrix.lists.items():
        first: dict[str, At] = {}
        for index, value in enumerate(values):
            refuse_repeated(shown(value), key_of([value]), place.child(name).child(index), first)
        if len(first) < len(values):
            return 0
    if matrix.size > room:
        most = f"{MAX_ITEMS:,}" if room == MAX_ITEMS else f"{MAX_ITEMS:,} in all carts of the file"
        message = f"the matrix has {matrix.size:,} combinations, of at most {most}"
        place.refuse_key(message, "leave values out, or make several files")
        return 0
    if matrix.size * len(matrix.exclude) > _MOST_COMPARED:
        message = f"{len(matrix.exclude):,} entries are too many for {matrix.size:,} combinations"
        at.child("exclude").refuse_key(message, "leave values out of the lists instead")
        return 0
    _check_excluded(matrix, at.child("exclude"))
    _check_combinations(matrix, place)
    return matrix.size


def _is_clean(document: Document) -> bool:
    """Return whether every value of a matrix, and of what it leaves out, passed its own check."""
    values = [value for each in document["matrix"].values() for value in _entries(each)]
    excluded = document.get("exclude", ())
    left_out = [value for each in excluded if each is not INVALID for value in each.values()]
    return INVALID not in excluded and not any(each is INVALID for each in (*values, *left_out))


def _entries(values: object) -> Sequence[object]:
    return values if isinstance(values, list) else [INVALID]


def _check_excluded(matrix: Matrix, at: At) -> None:
    for index, combination in enumerate(matrix.exclude):
        for name, value in combination.items():
            place = at.child(index).child(name)
            if name not in matrix.lists:
                hint = did_you_mean(name, matrix.lists)
                place.refuse_key(f"the matrix has no list {quoted(name)}", hint)
            elif value not in matrix.lists[name]:
                place.refuse(f"the list {name} has no {shown(value)}")
        if not combination:
            at.child(index).refuse("it leaves out nothing", "write it as {INPUT: VALUE}")


def _check_combinations(matrix: Matrix, at: At) -> None:
    first: set[str] = set()
    for item in matrix.items():
        if len(item.key) > MAX_KEY or item.key != item.key.strip() or not item.key.isprintable():
            words = f"at most {MAX_KEY} printable characters without blanks at the ends"
            at.refuse(f"the key {quoted(item.key)} must have {words}", "write shorter values")
            return
        if item.key in first:
            hint = "write values without slashes"
            at.refuse(f"two combinations have the key {quoted(item.key)}", hint)
            return
        first.add(item.key)
    if not first:
        at.refuse("every combination is left out")


def _written_items(written: Written) -> Iterator[tuple[int, Written]]:
    items = written.get("items")
    for index, item in enumerate(items if isinstance(items, list | tuple) else ()):
        if isinstance(item, Mapping):
            yield index, item


def _called(item: Written, index: int) -> str:
    key = item.get("key")
    return f"item {quoted(key)}" if isinstance(key, str) else f"item {index + 1}"
