from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.domain.gates import ActiveRun, JobRules, Upstream, admit, missing
from rota.domain.ids import JobId, RunId
from rota.domain.run import Reason, Trigger
from rota.domain.spec import Overlap
from rota.domain.states import RunState

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
EXTRACT = Upstream("extract")


def rules(overlap: Overlap = Overlap.ALLOW, *, is_paused: bool = False) -> JobRules:
    return JobRules(
        JobId("j_1"),
        "load",
        overlap,
        None,
        Reason("pause", "job load is paused", "pause:j_1") if is_paused else None,
        after=("extract",),
        after_within=timedelta(hours=1),
    )


def due(seq: int, state: RunState = RunState.SCHEDULED) -> ActiveRun:
    return ActiveRun(RunId(f"r_{seq}"), seq, state, Trigger.SCHEDULE)


@pytest.mark.parametrize(
    ("upstream", "is_missing"),
    [
        (Upstream("extract", NOON + SECOND), False),
        (Upstream("extract", NOON), True),
        (Upstream("extract", NOON - SECOND), True),
        (Upstream("extract"), True),
        (Upstream("extract", exists=False), True),
    ],
)
def test_an_upstream_is_missing_until_it_has_completed_since(
    upstream: Upstream, is_missing: bool
) -> None:
    assert missing([upstream], NOON) == ((upstream,) if is_missing else ())


def test_a_due_run_waits_for_all_that_is_missing_and_tells_each() -> None:
    gone = Upstream("clean", exists=False)

    admission = admit(rules(), due(1), [], missing=[EXTRACT, gone])

    assert admission.state is RunState.BLOCKED
    assert admission.blocked_on == "after:default/extract"
    assert admission.within == timedelta(hours=1)
    assert [reason.key for reason in admission.reasons] == [
        "after:default/extract",
        "after:default/clean",
    ]
    assert "no job clean" in admission.reasons[1].message


def test_a_pause_comes_before_what_is_missing() -> None:
    admission = admit(rules(is_paused=True), due(1), [], missing=[EXTRACT])

    assert [reason.gate for reason in admission.reasons] == ["pause"]


@pytest.mark.parametrize("overlap", [Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS])
def test_one_that_waits_is_superseded_and_one_that_runs_is_left_alone(overlap: Overlap) -> None:
    active = [due(1, RunState.PROCESSING), due(2, RunState.BLOCKED)]

    admission = admit(rules(overlap), due(3), active, missing=[EXTRACT])

    assert admission.blocked_on == "after:default/extract"
    assert admission.supersedes == ("r_2",)
    assert admission.cancels == ()


def test_a_due_time_is_skipped_while_another_waits_where_the_job_says_so() -> None:
    admission = admit(rules(Overlap.SKIP), due(2), [due(1, RunState.BLOCKED)], missing=[EXTRACT])

    assert (admission.state, admission.cause) == (RunState.SKIPPED, "overlap")
