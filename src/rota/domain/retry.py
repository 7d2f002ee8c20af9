"""Decision when an attempt ends: the run is finished, retried, or a question for a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.run import AttemptResult
from rota.domain.spec import Backoff, Delivery, Retry
from rota.domain.states import TRANSITIONS, Cause, RunEvent, RunState

STALLED = "stalled"  # the cause of an attempt that was stopped for its silence
_MAX_DOUBLINGS = 40
_FIRST_DOUBLED = timedelta(seconds=1)
_LOSSES_IN_COMPANY = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """End of an attempt, with what is known of its run at that moment."""

    state: RunState  # of the run: CLAIMED or PROCESSING
    result: AttemptResult
    now: datetime
    exit_code: int | None = None
    signal: int | None = None
    failures: int = 0  # of this run before this attempt
    losses: int = 0
    counts: bool = True  # a loss counts towards quarantine, as the run may have caused it
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    is_cancel_requested: bool = False
    deadline_at: datetime | None = None
    has_handle: bool = False  # the next attempt goes on with the work that another system does
    cause: str = ""  # a word for what stopped it, such as `oom` or `silent`; "": there is none


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decided transition."""

    event: RunEvent
    state: RunState
    cause: str = ""
    eligible_at: datetime | None = None  # when the next attempt may start; None: there is none


SUCCEEDED = Verdict(RunEvent.SUCCEEDED, RunState.COMPLETED)


def attempt_ended(ending: Ending, policy: Retry, max_losses: int, fraction: float) -> Verdict:
    """Decide the run's next state. `fraction` in [0, 1) draws the back-off's jitter."""
    match ending.result:
        case AttemptResult.COMPLETED:
            return SUCCEEDED
        case AttemptResult.LOST | AttemptResult.INTERRUPTED:
            return _worker_gone(ending, max_losses)
        case AttemptResult.CANCELLED:
            return _verdict(ending, RunEvent.CANCELLED, Cause.CANCELLED)
        case AttemptResult.FAILED | AttemptResult.TIMED_OUT:
            return _ended_badly(ending, policy, fraction)


def _ended_badly(ending: Ending, policy: Retry, fraction: float) -> Verdict:
    if ending.is_cancel_requested:
        return _verdict(ending, RunEvent.CANCELLED, Cause.CANCELLED)
    eligible_at = ending.now + backoff(policy, ending.failures, fraction)
    is_in_time = ending.deadline_at is None or eligible_at < ending.deadline_at
    if _is_retryable(ending, policy) and is_in_time:
        return _verdict(ending, RunEvent.RETRIED, _cause(ending), eligible_at)
    if ending.result is AttemptResult.TIMED_OUT:
        return _verdict(ending, RunEvent.RAN_OUT, _cause(ending))
    return _verdict(ending, RunEvent.GAVE_UP, _cause(ending))


def _worker_gone(ending: Ending, max_losses: int) -> Verdict:
    cause = ending.cause or ending.result.lower()
    is_once = ending.delivery is Delivery.AT_MOST_ONCE and not ending.has_handle
    if is_once and ending.state is RunState.PROCESSING:
        return _verdict(ending, RunEvent.LOST_UNSAFE, cause)
    if ending.is_cancel_requested:
        return _verdict(ending, RunEvent.CANCELLED, Cause.CANCELLED)
    is_blamed = ending.result is AttemptResult.LOST and ending.counts
    if is_blamed and ending.losses + 1 > max_losses:
        return _verdict(ending, RunEvent.QUARANTINED, ending.cause or "poison")
    return _verdict(ending, RunEvent.LOST, cause, ending.now)


def goes_alone(losses: int, max_losses: int) -> bool:
    """Return whether a run that has lost so many workers runs alone from now on.

    A machine that dies takes all its runs along: one loss says nothing about any of them, and they
    go on at once. A run is never quarantined before it has gone alone, so not for a neighbour's
    doing, unless it may lose no worker at all.
    """
    return losses >= max(1, min(_LOSSES_IN_COMPANY, max_losses))


def _is_retryable(ending: Ending, policy: Retry) -> bool:
    if ending.failures + 1 >= policy.attempts or ending.result.value.lower() not in policy.when:
        return False
    if policy.exit_codes is None or ending.result is AttemptResult.TIMED_OUT:
        return True
    return ending.exit_code in policy.exit_codes


def backoff(policy: Retry, failures: int, fraction: float) -> timedelta:
    """Return the delay after the given number of earlier failures, never above `max_delay`.

    Doubling nothing is nothing: an exponential back-off without a delay begins with a second.
    """
    delay = policy.delay
    if policy.backoff is Backoff.EXPONENTIAL:
        doublings = min(failures, _MAX_DOUBLINGS)
        delay = min(policy.delay or _FIRST_DOUBLED, policy.max_delay)
        for _ in range(doublings):
            delay = min(delay * 2, policy.max_delay)
    delay = min(delay, policy.max_delay)
    return min(delay * (1 + policy.jitter * fraction), policy.max_delay)


def _cause(ending: Ending) -> str:
    if ending.result is AttemptResult.TIMED_OUT:
        return STALLED if ending.cause == STALLED else "timeout"
    if ending.cause:  # it knows more than how the process ended
        return ending.cause
    if ending.signal is not None:
        return f"signal {ending.signal}"
    if ending.exit_code is not None:
        return f"exit {ending.exit_code}"
    return "error"


def _verdict(
    ending: Ending, event: RunEvent, cause: str = "", eligible_at: datetime | None = None
) -> Verdict:
    return Verdict(event, TRANSITIONS[ending.state, event], cause, eligible_at)
