from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from rota.domain.access import Role
from rota.domain.carts.definition import (
    Between,
    CartItem,
    CartRules,
    CartTemplate,
    Failures,
    ItemsFile,
    LiveWorkers,
    OnBreach,
    Order,
    Scope,
    Share,
)
from rota.domain.errors import Invalid
from rota.domain.jobfile import cart_document, json_schema, read_cart
from rota.domain.jobfile.cart_fields import BETWEEN, CART, CARTS, FAILURES, ITEM, ITEMS_FROM
from rota.domain.jobfile.carts import Referred, unknown_references
from rota.domain.jobfile.text import At, Report
from rota.domain.spec import Misfire, Schedule
from tests.unit.domain.jobfile.jobfiles import cart, errors_in, file_of, job, problems_in, read

ROWS = [row for section in (CART, ITEM, ITEMS_FROM, FAILURES, BETWEEN) for row in section.fields]
VALIDATOR = Draft202012Validator(json_schema())


def template(**fields: object) -> CartTemplate:
    return read_cart(cart(**fields))


def errors_of(**fields: object) -> list[str]:
    """The errors of a cart with these fields, each with its path."""
    with pytest.raises(Invalid) as caught:
        read_cart(cart(**fields))
    return [str(problem) for problem in caught.value.problems]


def numbered(*orders: int | None) -> list[dict[str, object]]:
    """Items with these order numbers; None for an item without."""
    keys = (chr(ord("a") + index) for index in range(len(orders)))
    return [
        {"key": key} | ({} if order is None else {"order": order})
        for key, order in zip(keys, orders, strict=True)
    ]


def matrix(*exclude: Mapping[str, object], **lists: object) -> dict[str, object]:
    """Fields of a cart whose items are combinations."""
    left_out = {"exclude": list(exclude)} if exclude else {}
    return {"items": None, "matrix": lists, **left_out}


def test_every_combination_that_is_not_left_out_is_an_item() -> None:
    left_out = ({"python": "3.11", "database": "postgres"}, {"fast": False, "python": 3.12})
    lists = {"python": ["3.11", 3.12], "database": ["sqlite", "postgres"], "fast": [True, False]}

    items = template(**matrix(*left_out, **lists)).items

    assert isinstance(items, tuple)
    assert [item.key for item in items] == [
        "3.11/sqlite/true",
        "3.11/sqlite/false",
        "3.12/sqlite/true",
        "3.12/postgres/true",
    ]
    assert items[2].inputs == {"python": 3.12, "database": "sqlite", "fast": True}


def test_all_matrices_of_a_file_are_bounded_together() -> None:
    lists = {"a": [*range(1_000)], "b": [*range(60)]}
    carts = [cart(name=name, **matrix(**lists)) for name in ("one", "two")]

    [error] = errors_in(file_of(carts=carts))

    assert "60,000 combinations, of at most 100,000 in all carts of the file" in error


def test_values_of_a_matrix_must_fit_the_job_where_they_are_written() -> None:
    tidy = job(inputs={"size": {"type": "choice", "options": ["s", "l"]}, "n": {"type": "integer"}})
    fields = matrix(size=["s", "x"], n=[1, "many"], m=[1])

    problems = problems_in(file_of(tidy, carts=[cart(job="tidy", **fields)]))

    assert {(problem.path, problem.message) for problem in problems} == {
        ("carts[0].matrix.size[1]", 'input "size" must be "s" or "l", not "x"'),
        ("carts[0].matrix.n[1]", 'input "n" must be a whole number, not "many"'),
        ("carts[0].matrix.m", 'job tidy has no input "m"'),
    }


def test_a_cart_is_read_with_its_defaults() -> None:
    assert template() == CartTemplate(
        name="rollout",
        rules=CartRules(),
        items=(CartItem("a"), CartItem("b")),
        job="tidy",
    )


