from __future__ import annotations

from datetime import timedelta

from rota.domain.spec import Backoff, JobSpec
from tests.unit.domain.jobfile.jobfiles import errors_in, file_of, job, read


def merged(defaults: dict[str, object], **fields: object) -> JobSpec:
    (entry,) = read(file_of(job() | fields, defaults=defaults)).jobs
    return entry.spec


def test_job_takes_what_it_does_not_say_from_the_defaults() -> None:
    spec = merged({"timeout": "1h", "priority": 7}, priority=2)

    assert (spec.timeout, spec.priority) == (timedelta(hours=1), 2)


def test_mappings_are_merged_key_by_key() -> None:
    spec = merged(
        {"env": {"A": "1", "B": "2"}, "retry": {"attempts": 3, "backoff": "exponential"}},
        env={"B": "3"},
        retry=5,
    )

    assert spec.env == {"A": "1", "B": "3"}
    assert (spec.retry.attempts, spec.retry.backoff) == (5, Backoff.EXPONENTIAL)


def test_field_left_empty_takes_no_default() -> None:
    assert merged({"timeout": "1h"}, timeout=None).timeout is None


def test_type_may_be_a_default() -> None:
    text = file_of(
        {"name": "a", "function": "payouts.daily"}, defaults={"type": "python", "pool": "py"}
    )

    (entry,) = read(text).jobs

    assert (entry.spec.function, entry.spec.pool) == ("payouts.daily", "py")


def test_fault_in_the_defaults_is_reported_once_and_there() -> None:
    text = """\
    defaults:
      timezone: Nowhere/City
      overlap: never
    jobs:
      - {name: a, schedule: "@daily", steps: [{run: x}]}
      - {name: b, schedule: "@daily", steps: [{run: x}]}
    """

    errors = errors_in(text)

    assert [error.split()[0] for error in errors] == ["2:13", "3:12"]
