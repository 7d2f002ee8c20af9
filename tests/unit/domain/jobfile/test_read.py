from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota.domain.calendars import Calendar, Inside
from rota.domain.errors import Invalid
from rota.domain.jobfile import read_file, read_job
from rota.domain.jobfile.text import MAX_PROBLEMS
from rota.domain.spec import Dst, Gap, InputType, Misfire, Retry, Step
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

TWO_JOBS = """\
jobs:
  - name: BuildAndTest
    schedule: "0 0 * * *"  # Every day at midnight
    run_once: false         # Run multiple times
    steps:
      - name: Set up Go
        run: go mod
      - name: Build
        run: go build -v ./...
      - name: Test
        run: go test -v ./...
  - name: NightlyCleanup
    schedule: "0 2 * * *"  # Every day at 2 AM
    run_once: true          # Run only once
    steps:
      - name: Cleanup
        run: ./cleanup_script.sh
"""

BAD_FILE = """\
jobs:
  - name: BuildAndTest
    steps:
      - name: Build
        run: go build -v ./...
    description: Builds and tests
    shedule: "0 0 * * *"

  - name: NightlyCleanup
    steps:
      - run: ./cleanup_script.sh
    schedule: "0 25 * * *"

  - name: Report
    schedule: "0 2 * *"
    steps:
      - run: ./report.sh
"""

_DIGEST = f"sha256:{'0' * 64}"


def test_the_short_file_is_read_with_one_warning() -> None:
    file = read_file(TWO_JOBS, name="jobs")

    build, cleanup = (entry.spec for entry in file.jobs)
    assert (file.set_name, file.project) == ("jobs", "default")
    assert ["./cleanup_script.sh" in each.message for each in file.warnings] == [True]
    assert [step.name for step in build.steps] == ["Set up Go", "Build", "Test"]
    assert build.schedule is not None
    assert build.schedule.expressions == ("0 0 * * *",)
    assert cleanup.schedule is not None
    assert cleanup.schedule.run_once
    assert [entry.line for entry in file.jobs] == [2, 12]


def test_all_problems_of_a_file_are_reported_in_the_order_of_its_lines() -> None:
    unknown, cleanup, impossible, warning, report = problems_in(BAD_FILE)

    assert str(unknown) == (
        '7:5  unknown key "shedule" in job BuildAndTest — did you mean "schedule"?'
    )
    assert str(impossible) == '12:15  "0 25 * * *": hour 25 does not exist (0–23)'
    assert (warning.line, warning.warning) == (15, True)
    assert warning.message == (
        '"0 2 * *" has 4 fields: second minute hour day = every hour at :02:00. '
        'For 02:00 daily: "0 2 * * *"'
    )
    assert [(each.line, each.warning) for each in (cleanup, report)] == [(11, True), (17, True)]
    assert all("fresh, empty folder" in each.message for each in (cleanup, report))


def test_full_file_is_refused_only_for_what_comes_later() -> None:
    text = (Path(__file__).parent / "full.yaml").read_text()

    problems = problems_in(text)

    assert all("is not available in this version of Rota" in it.message for it in problems)
    assert [it.path.removeprefix("jobs[0].") for it in problems] == [
        "secrets",
        "steps[1].secrets",
        "lease",
        "notify",
        "keep",
    ]


def test_calendars_of_a_file_are_read_and_jobs_name_them() -> None:
    weekends = {"name": "weekends", "windows": ["Sat,Sun"], "inside": "run_after"}

    file = read(file_of(job(schedule="@daily", calendars=["weekends"]), calendars=[weekends]))

    assert file.calendars == (Calendar("weekends", ("Sat,Sun",), inside=Inside.RUN_AFTER),)
    assert file.jobs[0].spec.schedule is not None
    assert file.jobs[0].spec.schedule.calendars == ("weekends",)


def test_wrong_window_is_told_with_its_place() -> None:
    text = """\
        calendars:
          - {name: weekends, windows: [Sat, Sunn]}
        jobs: []
        """

    assert errors_in(text) == ['2:37  "Sunn": there is no weekday "Sunn": did you mean Sun?']


