from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.domain.jobfile import read_job
from rota.domain.jobfile.fields import JOB
from rota.domain.jobfile.walls import WALLS_OF_JOB
from rota.domain.quantities import parse_duration
from rota.domain.spec import After, Follow
from rota.sdk.options import JobOptions, Retry, When, cron, document_of, duration_text, every

# What a job file says about code and its surroundings is settled for a function.
_SETTLED = {
    "project",
    "type",
    "external",
    "steps",
    "function",
    "source",
    "url",
    "ref",
    "task",
    "format",
    "http",
    "parameters",
    "inputs",
    "env",
    *(field.name for field in WALLS_OF_JOB),
}


def test_options_are_the_fields_of_the_job_file() -> None:
    fields = {field.name for field in JOB.available}

    assert set(JobOptions.__optional_keys__) == fields - _SETTLED


def test_cron_carries_its_time_zone() -> None:
    options: JobOptions = {"schedule": cron("0 2 * * *", tz="Europe/Berlin")}

    assert document_of(options) == {"schedule": "0 2 * * *", "timezone": "Europe/Berlin"}


def test_interval_may_be_text_or_a_timedelta() -> None:
    schedules: list[When | str] = [every("10s"), every(timedelta(minutes=2)), "@daily"]

    assert document_of({"schedule": schedules}) == {
        "schedule": ["every 10s", "every 120s", "@daily"]
    }


def test_two_time_zones_in_one_schedule_are_refused() -> None:
    options: JobOptions = {"schedule": [cron("0 2 * * *", tz="UTC"), cron("0 3 * * *", tz="CET")]}

    with pytest.raises(ValueError, match="one time zone, not CET and UTC"):
        document_of(options)


def test_demands_are_those_of_the_job_file() -> None:
    options: JobOptions = {
        "resources": {"cpu": 0.5, "memory": "1GiB", "catalog": "read"},
        "rate_limits": ["uploads", {"name": "mail", "tokens": 2}],
        "exclusive_by": ("target",),
        "schedule": "@daily",
        "after": {"jobs": ["vacuum"], "within": timedelta(hours=2)},
    }
    function = {"name": "backup", "type": "python", "function": "f", "inputs": {"target": {}}}

    spec = read_job(function | document_of(options))

    assert spec.resources == {"cpu": 500, "memory": 1024**3 * 1_000, "catalog": 1_000}
    assert spec.rate_limits == {"uploads": 1, "mail": 2}
    assert spec.exclusive_by == ("target",)
    assert spec.after == After((Follow("vacuum"),), timedelta(hours=2))


def test_values_of_python_become_those_of_the_job_file() -> None:
    options: JobOptions = {
        "timeout": timedelta(hours=1),
        "starts": datetime(2026, 1, 1, tzinfo=UTC),
        "misfire": {"policy": "all", "within": timedelta(days=1)},
        "retry": Retry(3, backoff="exponential", delay=timedelta(seconds=1), when=["failed"]),
    }

    assert document_of(options) == {
        "timeout": "3600s",
        "starts": "2026-01-01T00:00:00+00:00",
        "misfire": {"policy": "all", "within": "86400s"},
        "retry": {
            "attempts": 3,
            "backoff": "exponential",
            "delay": "1s",
            "when": ["failed"],
        },
    }


@pytest.mark.parametrize(
    "duration",
    [timedelta(microseconds=1), timedelta(milliseconds=1500), timedelta(days=400), timedelta(0)],
)
def test_duration_is_written_so_that_the_server_reads_the_same(duration: timedelta) -> None:
    assert parse_duration(duration_text(duration)) == duration


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        (0, 'write a duration such as "10s" or a timedelta, not 0'),
        (timedelta(0), "the smallest interval is 100ms, not 0s"),
        (timedelta(seconds=-5), "the smallest interval is 100ms, not -5s"),
    ],
    ids=str,
)
def test_interval_that_cannot_be_is_told_at_once(interval: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        every(interval)