def test_every_field_of_a_cart_is_read() -> None:
    given = template(
        description="Upgrade",
        labels={"tier": "db"},
        schedule="0 2 * * 6",
        timezone="Europe/Berlin",
        calendars=["weekends"],
        order="groups",
        group_size=[1, 5, "2.5%"],
        max_parallel=20,
        failures={"allow": "2%", "of": "wave", "then": "cancel", "strict": True},
        between={"wait": "5m", "check": "smoke-test", "approve": "admin"},
        rollback="downgrade",
        priority=0,
        items=[{"key": "a", "with": {"host": "db-1", "n": 2}, "job": "other"}],
    )

    assert given == CartTemplate(
        name="rollout",
        rules=CartRules(
            order=Order.GROUPS,
            group_sizes=(Share(1), Share(5), Share(Decimal("2.5"), is_percent=True)),
            max_parallel=20,
            failures=Failures(Share(Decimal(2), True), Scope.WAVE, OnBreach.CANCEL, strict=True),
            between=Between(timedelta(minutes=5), "smoke-test", "admin"),
            calendars=("weekends",),
        ),
        items=(CartItem("a", inputs={"host": "db-1", "n": 2}, job="other"),),
        order_is_written=True,
        job="tidy",
        description="Upgrade",
        labels={"tier": "db"},
        schedule=Schedule(("0 2 * * 6",), timezone="Europe/Berlin"),
        rollback="downgrade",
        priority=0,
    )


def test_a_time_that_comes_once_is_kept_however_late() -> None:
    schedule = template(schedule="2026-06-01T22:00:00+02:00").schedule

    assert schedule is not None
    assert schedule.misfire == replace(Misfire(), within=None)


def test_calendars_hold_back_waves_and_not_the_submission() -> None:
    given = template(schedule="@daily", calendars=["weekends"])

    assert given.rules.calendars == ("weekends",)
    assert given.schedule == Schedule(("@daily",))


def test_numbers_at_every_item_make_the_order_explicit() -> None:
    given = template(items=numbered(10, 10, 30))

    assert given.rules.order is Order.EXPLICIT
    assert not given.order_is_written
    assert isinstance(given.items, tuple)
    assert [item.order for item in given.items] == [10, 10, 30]


def test_items_of_a_file_decide_the_order_once_they_are_read() -> None:
    given = template(items=None, items_from="fleet.csv")

    assert given.items == ItemsFile("fleet.csv")
    assert given.rules.order is Order.SERIAL
    assert given.with_items((CartItem("a", order=3),)).rules.order is Order.EXPLICIT
    assert given.with_items((CartItem("a"),)).rules.order is Order.SERIAL


def test_items_may_be_the_live_workers() -> None:
    given = template(items=None, items_from={"workers": {"site": "fra"}})

    assert given.items == LiveWorkers({"site": "fra"})


