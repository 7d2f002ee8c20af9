from __future__ import annotations

import json
from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from rota.domain.calendars import Calendar, Holidays, Inside
from rota.domain.errors import Invalid
from rota.domain.jobfile.calendars import (
    CALENDAR,
    CALENDARS,
    CALENDARS_OF_JOB,
    HOLIDAYS,
    build_calendar,
    calendar_document,
    check_calendars,
    read_calendar,
    unknown_calendars,
)
from rota.domain.jobfile.sections import Section
from rota.domain.jobfile.text import At, Position, Report, parse_text

FILE = Section("", (CALENDARS,))
ROWS = (*CALENDAR.fields, *HOLIDAYS.fields, CALENDARS, CALENDARS_OF_JOB)


def calendar(**fields: object) -> dict[str, object]:
    """A small valid calendar with some fields set; `None` takes a field away."""
    document: dict[str, object] = {"name": "quiet", "windows": ["Sat"], **fields}
    return {name: value for name, value in document.items() if value is not None}


def read(document: object) -> Calendar:
    return read_calendar(json.dumps(document))


def errors_of(**fields: object) -> list[str]:
    with pytest.raises(Invalid) as caught:
        read(calendar(**fields))
    return [str(replace(problem, line=None, column=None)) for problem in caught.value.problems]


def errors_in(text: str) -> list[str]:
    """The errors of a file that has nothing but calendars."""
    source = parse_text(dedent(text))
    report = Report(source.problems)
    root = At.root(report, source.mark)
    file = FILE.check(source.data, root)
    assert isinstance(file, dict)
    check_calendars(file, source.data, root)
    with pytest.raises(Invalid) as caught:
        report.raise_errors("the job file")
    return [str(problem) for problem in caught.value.problems]


def test_a_calendar_is_read_with_its_defaults() -> None:
    assert read({"name": "quiet", "windows": ["Sat,Sun"]}) == Calendar(
        name="quiet",
        windows=("Sat,Sun",),
        timezone="UTC",
        holidays=None,
        inside=Inside.SKIP,
    )


def test_every_field_of_a_calendar_is_read() -> None:
    pytest.importorskip("holidays", reason="the extra `holidays` is not installed")

    given = read(
        {
            "name": "quiet",
            "windows": ["Sat,Sun 00:00-24:00"],
            "timezone": "Europe/Berlin",
            "holidays": {"country": "DE", "subdivision": "BY"},
            "inside": "run_after",
        }
    )

    assert given == Calendar(
        name="quiet",
        windows=("Sat,Sun 00:00-24:00",),
        timezone="Europe/Berlin",
        holidays=Holidays("DE", "BY"),
        inside=Inside.RUN_AFTER,
    )


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"name": None}, ['calendar has no "name"']),
        ({"name": "a/b"}, ["name  name must be a name of at most 128"]),
        ({"window": ["Sat"]}, ['window  unknown key "window" in calendar quiet — did you mean']),
        ({"windows": "Sat"}, ['windows  windows must be a list, not "Sat"']),
        ({"windows": None}, ["neither windows nor holidays"]),
        ({"windows": []}, ["neither windows nor holidays"]),
        ({"windows": ["Sat", 3]}, ["windows[1]  windows[1] must be a window such as"]),
        ({"windows": ["daily"]}, ["windows  no run could start for five years"]),
        ({"inside": "run_afer"}, ["inside  inside must be skip or run_after"]),
        ({"holidays": {}}, ['holidays  holidays of calendar quiet has no "country"']),
        (
            {"windows": None, "holidays": {"country": "Germany"}},
            ["holidays.country  country is longer than 2 characters"],
        ),
        (
            {"windows": ["Sat", "Satt"], "timezone": "Europe/Berln"},
            ['windows[1]  "Satt": there is no weekday', "timezone  there is no time zone"],
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


def test_a_document_that_is_no_mapping_is_refused() -> None:
    document: Any = ["Sat"]

    with pytest.raises(Invalid):
        read(document)


def test_problems_of_a_file_have_their_line_and_column() -> None:
    assert errors_in(
        """\
        calendars:
          - name: weekends
            windows: [Sat, Sunn]
          - name: weekends
            windows:
              - Sat
            timezone: Mars
          - windows: [Sat]
        """
    ) == [
        '3:20  "Sunn": there is no weekday "Sunn": did you mean Sun?',
        "4:11  calendar weekends is already in line 2",
        '7:15  there is no time zone "Mars": write an IANA name such as UTC',
        '8:5  calendar 3 has no "name"',
    ]


def test_a_name_repeated_in_one_line_is_found() -> None:
    documents = [calendar(), calendar()]

    assert errors_in(json.dumps({"calendars": documents})) == [
        "1:64  calendar quiet is already in line 1"
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"name": "quiet", "windows": ["Sat"]},
        {"name": "quiet", "windows": ["Sat"], "timezone": "Europe/Berlin", "inside": "run_after"},
        {"name": "quiet", "holidays": {"country": "DE"}},
        {"name": "quiet", "holidays": {"country": "DE", "subdivision": "BY"}},
    ],
    ids=str,
)
def test_a_calendar_is_written_as_it_was_read(document: dict[str, object]) -> None:
    assert calendar_document(build_calendar(document)) == document


def test_unknown_names_are_refused_with_the_nearest_one() -> None:
    positions = [Position(3, 17), Position(3, 27)]

    problems = unknown_calendars(["weekends", "weekend"], positions, {"weekends", "nights"})

    assert [str(problem) for problem in problems] == [
        '3:27  there is no calendar "weekend" — did you mean "weekends"?'
    ]


def test_a_text_may_leave_its_name_to_the_address_but_not_contradict_it() -> None:
    assert read_calendar("windows: [Sat]", name="quiet") == read(calendar())

    with pytest.raises(Invalid) as caught:
        read_calendar("windows: [Sat]\nname: loud", name="quiet")

    assert [str(problem) for problem in caught.value.problems] == [
        "2:7  the address says quiet — leave one out"
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_field_is_documented_in_one_sentence_and_its_examples_hold(row: Any) -> None:
    report = Report()

    for example in row.examples:
        row.kind.check(example, At.root(report))

    report.raise_errors("the example")
    assert row.doc.endswith(".")
    assert ". " not in row.doc


def test_every_example_of_windows_is_a_calendar() -> None:
    for example in CALENDAR.by_name["windows"].examples:
        assert read(calendar(windows=example)) != read(calendar())


def test_defaults_written_out_change_nothing() -> None:
    defaults = {row.name: row.default for row in CALENDAR.fields if row.default is not None}

    assert defaults
    assert read(calendar(**defaults)) == read(calendar())


def test_the_schema_takes_what_the_table_takes() -> None:
    sections = {section.title: section.definition() for section in (CALENDAR, HOLIDAYS)}
    validator = Draft202012Validator({**CALENDAR.schema(), "$defs": sections})

    assert validator.is_valid(calendar(holidays={"country": "DE"}, inside="run_after"))
    assert not validator.is_valid(calendar(inside="later"))
    assert not validator.is_valid(calendar(holidays={"country": "Germany"}))