def test_warnings_alone_do_not_refuse_a_file() -> None:
    file = read(file_of(job(schedule="0 2 * *")))

    assert [problem.path for problem in file.warnings] == ["jobs[0].schedule"]


def test_problem_has_the_path_of_its_value() -> None:
    text = file_of(job(), job(name="other", steps=[{"run": "x"}, {"run": "y", "timeout": "soon"}]))

    (problem,) = problems_in(text)

    assert problem.path == "jobs[1].steps[1].timeout"


def test_problem_in_one_entry_of_a_list_has_the_place_of_that_entry() -> None:
    text = """\
    jobs:
      - name: tidy
        schedule:
          - "@daily"
          - "61 * * * *"
        steps: [{run: x}]
    """

    assert errors_in(text) == ['5:9  "61 * * * *": minute 61 does not exist (0–59)']


def test_sections_inside_a_job_are_named_in_messages() -> None:
    text = file_of(job(steps=[{"run": "x", "retry": {"atempts": 3}}, {"run": "x", "shel": "sh"}]))

    assert [problem.message for problem in problems_in(text)] == [
        'unknown key "atempts" in retry of step 1 of job tidy',
        'unknown key "shel" in step 2 of job tidy',
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "the file must be a mapping, not a list"),
        ("hello", 'the file must be a mapping, not "hello"'),
        ("project: x", 'the file has no "jobs"'),
        ("jobs: {}", "jobs must be a list, not a mapping"),
        ("jobs: [1]", "jobs[0] must be a mapping, not 1"),
        ("jobs: [{steps: [{run: x}]}]", 'job 1 has no "name"'),
        ("jobs: []\njob: []", 'unknown key "job" — did you mean "jobs"?'),
        ("jobs: []\ndefaults: {nme: x}", 'unknown key "nme" in defaults'),
        ("jobs: []\ndefaults: {schedule: '@daily'}", 'unknown key "schedule" in defaults'),
        ("jobs: []\nset: a/b", "set must be a name"),
        ("jobs: [{name: a, name: b, steps: [{run: x}]}]", 'key "name" is already in line 1'),
    ],
)
def test_misshapen_file_is_refused(text: str, message: str) -> None:
    (error,) = errors_in(text)

    assert message in error


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"priority": 10}, "priority must be a whole number from 0 to 9, not 10"),
        ({"priority": 5.0}, "priority must be a whole number from 0 to 9, not 5.0"),
        ({"priority": True}, "priority must be a whole number from 0 to 9, not true"),
        ({"priority": "5"}, 'priority must be a whole number from 0 to 9, not "5"'),
        ({"priority": 10**5000}, "not a huge number"),
        ({"enabled": "yes"}, 'enabled must be true or false, not "yes" — write true'),
        ({"overlap": "skp"}, 'not "skp" — did you mean "skip"?'),
        ({"timeout": 30}, '"30" has no unit: write 30s'),
        ({"timeout": "0s"}, 'timeout must be from 1ms to 366d, not "0s"'),
        ({"timeout": "1\x1b"}, "timeout must be a duration"),
        ({"timeout": ["1h"]}, "timeout must be a duration such as 30s or 1h30m, not a list"),
        ({"log_limit": "1B"}, 'log_limit must be from 1KiB to 10GiB, not "1B"'),
        ({"log_limit": 5}, "log_limit must be a size such as 100MiB, not 5"),
        ({"timezone": "Europe/Berln"}, "did you mean Europe/Berlin?"),
        ({"timezone": "../../etc/passwd"}, "there is no time zone"),
        ({"timezone": 3}, "timezone must be the name of a time zone"),
        ({"starts": "tomorrow"}, "starts must be an ISO 8601 time"),
        ({"starts": "0001-01-01"}, "starts must be in the years 1970 to 9998"),
        ({"ends": 20260101}, "ends must be an ISO 8601 time"),
        ({"owner": 7}, 'owner must be text on one line, not 7 — put it in quotes: "7"'),
        ({"owner": "a\nb"}, "owner must not contain the character U+000A"),
        ({"owner": "a\ud800"}, "owner must not contain the character U+D800"),
        ({"owner": ""}, "owner must not be empty"),
        ({"description": "x" * 10_001}, "description is longer than 10,000 characters"),
        ({"description": "a\0"}, "description must not contain the character U+0000"),
        ({"type": "shel"}, 'did you mean "shell"?'),
        ({"isolation": "sandbx"}, 'did you mean "sandbox"?'),
        ({"source": {"path": "app"}}, 'path "app" is beside the job file, where only the command'),
        ({"source": {"path": "/a", "git": "https://x.example/y"}}, "the code comes from one place"),
        ({"source": {"upload": "sha256:0"}}, "upload must be sha256: and 64 hexadecimal digits"),
        ({"source": {"upload": {"digest": _DIGEST, "name": "../a"}}}, "name must be the name of a"),
        ({"source": {"upload": {"digest": _DIGEST, "name": ".."}}}, "name must be the name of a"),
        ({"source": {"git": "a b"}}, "git must be the address of a Git repository"),
        ({"source": {"git": {"url": "https://x.example/y", "ref": "-x"}}}, "ref must be a branch"),
        ({"env": {"1A": "x"}}, 'env name "1A" must be letters, digits and underscores'),
        ({"env": {"A": None}}, "A must be text, not nothing"),
        ({"env": ["A=1"]}, "env must be a mapping, not a list"),
        ({"env": {"A": "x" * 70_000, "B": "x" * 70_000}}, "at most 128 KiB in total"),
        ({"labels": {"a b": "x"}}, 'labels name "a b" must be'),
        ({"labels": {f"l{n}": "x" for n in range(65)}}, "labels must have at most 64 entries"),
        ({"steps": []}, "steps must have 1 to 200 entries"),
        ({"steps": [{"run": "x"}] * 201}, "steps must have 1 to 200 entries"),
        ({"steps": [{"name": "x"}]}, 'step x of job tidy has no "run"'),
        ({"steps": [{"run": ""}]}, "run must not be empty"),
        ({"steps": [{"run": "x" * (1024 * 1024 + 1)}]}, "run is longer than 1,048,576"),
        ({"steps": [{"run": []}]}, "run must have 1 to 1,000 entries"),
        ({"steps": [{"run": "x", "if": "failed"}]}, 'did you mean "failure"?'),
        ({"schedule": []}, "schedule must have 1 to 20 entries"),
        ({"schedule": ["@daily"] * 21}, "schedule must have 1 to 20 entries"),
        ({"schedule": 5}, "schedule must be a cron expression"),
        ({"schedule": "0 0 30 2 *"}, "never due"),
        ({"retry": {"jitter": 1.5}}, "jitter must be a number from 0 to 1 or a percentage"),
        ({"retry": {"jitter": "120%"}}, "jitter must be a number from 0 to 1 or a percentage"),
        ({"retry": {"jitter": float("nan")}}, "jitter must be a number from 0 to 1"),
        ({"retry": {"exit_codes": [256]}}, "exit_codes[0] must be a whole number from 0 to 255"),
        ({"retry": {"when": ["lost"]}}, "when[0] must be failed or timed_out"),
        ({"retry": 0}, "retry must be a whole number from 1 to 1,000, not 0"),
        ({"retry": True}, "retry must be a whole number or a mapping, not true"),
        ({"inputs": {"a": {"type": "file", "default": "b"}}}, "a file has no default"),
        ({"inputs": {"a": {"default": [1]}}}, "default must be text, a number, true or false"),
        ({"misfire": {"policy": "lst"}}, 'did you mean "last"?'),
    ],
    ids=by_message,
)
def test_wrong_value_is_refused_with_what_would_be_right(
    fields: dict[str, object], message: str
) -> None:
    (error,) = errors_of(**fields)

    assert message in error


