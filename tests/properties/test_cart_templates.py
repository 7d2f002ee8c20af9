"""Whatever is thrown at it, reading carts and files of items ends in a template or in `Invalid`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from rota.domain.carts.definition import CartItem, ItemsFile
from rota.domain.carts.items import Demands, read_items
from rota.domain.errors import Invalid, Problem
from rota.domain.jobfile import cart_document, json_schema, read_cart, read_file, read_job, to_block
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM, ITEMS_FROM
from rota.domain.spec import JobSpec

SECTIONS = (CART, ITEM, ITEMS_FROM, FAILURES, BETWEEN)
FIELDS = sorted({row.name for part in SECTIONS for row in part.fields})
VALIDATOR = Draft202012Validator(json_schema())
SPEC = read_job(
    {
        "name": "tidy",
        "steps": [{"run": "x"}],
        "inputs": {"text": {"default": ""}, "count": {"type": "integer", "default": 1}},
    }
)
CSV, JSON = ItemsFile("fleet.csv"), ItemsFile("fleet.json")

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
PRINTABLE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=30)
ITEM_KEYS = PRINTABLE.map(str.strip).filter(bool)
PERCENTAGES = st.decimals("0.01", 100, places=2).map(lambda number: f"{number}%")
SIZES = st.integers(1, 100_000) | PERCENTAGES
VARIABLES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
INPUTS = st.dictionaries(VARIABLES, PRINTABLE | st.integers(-9, 9) | st.booleans(), max_size=3)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["groups", "serial", "5%", "0%", "10m", "@daily", "a.csv", "admin", "k"])
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=20,
)


@st.composite
def items(draw: st.DrawFn) -> list[dict[str, object]]:
    keys = draw(st.lists(ITEM_KEYS, min_size=1, max_size=5, unique=True))
    has_numbers = draw(st.booleans())
    number = {"order": st.integers(1, 1_000_000_000)} if has_numbers else {}
    optional = {"with": INPUTS, "job": NAMES}
    return [{"key": key, **draw(st.fixed_dictionaries(number, optional=optional))} for key in keys]


@st.composite
def carts(draw: st.DrawFn) -> dict[str, object]:
    source = draw(
        st.fixed_dictionaries({"items": items()})
        | st.fixed_dictionaries({"items_from": st.sampled_from(["fleet.csv", "sub/fleet.json"])})
        | st.fixed_dictionaries(
            {"items_from": st.fixed_dictionaries({"workers": st.dictionaries(NAMES, NAMES)})}
        )
    )
    listed = source.get("items")
    is_numbered = isinstance(listed, list) and "order" in listed[0]
    order = {} if is_numbered else draw(ORDERS)
    return {"name": draw(NAMES), "job": draw(NAMES), **source, **order, **draw(RULES)}


GROUPS = {
    "order": st.just("groups"),
    "group_size": SIZES | st.lists(SIZES, min_size=1, max_size=4),
}
ORDERS: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.fixed_dictionaries({}, optional={"order": st.sampled_from(["serial", "parallel"])}),
    st.fixed_dictionaries(GROUPS),
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "description": PRINTABLE,
        "labels": st.dictionaries(NAMES, NAMES, max_size=3),
        "schedule": st.sampled_from(["0 2 * * *", "2026-06-01T22:00", ["@daily", "5 4 * * 1"]]),
        "timezone": st.sampled_from(["UTC", "Europe/Berlin"]),
        "calendars": st.lists(NAMES, max_size=3),
        "max_parallel": st.integers(1, 100_000),
        "failures": st.fixed_dictionaries(
            {},
            optional={
                "allow": st.integers(0, 100_000) | PERCENTAGES,
                "of": st.sampled_from(["cart", "wave"]),
                "then": st.sampled_from(["pause", "cancel", "continue"]),
                "strict": st.booleans(),
            },
        ),
        "between": st.fixed_dictionaries(
            {},
            optional={
                "wait": st.integers(0, 3_600_000).map(lambda number: f"{number}ms"),
                "check": NAMES,
                "approve": st.sampled_from(["operator", "editor", "admin"]),
            },
        ),
        "rollback": NAMES,
        "priority": st.integers(0, 9),
    },
)


def problems_of(read: Callable[[], object]) -> tuple[Problem, ...]:
    """Every problem of what was read; none when it was accepted."""
    try:
        read()
    except Invalid as error:
        return error.problems or (Problem("refused without a reason"),)
    return ()


def is_clear(problem: Problem) -> bool:
    return problem.message.isprintable() and 5 < len(problem.message) < 500


def demands(*specs: JobSpec) -> Demands:
    return Demands("tidy", order_is_written=False, specs={spec.name: spec for spec in specs})


@settings(max_examples=60)
@given(carts())
def test_a_valid_template_round_trips(document: dict[str, object]) -> None:
    template = read_cart(document)

    written = cart_document(template)

    assert read_cart(json.loads(json.dumps(written))) == template
    [entry] = read_file(to_block({"jobs": [], "carts": [written]}), name="jobs").carts
    assert entry.template == template


@settings(max_examples=60)
@given(carts())
def test_a_valid_cart_passes_the_schema(document: dict[str, object]) -> None:
    read_cart(document)

    assert VALIDATOR.is_valid({"jobs": [], "carts": [document]})


@settings(max_examples=60)
@given(st.lists(ANYTHING, min_size=1, max_size=3))
def test_any_carts_are_read_or_refused_with_the_place(documents: list[object]) -> None:
    text = json.dumps({"jobs": [], "carts": documents}, indent=1)

    problems = problems_of(lambda: read_file(text, name="jobs"))

    assert all(is_clear(problem) and problem.line and problem.column for problem in problems)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=8))
def test_any_fields_of_a_cart_are_read_or_refused(fields: dict[str, object]) -> None:
    document = {"name": "x", "job": "tidy", "items": [{"key": "a"}], **fields}

    problems = problems_of(lambda: read_cart(document))

    assert all(is_clear(problem) for problem in problems)


@given(
    st.text() | st.text("key,orde;\"'\n\r\t []{}:1\\", max_size=80), st.sampled_from([CSV, JSON])
)
def test_any_text_is_a_file_of_items_or_refused(text: str, file: ItemsFile) -> None:
    lines = text.splitlines(keepends=True)

    problems = problems_of(lambda: list(read_items(lines, file, demands(SPEC))))

    assert all(is_clear(problem) for problem in problems)


@settings(max_examples=60)
@given(st.lists(ANYTHING, max_size=4), st.sampled_from([None, 1]))
def test_any_list_is_a_file_of_items_or_refused(values: list[object], indent: int | None) -> None:
    lines = json.dumps(values, indent=indent).splitlines(keepends=True)

    problems = problems_of(lambda: list(read_items(lines, JSON, demands(SPEC))))

    assert all(is_clear(problem) and problem.line for problem in problems)


@settings(max_examples=60)
@given(items(), st.sampled_from([None, 1]), st.booleans())
def test_items_written_as_json_read_back(
    documents: list[dict[str, object]], indent: int | None, as_lines: bool
) -> None:
    text = (
        "".join(f"{json.dumps(document)}\n" for document in documents)
        if as_lines
        else json.dumps(documents, indent=indent)
    )

    found = list(read_items(text.splitlines(keepends=True), JSON, demands()))

    assert tuple(found) == read_cart({"name": "x", "job": "tidy", "items": documents}).items


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(ITEM_KEYS, st.text("ab,\"'\n ;", min_size=1).filter(lambda it: it == it.strip())),
        min_size=1,
        unique_by=lambda row: row[0],
    )
)
def test_items_written_as_a_table_read_back(rows: list[tuple[str, str]]) -> None:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([("key", "text"), *rows])
    lines = io.StringIO(written.getvalue(), newline="")

    found = list(read_items(lines, CSV, demands(SPEC)))

    assert found == [CartItem(key, inputs={"text": text}) for key, text in rows]
