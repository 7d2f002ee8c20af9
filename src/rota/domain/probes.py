"""Probes: how a run ended that is UNKNOWN, found out by a command instead of a person.

A probe is a run of its own, of the same job version: it is claimed, fenced, tried again and lost
like any other, and its output is read like any other. It executes the `probe` of the job in place
of its steps, with what identifies the run that it asks about. It passes no gate and takes no shared
key or resource: the run that it asks about has those, and goes on having them.

Its exit code is the answer. Whatever else happens to it says nothing, and it is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rota.domain.ids import RunId
from rota.domain.retry import SUCCEEDED, Ending, Verdict, attempt_ended
from rota.domain.run import AttemptResult, Reason
from rota.domain.spec import Delivery, JobSpec, JobType, Retry, Step
from rota.domain.states import Cause, RunState, is_final


class Answer(StrEnum):
    """Answer of a probe about the run that it asked about."""

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
    """State and cause that an UNKNOWN run gets."""

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


@dataclass(frozen=True, slots=True)
class ProbeOf:
    """Probe that asked about a run."""

    id: RunId
    attempt: int  # of the run that it asks about
    state: RunState
    answer: Answer | None  # None: it found out nothing, or goes on
    tries: int

    @property
    def is_awaited(self) -> bool:
        """Return whether it is to tell how its run ended: soon, or as soon as that is stored."""
        return not is_final(self.state) or self.answer is not None


def doubt_about(run: RunId, loss: str, probes: Sequence[ProbeOf]) -> tuple[str, Reason]:
    """Return whose decision an UNKNOWN run waits for, in a few words and as a reason.

    `loss` says why nobody knows.
    """
    message = f"{loss}, and "
    if probes and probes[-1].is_awaited:
        latest = probes[-1]
        message += f"probe {latest.id} ({latest.state.lower()}) asks how it ended"
        reason = Reason("probe", message, action=f"rota why {latest.id}")
        return "unknown: its probe is to tell how it ended", reason
    message += "at_most_once forbids a second try"
    message += f"; probe {probes[-1].id} found out nothing" if probes else ""
    action = f"rota run resolve {run} --as completed|failed|retry"
    return "unknown: a person must decide", Reason("person", message, action=action)


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
        stalled_after=None,
        resources={},
        probe=None,
    )