@pytest.mark.parametrize(
    "name",
    [
        "../etc", "/etc", "a/b", "a*", "a?", "a>b", "a b", "a\n", "a\0", "-rf", ".hidden", "%s",
        "{{ x }}", "аdmin", "a\u202eb", "é", "", "a" * 129, "a" * 1_000_000,
    ],
    ids=lambda name: ascii(name)[:12],
)  # fmt: skip
def test_name_that_could_be_mistaken_is_refused(name: str) -> None:
    (error,) = errors_of(name=name)

    assert error.startswith("name  name ")
    assert len(error) < 300
    assert error.isprintable()


@pytest.mark.parametrize("name", ["a", "9", "BuildAndTest", "nightly-backup_2.1", "a" * 128])
def test_ordinary_name_is_accepted(name: str) -> None:
    assert spec_of(name=name).name == name


def test_name_that_is_there_twice_is_refused() -> None:
    text = file_of(job(name="a"), job(name="b"), job(name="a"))

    (problem,) = problems_in(text)

    assert problem.message == "job a is already in line 3"
    assert problem.path == "jobs[2].name"


def test_same_name_in_two_projects_is_no_repetition() -> None:
    file = read(file_of(job(name="a"), job(name="a", project="other"), project="mine"))

    assert [entry.spec.project for entry in file.jobs] == ["mine", "other"]