def test_keys_typed_as_numbers_are_taken_as_typed() -> None:
    file = read("jobs: []\ncarts: [{name: c, job: j, items: [{key: 001}, {key: 1}]}]")

    items = file.carts[0].template.items
    assert isinstance(items, tuple)
    assert [item.key for item in items] == ["001", "1"]


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"name": None}, ['cart has no "name"']),
        ({"ordr": "serial"}, ['ordr  unknown key "ordr" in cart rollout — did you mean "order"?']),
        ({"order": "group"}, ["order  order must be serial, parallel or groups"]),
        ({"order": "explicit"}, ["order  order must be serial, parallel or groups"]),
        ({"order": "groups"}, ["order  order: groups needs a group_size — add one"]),
        ({"group_size": 3}, ['group_size  "group_size" needs order: groups — add order: groups']),
        ({"order": "serial", "group_size": 3}, ['group_size  "group_size" needs order: groups']),
        ({"order": "groups", "group_size": 0}, ["group_size  group_size must be a whole number"]),
        (
            {"order": "groups", "group_size": "0%"},
            ["group_size  group_size must be a whole number"],
        ),
        ({"order": "groups", "group_size": "0.00%"}, ["group_size  group_size must be"]),
        ({"order": "groups", "group_size": "101%"}, ["group_size  group_size must be"]),
        ({"order": "groups", "group_size": "100.1%"}, ["group_size  group_size must be"]),
        ({"order": "groups", "group_size": []}, ["group_size  group_size must have 1 to"]),
        ({"order": "groups", "group_size": [1, True]}, ["group_size[1]  group_size[1] must be"]),
        ({"max_parallel": 0}, ["max_parallel  max_parallel must be a whole number from 1"]),
        ({"failures": {"allow": -1}}, ["failures.allow  allow must be a whole number from 0"]),
        (
            {"failures": {"allow": "100.5%"}},
            ["failures.allow  allow must be a whole number from 0"],
        ),
        ({"failures": {"of": "waves"}}, ["failures.of  of must be cart or wave"]),
        ({"failures": {"then": "stop"}}, ["failures.then  then must be pause, cancel or continue"]),
        ({"failures": {"strict": "yes"}}, ["failures.strict  strict must be true or false"]),
        ({"between": {"wait": 5}}, ['between.wait  wait: "5" has no unit']),
        ({"between": {"approve": "viewer"}}, ["between.approve  approve must be operator, editor"]),
        ({"between": {"check": "a b"}}, ["between.check  check must be a name"]),
        ({"priority": 10}, ["priority  priority must be a whole number from 0 to 9"]),
        ({"schedule": "0 25 * * *"}, ['schedule  "0 25 * * *": hour 25 does not exist']),
        ({"timezone": "Mars"}, ["timezone  there is no time zone"]),
        ({"items": None}, ['cart rollout has neither "items" nor "items_from"']),
        ({"items": []}, ["items  items must have 1 to 100,000 entries"]),
        ({"items": [{"order": 1}]}, ['items[0]  item 1 of cart rollout has no "key"']),
        ({"items": [{"key": " a"}]}, ["items[0].key  key must be text without blanks at its ends"]),
        ({"items": [{"key": "a" * 201}]}, ["items[0].key  key is longer than 200 characters"]),
        ({"items": [{"key": "a\nb"}]}, ["items[0].key  key must be"]),
        ({"items": numbered(0)}, ["items[0].order  order must be a whole number from 1"]),
        ({"items": [{"key": "a", "with": {"b": [1]}}]}, ["items[0].with.b  b must be text"]),
        ({"items_from": "a.csv"}, ['items_from  "items" and "items_from" exclude each other']),
        ({"items": None, "items_from": "a.txt"}, ["items_from  items_from must be the path"]),
        (
            {"items": None, "items_from": {}},
            ['items_from  items_from of cart rollout has no "work'],
        ),
        (
            {"items": None, "items_from": {"worker": {}, "workers": {}}},
            ["items_from.worker  unknow"],
        ),
        ({"items": None, "items_from": 3}, ["items_from  items_from must be the path"]),
        ({"matrix": {"a": [1]}}, ['matrix  "items" and "matrix" exclude each other']),
        ({"exclude": []}, ['exclude  "exclude" needs a matrix']),
        (
            {"items": None, "matrix": {"a": [1]}, "job": None},
            ['cart rollout has no "job", which a matrix needs'],
        ),
        (matrix(), ["matrix  a matrix needs a list"]),
        (matrix(a=[]), ["matrix.a  a must have 1 to 1,000 entries"]),
        (matrix(a="x"), ["matrix.a  a must be a list"]),
        (matrix(a=[[1]]), ["matrix.a[0]  a[0] must be text, a number, true or false"]),
        (matrix(a=[1, 2, "1"]), ['matrix.a[2]  "1" is already at matrix.a[0]']),
        (matrix(**{"a-b": [1]}), ["matrix.a-b  matrix name"]),
        (matrix(a=["x/y", "x"], b=["z", "y/z"]), ['matrix  two combinations have the key "x/y/z"']),
        (matrix(a=["x" * 100], b=["y" * 100]), ["matrix  the key "]),
        (matrix(a=[" x"]), ["matrix  the key "]),
        (
            matrix(a=[*range(1_000)], b=[*range(101)]),
            ["matrix  the matrix has 101,000 combinations, of at most 100,000"],
        ),
        (
            matrix(**{name: [*range(1_000)] for name in "abcdefghij"}),
            ["matrix  the matrix has 1,000,000,"],
        ),
        (
            matrix(**{name: [1] for name in "abcdefghijk"}),
            ["matrix  matrix must have at most 10 entries"],
        ),
        (matrix({"b": 1}, a=[1, 2]), ['exclude[0].b  the matrix has no list "b"']),
        (matrix({"a": 3}, a=[1, 2]), ["exclude[0].a  the list a has no 3"]),
        (matrix({}, a=[1, 2]), ["exclude[0]  it leaves out nothing", "matrix  every comb"]),
        (matrix({"a": 1}, {"a": 2}, a=[1, 2]), ["matrix  every combination is left out"]),
        (
            matrix(*[{"a": n} for n in range(1_000)], a=[*range(1_000)], b=[*range(100)]),
            ["exclude  1,000 entries are too many for 100,000 combinations"],
        ),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_once_with_its_path(
    fields: dict[str, object], errors: list[str]
) -> None:
    found = errors_of(**fields)

    assert len(found) == len(errors), found
    for message, beginning in zip(found, errors, strict=True):
        assert message.startswith(beginning)


@pytest.mark.parametrize(
    ("value", "hint"),
    [(2.5, "for a part of the items write 2.5%"), ("5", "write 5 without quotes, or 5%")],
)
def test_a_quantity_in_the_wrong_form_is_told_with_the_right_one(value: object, hint: str) -> None:
    [error] = errors_of(failures={"allow": value})

    assert error.endswith(f" — {hint}")


