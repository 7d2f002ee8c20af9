from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from rota.domain.jobfile import json_schema, read_file, read_job
from rota.domain.spec import Backoff, Probe, Retry
from tests.unit.domain.jobfile.jobfiles import (
    by_message,
    errors_in,
    errors_of,
    file_of,
    job,
    read,
    spec_of,
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": None}, 'job tidy has no "steps", which type shell needs'),
        ({"type": "python"}, '"steps" does not go with type python'),
        ({"type": "python", "steps": None}, 'has no "function", which type python needs'),
        ({"function": "f"}, '"function" does not go with type shell'),
        (
            {"schedule": "@daily", "starts": "2026-02-01", "ends": "2026-01-01"},
            "ends  ends before it starts",
        ),
        (
            {"schedule": "@daily", "interval_from": "completion"},
            "interval_from  completion needs exactly one interval",
        ),
        ({"late": "drop"}, "late  nothing is too late without start_within"),
        (
            {"probe": "./paid.sh"},
            "probe  a probe is asked about runs that are UNKNOWN, which only at_most_once leaves — "
            "add delivery: at_most_once, or leave the probe out",
        ),
        (
            {
                "probe": {"run": "x", "delay": "10s", "max_delay": "5s"},
                "delivery": "at_most_once",
            },
            "probe.max_delay  max_delay is shorter than delay",
        ),
        (
            {"probe": {"timeout": "1s"}, "delivery": "at_most_once"},
            'probe of job tidy has no "run"',
        ),
        ({"retry": {"delay": "10s", "max_delay": "5s"}}, "max_delay is shorter than delay"),
        (
            {"steps": [{"run": "x", "retry": {"delay": "10s", "max_delay": "5s"}}]},
            "steps[0].retry.max_delay  max_delay is shorter than delay",
        ),
        (
            {"inputs": {"host": {}, "HOST": {}}},
            'inputs "host" and "HOST" would both be the variable INPUT_HOST',
        ),
        ({"inputs": {"n": {"default": 5}}}, "default must be text, not 5 — put it in quotes"),
        (
            {"inputs": {"n": {"type": "integer", "default": "5"}}},
            'inputs.n.default  default must be a whole number, not "5"',
        ),
        (
            {"inputs": {"n": {"type": "integer", "default": True}}},
            "default must be a whole number, not true",
        ),
        (
            {"inputs": {"n": {"type": "boolean", "default": 1}}},
            "default must be true or false, not 1",
        ),
    ],
    ids=by_message,
)
def test_fields_that_do_not_go_together_are_refused(
    fields: dict[str, object], message: str
) -> None:
    assert any(message in error for error in errors_of(**fields))


def test_unknown_type_is_not_blamed_for_its_missing_parts() -> None:
    (error,) = errors_of(type="Shel", steps=None)

    assert "type must be" in error


def test_faulty_objective_is_not_called_missing() -> None:
    (error,) = errors_of(late="drop", start_within="soon")

    assert "start_within" in error


def test_bound_in_a_gap_is_told_as_what_it_becomes() -> None:
    bound = {"timezone": "Europe/Berlin", "schedule": "@daily", "starts": "2027-03-28T02:30"}

    file = read(file_of(job(**bound)))

    [warning] = file.warnings
    assert warning.path == "jobs[0].starts"
    assert "it counts as 2027-03-28T03:00:00+02:00" in warning.message
    schedule = file.jobs[0].spec.schedule
    assert schedule is not None
    assert schedule.starts == datetime(2027, 3, 28, 1, tzinfo=UTC)


def test_faulty_zone_does_not_hide_a_faulty_expression() -> None:
    errors = errors_in(file_of(job(timezone="Nowhere", schedule="61 * * * *")))

    assert len(errors) == 2


def test_faulty_field_does_not_make_up_further_faults() -> None:
    (error,) = errors_of(steps=["echo"], inputs={"n": {"type": "integer"}})

    assert "steps[0] must be a mapping" in error