def test_project_is_that_of_the_job_then_the_file_then_the_caller() -> None:
    def project_of(text: str) -> str:
        return read_file(text, name="jobs", project="callers").jobs[0].spec.project

    assert project_of(file_of(job())) == "callers"
    assert project_of(file_of(job(), project="files")) == "files"
    assert project_of(file_of(job(project="own"), project="files")) == "own"


def test_set_is_named_by_the_file_itself_if_it_wants() -> None:
    assert read(file_of(job())).set_name == "jobs"
    assert read(file_of(job(), set="nightly")).set_name == "nightly"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("jobs:\n  - name: a\n    env: {A: b, ROTA_FENCE: 9}\n    steps: [{run: x}]", (3, 17)),
        ("jobs:\n  - name: a\n    steps:\n      - run: x\n        env: {ROTA_X: 9}", (5, 15)),
        ("defaults:\n  env:\n    ROTA_JOB: b\njobs: [{name: a, steps: [{run: x}]}]", (3, 5)),
    ],
)
def test_variable_that_only_rota_sets_is_refused_where_it_stands(
    text: str, place: tuple[int, int]
) -> None:
    [problem] = problems_in(text)

    assert (problem.line, problem.column) == place
    assert "only Rota sets ROTA_*" in problem.message
    assert problem.hint == "give the variable another name"


def test_variable_that_only_rota_sets_is_ignored_in_what_was_stored_before() -> None:
    env = {"ROTA_FENCE": "9", "A": "b"}

    spec = read_job({"name": "old", "env": env, "steps": [{"run": "x", "env": env}]})

    assert (spec.env, spec.steps[0].env) == ({"A": "b"}, {"A": "b"})


def test_environment_keeps_values_as_they_were_typed() -> None:
    file = read("""\
        jobs:
          - name: tidy
            env: {VERSION: 1.10, MODE: 0o755, ANSWER: yes, FLAG: True, PORT: 8080, EMPTY: ""}
            steps: [{run: [sleep, 1.0]}]
    """)

    (entry,) = file.jobs
    assert entry.spec.env == {
        "VERSION": "1.10",
        "MODE": "0o755",
        "ANSWER": "yes",
        "FLAG": "True",
        "PORT": "8080",
        "EMPTY": "",
    }
    assert entry.spec.steps[0].run == ("sleep", "1.0")


