from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.domain.errors import Invalid
from rota.domain.run import Trigger
from rota.domain.schedule.expressions import Looking, Reading
from rota.domain.schedule.zones import load_zone
from rota.domain.states import FINAL_STATES, RunState
from rota.server.gateway.filters import ACTIVE_STATES, RunFilter, parse_filter

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)


def parsed(where: str, **terms: str) -> RunFilter:
    reading = Reading(NOW, load_zone("Europe/Berlin"), Looking.BACK)
    return parse_filter(where, list(terms.items()), reading)


def errors(where: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        parsed(where)
    assert caught.value.code == "bad_filter"
    return [str(problem) for problem in caught.value.problems]


def test_an_empty_filter_wants_everything() -> None:
    assert parsed("") == RunFilter()


def test_all_terms_hold_together() -> None:
    wanted = parsed("state:failed job:nightly-* since:6h trigger:manual")

    assert wanted == RunFilter(
        states=frozenset({RunState.FAILED}),
        job_like="nightly-*",
        trigger=Trigger.MANUAL,
        since=NOW - timedelta(hours=6),
    )


def test_runs_of_a_backfill_are_named_by_its_id() -> None:
    assert parsed("backfill:b_1").backfill == "b_1"
    assert parsed("backfill:b_1", backfill="b_1") == parsed("backfill:b_1")
    assert errors("backfill:b_1 backfill:b_2") == ["where  backfill: is there twice"]


def test_case_does_not_matter() -> None:
    assert parsed("STATE:Failed Trigger:MANUAL") == parsed("state:failed trigger:manual")


def test_a_state_may_be_one_of_several() -> None:
    wanted = parsed("state:failed,timed_out")

    assert wanted.states == frozenset({RunState.FAILED, RunState.TIMED_OUT})


def test_active_means_not_final() -> None:
    assert parsed("active:true").states == ACTIVE_STATES
    assert parsed("active:false").states == FINAL_STATES


def test_states_that_exclude_one_another_want_nothing() -> None:
    assert parsed("active:true state:failed").states == frozenset()
    assert parsed("state:failed", state="completed").states == frozenset()


def test_times_are_instants_or_durations_ago() -> None:
    assert parsed("since:2026-05-01T02:00+02:00").since == datetime(2026, 5, 1, tzinfo=UTC)
    assert parsed("until:90m").until == NOW - timedelta(minutes=90)
    assert parsed("since:100w").since == NOW - timedelta(weeks=100)


def test_times_are_written_as_everywhere() -> None:
    berlin = timedelta(hours=2)

    assert parsed("since:yesterday").since == datetime(2026, 5, 3, tzinfo=UTC) - berlin
    assert parsed("since:2026-05-01").since == datetime(2026, 5, 1, tzinfo=UTC) - berlin
    assert parsed("until:11:00").until == datetime(2026, 5, 4, 11, tzinfo=UTC) - berlin


@pytest.mark.parametrize("where", ['since:"today 11:00" job:a', "since:'today 11:00' job:a"])
def test_quotes_keep_a_value_with_spaces_together(where: str) -> None:
    since = datetime(2026, 5, 4, 9, tzinfo=UTC)

    assert parsed(where) == RunFilter(job_like="a", since=since)


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("stat:failed", 'did you mean "state"?'),
        ("state:faild", 'did you mean "failed"?'),
        ("state:,", "is not a state"),
        ("trigger:cron", "schedule, manual, retry, backfill, cart, after or probe"),
        ("active:maybe", "true or false"),
        ("since:soon", "not a time: write 5m, yesterday, today 14:00"),
        ("since:5x", "is not a duration"),
        ('since:"today', "is not of the form key:value"),
        ("since:9999-99-99", "not an ISO 8601 time"),
        ("since:10000-01-01T00:00Z", "outside the years 1970 to 9999"),
        ("failed", "key:value"),
        ("job:", "key:value"),
        ("job:a job:b", "there twice"),
    ],
)
def test_what_cannot_be_read_is_named(where: str, part: str) -> None:
    assert any(part in error for error in errors(where))


def test_every_wrong_term_is_named_at_once() -> None:
    assert len(errors("stat:failed trigger:cron nonsense")) == 3


@given(st.text(st.sampled_from("statejobsince:tru,*0129hT-Z+ \x00é"), max_size=40))
def test_any_text_is_a_filter_or_invalid(where: str) -> None:
    try:
        wanted = parsed(where)
    except Invalid:
        return
    assert wanted.since is None or wanted.since.tzinfo is UTC