def test_an_order_that_assigns_numbers_refuses_those_of_items() -> None:
    [error] = errors_of(order="serial", items=numbered(10, 20))

    assert error == (
        "items[0].order  the cart's order (serial) assigns the numbers, so its items must have "
        'none — leave out either the "order" of the cart or those of its items'
    )


def test_some_items_with_and_some_without_a_number_are_refused() -> None:
    assert errors_of(items=numbered(10, None)) == [
        'items[1]  item "b" has no order, but item "a" has — give every item a number, or none'
    ]


def test_a_job_is_needed_by_the_cart_or_by_each_item() -> None:
    own = [{"key": "a", "job": "x"}, {"key": "b", "job": "y"}]

    assert template(job=None, items=own).job == ""
    assert errors_of(job=None) == ['cart rollout has no "job" — name the job that its items run']
    assert errors_of(job=None, items=[own[0], {"key": "b"}]) == [
        'items[1]  item "b" has no "job", and neither has the cart'
    ]


@pytest.mark.parametrize("source", ["fleet.csv", {"workers": {}}], ids=str)
def test_items_that_cannot_name_jobs_need_one_of_the_cart(source: object) -> None:
    [error] = errors_of(job=None, items=None, items_from=source)

    assert error.startswith('cart rollout has no "job"')


@pytest.mark.parametrize("path", ["fleet.json", "fleet.jsonl"])
def test_items_in_json_may_name_their_own_jobs(path: str) -> None:
    assert template(job=None, items=None, items_from=path).job == ""


def test_problems_of_a_file_have_their_line_and_column() -> None:
    assert errors_in(
        """\
        jobs: []
        carts:
          - name: rollout
            job: tidy
            items:
              - {key: a}
              - {key: a}
          - name: rollout
            job: tidy
            shedule: "@daily"
            items_from: fleet.csv
          - 7
        """
    ) == [
        '7:15  key "a" is already in line 6',
        "8:11  cart rollout is already in line 3",
        '10:5  unknown key "shedule" in cart rollout — did you mean "schedule"?',
        "12:5  carts[2] must be a mapping, not 7",
    ]


def test_repeated_keys_of_a_document_without_lines_are_told_by_path() -> None:
    assert errors_of(items=[{"key": "a"}, {"key": "a"}]) == [
        'items[1].key  key "a" is already at items[0].key'
    ]


def test_a_gate_between_waves_of_a_single_one_is_warned_about() -> None:
    file = read(file_of(carts=[cart(order="parallel", between={"wait": "5m"})]))

    assert [problem.path for problem in file.warnings] == ["carts[0].between"]


def test_inputs_of_items_must_fit_a_job_of_the_same_file() -> None:
    inputs = {"host": {}, "replicas": {"type": "integer", "default": 1}}
    wrong = [
        {"key": "a", "with": {"host": "x", "replicas": "two"}},
        {"key": "b", "with": {"hots": "x"}},
        {"key": "c", "with": {"host": "x", "replicas": 2}},
    ]

    problems = problems_in(file_of(job(inputs=inputs), carts=[cart(items=wrong)]))

    assert [(problem.path, problem.message) for problem in problems] == [
        ("carts[0].items[0].with.replicas", 'input "replicas" must be a whole number, not "two"'),
        ("carts[0].items[1].with.hots", 'job tidy has no input "hots"'),
    ]
    assert all(problem.line and problem.column for problem in problems)
    assert problems[1].hint == 'did you mean "host"?'


def test_what_items_lack_may_be_given_at_submission() -> None:
    file = read(file_of(job(inputs={"host": {}}), carts=[cart(items=[{"key": "a"}])]))

    assert file.carts[0].template.items == (CartItem("a"),)


def test_a_cart_that_starts_by_itself_must_have_all_inputs() -> None:
    scheduled = cart(items=[{"key": "a"}], schedule="@daily")

    [problem] = problems_in(file_of(job(inputs={"host": {}}), carts=[scheduled]))

    assert problem.message == 'input "host" must be given'


def test_a_file_may_have_carts_only() -> None:
    file = read("carts: [{name: rollout, job: tidy, items: [{key: a}]}]")

    assert (file.jobs, len(file.carts)) == ((), 1)


def test_inputs_for_a_job_of_another_project_are_left_to_the_server() -> None:
    items = [{"key": "a", "with": {"host": "x"}}]

    file = read(file_of(job(project="other"), carts=[cart(items=items)]))

    assert len(file.carts) == 1


