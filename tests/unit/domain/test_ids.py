from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.domain.ids import (
    SHARD_COUNT,
    JobId,
    instant,
    is_cart_beginning,
    is_run_beginning,
    is_run_id,
    micros,
    new_job_id,
    new_run_id,
    new_run_ids,
    new_session_id,
    scheduled_run_id,
    shard_of,
    stable_fraction,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
INSTANTS = st.integers(0, micros(datetime(2200, 1, 1, tzinfo=UTC))).map(instant)


def test_ids_are_prefixed_and_made_of_plain_characters() -> None:
    for prefix, made in (("j", new_job_id()), ("w", new_session_id()), ("r", new_run_id(NOW))):
        assert re.fullmatch(rf"{prefix}_[0-9a-hjkmnp-tv-z]+", made)


def test_ids_differ() -> None:
    assert len({new_run_id(NOW) for _ in range(10_000)}) == 10_000


def test_many_runs_get_an_id_each_like_any_other() -> None:
    ids = new_run_ids(NOW, 10_000)

    assert len(set(ids)) == 10_000
    assert all(map(is_run_id, ids))
    assert {run[:13] for run in ids} == {new_run_id(NOW)[:13]}
    assert len({digit for run in ids for digit in run[13:]}) == 32
    assert new_run_ids(NOW, 0) == []
    assert len({new_job_id() for _ in range(10_000)}) == 10_000


@given(INSTANTS)
def test_the_ids_of_runs_are_known_as_such(when: datetime) -> None:
    assert is_run_id(new_run_id(when))
    assert is_run_id(scheduled_run_id(new_job_id(), when))


@given(st.text() | st.sampled_from([new_job_id(), new_run_id(NOW) + "\n", "r_" + 24 * "!"]))
def test_other_texts_are_no_ids_of_runs(text: str) -> None:
    assert not is_run_id(text)


@given(INSTANTS)
def test_micros_are_exact(when: datetime) -> None:
    assert instant(micros(when)) == when
    assert instant(micros(when) + 1) - when == timedelta(microseconds=1)


@given(INSTANTS, INSTANTS)
def test_ids_of_runs_sort_by_time(one: datetime, other: datetime) -> None:
    job = JobId("j_1")

    if one < other:
        assert scheduled_run_id(job, one) < scheduled_run_id(job, other)
        assert new_run_id(one)[:13] <= new_run_id(other)[:13]


def test_a_due_time_of_a_job_has_one_id() -> None:
    job, other = JobId("j_1"), JobId("j_2")

    assert scheduled_run_id(job, NOW) == scheduled_run_id(job, NOW)
    assert scheduled_run_id(job, NOW) != scheduled_run_id(other, NOW)
    assert scheduled_run_id(job, NOW) != scheduled_run_id(job, NOW + timedelta(microseconds=1))


@given(st.lists(st.text(), min_size=1))
def test_jitter_is_stable_and_below_one(parts: list[str]) -> None:
    assert 0.0 <= stable_fraction(*parts) < 1.0
    assert stable_fraction(*parts) == stable_fraction(*parts)


def test_jobs_spread_over_the_shards() -> None:
    assert {shard_of(f"j_{number}") for number in range(5_000)} == set(range(SHARD_COUNT))


def test_what_is_looked_for_by_its_beginning_has_a_whole_time_and_some_more() -> None:
    """Shorter ones are those of runs of all projects, and to look through them tells how many."""
    run = new_run_id(NOW)

    assert [length for length in range(len(run) + 1) if is_run_beginning(run[:length])] == [
        *range(16, len(run))
    ]
    assert not is_run_beginning("r_")
    assert [is_cart_beginning(text) for text in ("c_40p", "c_40ph", "r_40ph", "rollout")] == [
        *(False, True, False, False)
    ]
