from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rota.domain.retry import Ending, Verdict, attempt_ended, backoff, goes_alone
from rota.domain.run import AttemptResult
from rota.domain.spec import Backoff, Delivery, Retry
from rota.domain.states import RunEvent, RunState

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NO_RETRY = Retry()
FAILED = Ending(RunState.PROCESSING, AttemptResult.FAILED, NOW, exit_code=1)
LOST = Ending(RunState.PROCESSING, AttemptResult.LOST, NOW)


def decide(ending: Ending, policy: Retry = NO_RETRY, max_losses: int = 3) -> Verdict:
    return attempt_ended(ending, policy, max_losses, fraction=0.0)


def test_success_completes_the_run_even_if_somebody_wanted_to_cancel_it() -> None:
    ending = replace(FAILED, result=AttemptResult.COMPLETED, is_cancel_requested=True)

    assert decide(ending).state is RunState.COMPLETED


def test_a_failure_without_retries_is_final_and_names_its_cause() -> None:
    assert decide(FAILED) == Verdict(RunEvent.GAVE_UP, RunState.FAILED, "exit 1")
    assert decide(replace(FAILED, exit_code=None, signal=9)).cause == "signal 9"
    assert decide(replace(FAILED, exit_code=None)).cause == "error"


def test_silence_is_a_timeout_with_a_cause_of_its_own() -> None:
    silent = replace(FAILED, result=AttemptResult.TIMED_OUT, exit_code=None, cause="stalled")

    assert decide(silent) == Verdict(RunEvent.RAN_OUT, RunState.TIMED_OUT, "stalled")
    assert decide(silent, Retry(attempts=2)).state is RunState.SCHEDULED
    assert decide(silent, Retry(attempts=2, when=frozenset({"failed"}))).cause == "stalled"
    assert decide(replace(silent, cause="anything")).cause == "timeout"


def test_attempts_are_counted_in_total() -> None:
    policy = Retry(attempts=3)

    states = [decide(replace(FAILED, failures=failures), policy).state for failures in range(4)]

    assert states == [RunState.SCHEDULED] * 2 + [RunState.FAILED] * 2


def test_losses_do_not_count_as_failures() -> None:
    verdict = decide(replace(FAILED, losses=5), Retry(attempts=2))

    assert verdict.state is RunState.SCHEDULED


@pytest.mark.parametrize(
    ("policy", "ending", "state"),
    [
        (Retry(attempts=2, when=frozenset({"timed_out"})), FAILED, RunState.FAILED),
        (Retry(attempts=2, exit_codes=frozenset({75})), FAILED, RunState.FAILED),
        (Retry(attempts=2, exit_codes=frozenset({1})), FAILED, RunState.SCHEDULED),
        (
            Retry(attempts=2, exit_codes=frozenset({75})),
            replace(FAILED, result=AttemptResult.TIMED_OUT),
            RunState.SCHEDULED,
        ),
        (
            Retry(attempts=2, when=frozenset({"failed"})),
            replace(FAILED, result=AttemptResult.TIMED_OUT),
            RunState.TIMED_OUT,
        ),
    ],
)
def test_only_what_the_policy_names_is_tried_again(
    policy: Retry, ending: Ending, state: RunState
) -> None:
    assert decide(ending, policy).state is state


def test_no_attempt_begins_at_or_after_the_deadline() -> None:
    policy = Retry(attempts=2, delay=MINUTE)
    just_in_time = NOW + MINUTE + timedelta(microseconds=1)

    too_late = decide(replace(FAILED, deadline_at=NOW + MINUTE), policy)
    in_time = decide(replace(FAILED, deadline_at=just_in_time), policy)

    assert (too_late.state, in_time.state) == (RunState.FAILED, RunState.SCHEDULED)


def test_a_failure_after_a_cancel_is_a_cancel() -> None:
    verdict = decide(replace(FAILED, is_cancel_requested=True), Retry(attempts=9))

    assert (verdict.state, verdict.eligible_at) == (RunState.CANCELLED, None)


def test_a_lost_worker_means_a_new_attempt_at_once() -> None:
    verdict = decide(LOST)

    assert (verdict.state, verdict.cause, verdict.eligible_at) == (RunState.SCHEDULED, "lost", NOW)


def test_a_run_survives_max_losses_and_no_more() -> None:
    states = [decide(replace(LOST, losses=losses), max_losses=2).state for losses in range(3)]

    assert states == [RunState.SCHEDULED, RunState.SCHEDULED, RunState.FAILED]
    assert decide(replace(LOST, losses=2), max_losses=2).cause == "poison"


@pytest.mark.parametrize("max_losses", range(1, 6))
def test_the_loss_that_decides_happened_alone(max_losses: int) -> None:
    losses = range(max_losses + 1)
    states = [decide(replace(LOST, losses=n), max_losses=max_losses).state for n in losses]

    deciding = states.index(RunState.FAILED)

    assert goes_alone(deciding, max_losses)
    assert not goes_alone(0, max_losses)


def test_one_loss_is_forgiven_where_more_are_allowed() -> None:
    assert [goes_alone(1, max_losses) for max_losses in (1, 2, 3)] == [True, False, False]


def test_an_interruption_is_nobodys_fault() -> None:
    interrupted = replace(LOST, result=AttemptResult.INTERRUPTED, losses=99)

    verdict = decide(interrupted)

    assert (verdict.state, verdict.cause) == (RunState.SCHEDULED, "interrupted")


@pytest.mark.parametrize("is_cancel_requested", [True, False])
def test_at_most_once_is_a_question_for_a_person_once_it_had_begun(
    is_cancel_requested: bool,
) -> None:
    once = replace(LOST, delivery=Delivery.AT_MOST_ONCE, is_cancel_requested=is_cancel_requested)

    assert decide(once).state is RunState.UNKNOWN


def test_at_most_once_is_tried_again_if_nothing_had_begun() -> None:
    once = replace(LOST, delivery=Delivery.AT_MOST_ONCE, state=RunState.CLAIMED)

    assert decide(once).state is RunState.SCHEDULED


def test_an_observed_failure_of_at_most_once_may_be_tried_again() -> None:
    once = replace(FAILED, delivery=Delivery.AT_MOST_ONCE)

    assert decide(once, Retry(attempts=2)).state is RunState.SCHEDULED


def test_fixed_back_off_is_always_the_same() -> None:
    policy = Retry(delay=MINUTE)

    assert {backoff(policy, failures, 0.0) for failures in range(5)} == {MINUTE}


def test_exponential_back_off_doubles_up_to_its_limit() -> None:
    policy = Retry(backoff=Backoff.EXPONENTIAL, delay=MINUTE, max_delay=5 * MINUTE)

    pauses = [backoff(policy, failures, 0.0) / MINUTE for failures in range(5)]

    assert pauses == [1, 2, 4, 5, 5]


def test_jitter_adds_a_share_of_the_delay() -> None:
    policy = Retry(delay=MINUTE, jitter=0.5)

    assert backoff(policy, 0, 0.5) == MINUTE * 1.25