def test_names_of_jobs_and_calendars_are_kept_with_their_first_place() -> None:
    file = read(
        """\
        jobs: []
        carts:
          - name: rollout
            job: tidy
            items: [{key: a, job: other}, {key: b, job: other}, {key: c, job: tidy}]
            between: {check: smoke}
            rollback: undo
            calendars: [weekends]
        """
    )
    [entry] = file.carts

    assert entry.line == 3
    assert [(it.kind, it.name, it.path, it.position) for it in entry.references] == [
        (Referred.JOB, "tidy", "carts[0].job", (4, 10)),
        (Referred.JOB, "other", "carts[0].items[0].job", (5, 27)),
        (Referred.JOB, "smoke", "carts[0].between.check", (6, 22)),
        (Referred.JOB, "undo", "carts[0].rollback", (7, 15)),
        (Referred.CALENDAR, "weekends", "carts[0].calendars[0]", (8, 17)),
    ]


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    [entry] = read(file_of(carts=[cart(job="tidyy", calendars=["weekends"])])).carts
    known = {Referred.JOB: ["tidy"], Referred.CALENDAR: ["weekends"]}

    problems = unknown_references(entry.references, known)

    assert [(problem.message, problem.hint) for problem in problems] == [
        ('there is no job "tidyy"', 'did you mean "tidy"?')
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"job": None, "items": [{"key": "a", "job": "x", "order": 3, "with": {"n": 0}}]},
        {"items": None, "items_from": "sub/fleet.jsonl"},
        {"items": None, "items_from": {"workers": {}}},
        {"order": "groups", "group_size": "12.50%", "priority": 0},
        {"order": "groups", "group_size": [1, 5, "100%"], "max_parallel": 3},
        {"schedule": ["@daily", "0 12 * * 1"], "timezone": "Europe/Berlin"},
        {"failures": {"allow": 3, "of": "wave", "then": "continue", "strict": True}},
        {"between": {"wait": "1h30m", "check": "x", "approve": "editor"}, "calendars": ["w"]},
        {"description": "x", "labels": {"a": "b"}, "rollback": "undo"},
        {"title": "Обновление 数据库"},
        matrix({"a": 1, "b": "x"}, a=[1, 2.5, True], b=["x", "y"]),
    ],
    ids=str,
)
def test_a_cart_is_written_as_it_was_read(fields: dict[str, object]) -> None:
    assert cart_document(template(**fields)) == cart(**fields)
    assert read_cart(cart_document(template(**fields))) == template(**fields)


@pytest.mark.parametrize("row", [*ROWS, CARTS], ids=lambda row: row.name)
def test_field_is_documented_in_one_sentence_and_its_examples_hold(row: Any) -> None:
    report = Report()

    for example in row.examples:
        row.kind.check(example, At.root(report))

    report.raise_errors("the example")
    assert row.doc.endswith(".")
    assert ". " not in row.doc


def test_defaults_written_out_change_nothing() -> None:
    def defaults(section: Any) -> dict[str, object]:
        return {row.name: row.default for row in section.fields if row.default is not None}

    written = template(
        **defaults(CART), failures=defaults(FAILURES), between=defaults(BETWEEN), schedule="@daily"
    )

    assert defaults(CART)
    assert defaults(FAILURES)
    assert written == template(schedule="@daily")


def test_the_roles_that_approve_are_those_that_may_act() -> None:
    kind: Any = BETWEEN.by_name["approve"].kind

    assert kind.names == [str(role) for role in Role if role is not Role.VIEWER]


@pytest.mark.parametrize(
    ("fields", "is_valid"),
    [
        ({"order": "groups", "group_size": [1, "10%"]}, True),
        ({"items": None, "items_from": "fleet.csv"}, True),
        ({"items": None, "items_from": {"workers": {"site": "fra"}}}, True),
        ({"failures": {"allow": "2.5%"}}, True),
        ({"failures": {"allow": "0%"}}, True),
        ({"failures": {"allow": "250%"}}, False),
        ({"group_size": "0.0%"}, False),
        ({"group_size": 0}, False),
        ({"items": []}, False),
        ({"items_from": "fleet.txt"}, False),
        ({"odrer": "serial"}, False),
        (matrix({"a": 1}, a=[1, "x", True]), True),
        (matrix(a=[]), False),
    ],
    ids=str,
)
def test_the_schema_takes_what_the_table_takes(fields: dict[str, object], is_valid: bool) -> None:
    assert VALIDATOR.is_valid({"jobs": [], "carts": [cart(**fields)]}) is is_valid
