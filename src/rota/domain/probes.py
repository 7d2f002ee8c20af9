"""Probes: how a run ended that is UNKNOWN, found out by a command instead of a person.

A probe is a run of its own, of the same job version: it is claimed, fenced, tried again and lost
like any other, and its output is read like any other. It executes the `probe` of the job in place
of its steps, with what identifies the run that it asks about. It passes no gate and takes no shared
key or resource: the run that it asks about has those, and goes on having them.

Its exit code is the answer. Whatever else happens to it says nothing, and it is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from rota.domain.retry import SUCCEEDED, Ending, Verdict, attempt_ended
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, JobSpec, JobType, Retry, Step
from rota.domain.states import Cause, RunState


class Answer(StrEnum):
    """What a probe says of the run that it asked about."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"  # it had no effect: try again


_ANSWERS = {1: Answer.FAILED, 2: Answer.RETRY}
_SAYS = "says "  # what the cause of a probe's end begins with, before its answer


def probe_ended(ending: Ending, policy: Retry, max_losses: int, fraction: float) -> Verdict:
    """Decide the next state of a probe: it completes with an answer, or is tried again."""
    if ending.result is AttemptResult.FAILED and ending.exit_code in _ANSWERS:
        return replace(SUCCEEDED, cause=f"{_SAYS}{_ANSWERS[ending.exit_code]}")
    return attempt_ended(ending, policy, max_losses, fraction)


def answer_of(state: RunState, cause: str) -> Answer | None:
    """Return the answer of a probe that has ended so; None: it found out nothing."""
    if state is not RunState.COMPLETED:
        return None
    return Answer(cause.removeprefix(_SAYS)) if cause.startswith(_SAYS) else Answer.COMPLETED


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of an UNKNOWN run."""

    state: RunState  # COMPLETED, FAILED, or SCHEDULED to be tried again
    cause: str = ""


def resolution_of(
    answer: Answer, *, losses: int, max_losses: int, is_cancel_requested: bool
) -> Resolution:
    """Decide what an answer leads to.

    A run that is lost again and again may be what kills its workers, and one that somebody wanted
    to stop is not begun anew.
    """
    match answer:
        case Answer.COMPLETED:
            return Resolution(RunState.COMPLETED, "probe")
        case Answer.FAILED:
            return Resolution(RunState.FAILED, "probe")
        case Answer.RETRY if is_cancel_requested:
            return Resolution(RunState.FAILED, Cause.CANCELLED)
        case Answer.RETRY if losses > max_losses:
            return Resolution(RunState.FAILED, "poison")
        case Answer.RETRY:
            return Resolution(RunState.SCHEDULED)


def probe_spec(spec: JobSpec) -> JobSpec:
    """Return what a worker executes for a probe of this job: one step, behind the job's walls."""
    probe = spec.probe
    assert probe is not None, "only jobs that have a probe are probed"
    kind = JobType.CONTAINER if spec.type is JobType.CONTAINER else JobType.SHELL
    return replace(
        spec,
        type=kind,
        function="",
        steps=(Step("probe", probe.run, probe.shell),),
        delivery=Delivery.AT_LEAST_ONCE,
        timeout=probe.timeout,
        resources={},
        probe=None,
    )