def test_every_field_of_a_job_reaches_its_spec() -> None:
    spec = spec_of(
        schedule=["0 2 * * *", "@weekly"],
        timezone="Europe/Berlin",
        starts="2026-01-01T00:00:00",
        ends="2026-12-31T23:59:59+02:00",
        dst={"gap": "skip"},
        misfire={"policy": "all", "within": "6h", "max": 7},
        retry={"attempts": 3, "backoff": "exponential", "delay": "10s", "exit_codes": [75]},
        inputs={"count": {"type": "integer", "default": 3, "help": "How many"}},
        source={"path": "/srv"},
        log_limit="1MiB",
        expect="12m",
        steps=[{"run": "x", "if": "always", "env": {"A": 1}, "interpreter": ["perl", "-w"]}],
    )

    schedule = spec.schedule
    assert schedule is not None
    assert schedule.starts == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert schedule.ends == datetime(2026, 12, 31, 21, 59, 59, tzinfo=UTC)
    assert schedule.dst == Dst(gap=Gap.SKIP)
    assert schedule.misfire.within == timedelta(hours=6)
    assert schedule.misfire.max == 7
    assert spec.retry.attempts == 3
    assert spec.retry.exit_codes == frozenset({75})
    assert (spec.path, spec.log_limit) == ("/srv", 1024 * 1024)
    assert spec.inputs["count"].type is InputType.INTEGER
    (step,) = spec.steps
    assert isinstance(step, Step)
    assert (step.name, step.condition, step.env) == ("step 1", "always", {"A": "1"})
    assert step.interpreter == ("perl", "-w")


def test_bare_number_means_attempts() -> None:
    assert spec_of(retry=3).retry == Retry(attempts=3)


def test_longest_pause_is_never_shorter_than_the_pause_asked_for() -> None:
    assert spec_of(retry={"delay": "10m"}).retry.max_delay == timedelta(minutes=10)
    assert spec_of(retry={"delay": "10s"}).retry.max_delay == timedelta(minutes=5)


@pytest.mark.parametrize(
    "fields",
    [{"schedule": "2026-06-01T22:00Z"}, {"schedule": "0 2 * * *", "run_once": True}],
    ids=str,
)
def test_time_that_comes_once_has_no_misfire_window_unless_given(
    fields: dict[str, object],
) -> None:
    def misfire(**extra: object) -> Misfire:
        schedule = spec_of(**fields, **extra).schedule
        assert schedule is not None
        return schedule.misfire

    assert misfire().within is None
    assert misfire(misfire={"policy": "first"}).within is None
    assert misfire(misfire={"within": "6h"}).within == timedelta(hours=6)


def test_empty_field_counts_as_not_written() -> None:
    assert spec_of(schedule=None) == read_job(job() | {"schedule": None, "timeout": None})


def test_document_is_json_and_gives_the_same_spec_again() -> None:
    file = read(
        file_of(
            job(name="a", retry=2, env={"A": 1}),
            job(name="b", schedule="2026-06-01T22:00Z"),
            project="mine",
            defaults={"timezone": "Europe/Berlin", "retry": {"delay": "5s"}},
        )
    )

    for entry in file.jobs:
        stored = json.loads(json.dumps(entry.document))
        assert stored == entry.document
        assert read_job(stored) == entry.spec


def test_hostile_file_reports_a_bounded_number_of_problems() -> None:
    text = file_of(job(**{f"key_{number}": 1 for number in range(5_000)}))

    problems = problems_in(text)

    assert len(problems) == MAX_PROBLEMS + 1
    assert "only the first 1,000" in problems[-1].message


def test_many_warnings_do_not_hide_an_error() -> None:
    warned = [job(name=f"w{number}", schedule="0 2 * *") for number in range(MAX_PROBLEMS + 1)]

    errors = errors_in(file_of(*warned, job(name="last", schedule="61 * * * *")))

    assert len(errors) == 1
    assert "minute 61" in errors[0]


def test_thousand_jobs_are_read_quickly() -> None:
    text = file_of(*(job(name=f"job-{n}", schedule=f"{n % 60} * * * *") for n in range(1_000)))
    started = time.process_time()

    file = read_file(text, name="jobs")

    assert len(file.jobs) == 1_000
    assert time.process_time() - started < 2  # usually 0.2 s


def test_too_many_jobs_are_refused() -> None:
    with pytest.raises(Invalid) as caught:
        read_file("jobs: [" + "{}," * 10_001 + "]", name="jobs")

    assert [problem.message for problem in caught.value.problems] == [
        "jobs must have 0 to 10,000 entries"
    ]