def test_whole_number_is_a_number_too() -> None:
    assert spec_of(inputs={"n": {"type": "number", "default": 5}}).inputs["n"].default == 5


@pytest.mark.parametrize(
    "title",
    ["Köln", "月次レポート", "التقرير الشهري", "नमस्\u200dते", "👩\u200d🚀 launch", "x" * 120],
)
def test_titles_are_of_any_script(title: str) -> None:
    spec = spec_of(title=title, steps=[{"run": "true", "title": title}])

    assert (spec.title, spec.steps[0].title) == (title, title)


@pytest.mark.parametrize(
    ("title", "message"),
    [
        ("a\u202eb", "title must not contain U+202E, which is not seen"),
        ("\u2066a", "U+2066"),
        ("a\ufeff", "U+FEFF"),
        ("a\u00adb", "U+00AD"),
        ("a\U000e0041", "U+E0041"),
        ("a\x1b[2J", "must not contain the character U+001B"),
        ("a\nb", "must not contain the character U+000A"),
        ("a\u2028b", "must not contain the character U+2028"),
        (" a", "title must not begin or end with a blank"),
        ("", "title must not be empty"),
        ("x" * 121, "title is longer than 120 characters"),
        (["a"], "title must be text on one line, not a list"),
    ],
)
def test_titles_change_nothing_around_them(title: object, message: str) -> None:
    (error,) = errors_of(title=title)

    assert message in error


@pytest.mark.parametrize("folder", ["src", "src/app", "a b/ü", "..a/b..", "src/"])
def test_folders_of_steps_are_below_the_work_folder(folder: str) -> None:
    spec = spec_of(steps=[{"run": "true", "folder": folder}])

    assert spec.steps[0].folder == folder.removesuffix("/")
    assert is_schematic(folder)


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("/srv", "a folder of the worker is source: {path: /FOLDER}"),
        ("..", "folder must not lead out of the work folder — leave out .."),
        ("a/../../b", "folder must not lead out of the work folder"),
        ("./a", "write its names with one slash between them: src/app"),
        ("a//b", "write its names with one slash"),
        ("a/.", "write its names with one slash"),
        ("a\0b", "must not contain the character U+0000"),
        ("", "folder must not be empty"),
    ],
)
def test_folders_that_lead_elsewhere_are_refused(folder: str, message: str) -> None:
    (error,) = errors_of(steps=[{"run": "true", "folder": folder}])

    assert message in error
    assert not is_schematic(folder)


def is_schematic(folder: str) -> bool:
    document = {"jobs": [job(steps=[{"run": "true", "folder": folder}])]}
    return Draft202012Validator(json_schema()).is_valid(document)


def test_a_bare_script_is_the_probe() -> None:
    spec = spec_of(probe="./paid.sh", delivery="at_most_once")

    assert spec.probe == Probe("./paid.sh")
    assert spec.probe.retry == Retry(
        10, Backoff.EXPONENTIAL, timedelta(seconds=5), timedelta(minutes=5)
    )


def test_a_job_of_type_http_has_a_status_call_in_place_of_a_probe() -> None:
    http = {"submit": {"url": "https://pay.example/runs"}}

    errors = errors_of(
        type="http", steps=None, http=http, probe="./paid.sh", delivery="at_most_once"
    )

    assert "has no probe" in "".join(errors)


@pytest.mark.parametrize(
    "job",
    [
        {"type": "python", "function": "f"},
        {"type": "http", "http": {"submit": {"url": "https://a.example.org/"}}},
        {"type": "external", "timeout": "1h"},
        {"type": "ticket"},
    ],
)
def test_who_waits_for_exit_codes_where_there_are_none_is_warned(job: dict[str, Any]) -> None:
    written = {"name": "a", "retry": {"attempts": 2, "exit_codes": [75]}, **job}

    [warning] = read_file(json.dumps({"jobs": [written]}), name="f").warnings

    assert warning.path == "jobs[0].retry.exit_codes"
    assert f"failures of type {job['type']} have no exit code" in warning.message
    assert read_job(written).retry.exit_codes == frozenset({75})  # as an earlier release stored it
