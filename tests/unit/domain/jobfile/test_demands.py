"""What a job's runs take and wait for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.job import rules_of
from rota.domain.keys import READERS
from rota.domain.resources import UNIT
from rota.domain.spec import After, Follow, Input, InputType, When
from tests.unit.domain.jobfile.jobfiles import (
    by_message,
    errors_in,
    errors_of,
    file_of,
    job,
    problems_in,
    read,
    spec_of,
)

HOST = {"host": {"default": "db-1"}}
HAS_HOST = {"inputs": HOST}
ROWS = {"type": "integer", "default": 0}


def test_resources_are_kept_as_thousandths() -> None:
    spec = spec_of(resources={"cpu": 0.5, "memory": "4GiB", "pg-license": 1, "gpu": 0})

    assert spec.resources == {"cpu": 500, "memory": 4 * 1024**3 * UNIT, "pg-license": 1_000}


def test_a_writer_takes_what_all_readers_could() -> None:
    rules = rules_of(spec_of(resources={"catalog": "write", "index": "read"}), {"catalog", "index"})

    assert rules.uses == {"catalog": READERS, "index": 1}


def test_a_job_may_need_less_than_the_defaults_say() -> None:
    text = file_of(
        job(resources={"gpu": 0, "cpu": 4}), defaults={"resources": {"gpu": 1, "memory": "1GiB"}}
    )

    [entry] = read(text).jobs

    assert entry.spec.resources == {"cpu": 4_000, "memory": 1024**3 * UNIT}


def test_a_bare_name_takes_one_token() -> None:
    spec = spec_of(rate_limits=["s3-put", {"name": "api", "tokens": 3}, {"name": "mail"}])

    assert spec.rate_limits == {"s3-put": 1, "api": 3, "mail": 1}


def test_a_bare_list_names_the_jobs_to_follow() -> None:
    bounded = spec_of(schedule="@daily", after={"jobs": ["a", "b"], "within": "2h"})

    assert bounded.after == After((Follow("a"), Follow("b")), timedelta(hours=2))
    assert spec_of(after=["a", "b"]).after == After((Follow("a"), Follow("b")))


def test_a_bare_name_stays_one_in_the_document() -> None:
    [entry] = read(file_of(job(after=["a", {"job": "b", "when": "ended"}]))).jobs

    assert entry.document["after"] == {"jobs": ["a", {"job": "b", "when": "ended"}]}


def test_what_is_more_than_a_name_is_among_the_rules() -> None:
    inputs = {"rows": {"type": "integer"}, "note": {"default": "none"}}
    failed = {"job": "b", "when": "failed", "with": {"rows": "outputs.rows"}}

    rules = rules_of(spec_of(after=["a", failed], inputs=inputs | {"rows": ROWS}))

    assert rules.after == ("a", "b")
    assert rules.follow("a") == Follow("a")
    assert rules.follow("b") == Follow("b", When.FAILED, {"rows": "outputs.rows"})
    assert rules.handed == {"rows": Input(InputType.INTEGER, default=0)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resources": {"cpu": -1}}, "cpu must be a number with at most 3 decimals"),
        ({"resources": {"cpu": 0.0001}}, "cpu must be a number with at most 3 decimals"),
        ({"resources": {"cpu": True}}, "cpu must be a number with at most 3 decimals"),
        (
            {"resources": {"memory": "4 gigs"}},
            'a size such as 4GiB, or read or write, not "4 gigs"',
        ),
        ({"resources": {"catalog": "raed"}}, 'did you mean "read"?'),
        ({"resources": {"memory": 4}}, "memory must be a size such as 4GiB, not 4 — write a size"),
        ({"resources": {"slots": 2}}, "slots are not asked for: every run takes one"),
        ({"resources": {"a b": 1}}, 'resources name "a b" must be a name'),
        ({"resources": ["cpu"]}, "resources must be a mapping, not a list"),
        ({"rate_limits": [{"tokens": 1}]}, 'has no "name"'),
        ({"rate_limits": [{"name": "a", "tokens": 0}]}, "tokens must be a whole number from 1"),
        ({"rate_limits": ["a", {"name": "a"}]}, "limit a is already at rate_limits[0]"),
        ({"rate_limits": [3]}, "rate_limits[0] must be text or a mapping, not 3"),
        ({"exclusive_by": ["hots"], "inputs": HOST}, 'no input "hots" — did you mean "host"?'),
        ({"exclusive_by": ["host"]}, 'the job has no input "host" — declare it under inputs'),
        ({"exclusive_by": ["host", "host"], "inputs": HOST}, "input host is already"),
        ({"after": []}, "after must have 1 to 100 entries"),
        ({"after": "a"}, 'after must be a list or a mapping, not "a"'),
        ({"after": ["a", "a"]}, "job a is already at after[0]"),
        ({"after": {"within": "2h"}, "schedule": "@daily"}, 'after of job tidy has no "jobs"'),
        ({"after": {"jobs": ["a"], "within": "2h"}}, '"within" needs a schedule'),
        (
            {"after": ["a"], "inputs": {"host": {}}},
            'nobody gives input "host" to a run that follows a — give it a default, or a value: '
            "with: {host: outputs.KEY}",
        ),
        ({"after": [{"when": "failed"}]}, 'has no "job"'),
        ({"after": [{"job": "a", "when": "fails"}]}, 'did you mean "failed"?'),
        ({"after": ["a", {"job": "a", "when": "failed"}]}, "job a is already at after[0]"),
        (
            {"after": [{"job": "a", "when": "failed"}], "schedule": "@daily"},
            '"when: failed" does not go with a schedule',
        ),
        (
            {"after": [{"job": "a", "with": {"host": "run"}}], "schedule": "@daily"} | HAS_HOST,
            '"with" does not go with a schedule',
        ),
        (
            {"after": [{"job": "a", "with": {"hots": "run"}}]} | HAS_HOST,
            'the job has no input "hots" — did you mean "host"?',
        ),
        (
            {"after": [{"job": "a", "with": {"host": "output.name"}}]} | HAS_HOST,
            'not "output.name" — did you mean "outputs"?',
        ),
        (
            {"after": [{"job": "a", "with": {"host": "state.name"}}]} | HAS_HOST,
            'not "state.name" — write state',
        ),
        (
            {"after": [{"job": "a", "with": {"host": "outputs."}}]} | HAS_HOST,
            'not "outputs." — write outputs.KEY',
        ),
        (
            {"after": [{"job": "a", "with": {"host": "outputs.a b"}}]} | HAS_HOST,
            'not "outputs.a b" — write outputs.KEY',
        ),
        (
            {"after": [{"job": "a", "with": {"host": "artifacts.out.csv"}}]} | HAS_HOST,
            'input "host" is of type string: it cannot be an artifact — type: file, for input host',
        ),
        (
            {"after": [{"job": "a", "with": {"rows": "run"}}], "inputs": {"rows": ROWS}},
            'input "rows" must be a whole number: run is text',
        ),
    ],
    ids=by_message,
)
def test_wrong_demand_is_refused_with_what_would_be_right(
    fields: dict[str, object], message: str
) -> None:
    (error,) = errors_of(**fields)

    assert message in error


def test_a_mapping_of_one_job_is_told_to_be_a_list() -> None:
    errors = errors_of(after={"job": "a"})

    assert any("jobs stand in a list: after: [{job: NAME, when: failed}]" in it for it in errors)


def test_faulty_inputs_are_not_also_called_missing() -> None:
    (error,) = errors_of(inputs=["host"], exclusive_by=["host"])

    assert "inputs must be a mapping" in error


def test_inputs_that_due_runs_would_not_have_are_told() -> None:
    inputs = {"host": {}, "port": {"default": "22"}}

    [problem] = read(file_of(job(schedule="@daily", inputs=inputs))).warnings

    assert (problem.path, problem.message) == (
        "jobs[0].inputs.host",
        'nobody gives input "host" to runs that are due',
    )


def test_a_job_of_a_schedule_may_follow_with_inputs_to_be_given() -> None:
    spec = spec_of(schedule="@daily", after=["a"], inputs={"host": {}})

    assert spec.after.jobs == ("a",)


def test_rings_within_a_file_are_refused_where_they_close() -> None:
    text = """
        jobs:
          - {name: a, after: [b], steps: [{run: x}]}
          - name: b
            steps: [{run: x}]
            after:
              - elsewhere
              - a
    """

    [problem] = problems_in(text)

    assert problem.message == "these jobs would wait for each other: a → b → a"
    assert (problem.path, problem.line) == ("jobs[0].after[0]", 3)


def test_a_job_that_follows_itself_is_refused() -> None:
    [error] = errors_in(file_of(job(after=["tidy"])))

    assert "these jobs would wait for each other: tidy → tidy" in error
