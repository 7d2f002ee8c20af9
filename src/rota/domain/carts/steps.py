"""Steps of a cart: the next small one is decided from facts alone.

A step that is applied changes the facts, so that the same step is never decided again; whoever
dies between two steps leaves facts from which the next one goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rota.domain.carts.definition import OnBreach
from rota.domain.carts.facts import (
    CANCELLING,
    CartFacts,
    CartState,
    PauseReason,
    WaitReason,
    is_breached,
    window,
)
from rota.domain.states import RunState, is_final

_LOOKS_FOR_ROOM = timedelta(seconds=1)  # how often


@dataclass(frozen=True, slots=True)
class Begin:
    """Step from PLANNED to RUNNING: its time has come."""


@dataclass(frozen=True, slots=True)
class Open:
    """Step that makes a wave the current one."""

    wave: int
    is_first: bool  # False: it or a higher one was open before, and retried items come first


@dataclass(frozen=True, slots=True)
class Start:
    """Step that gives so many PENDING items of the current wave their runs; the cart is RUNNING.

    A check and an approval from before are void: they were not about these items.
    """

    wave: int
    count: int


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Step that gives the check between two waves its run; the cart is WAITING."""

    job: str


@dataclass(frozen=True, slots=True)
class Stand:
    """Answer to do nothing until something ends, somebody acts, or `until` comes."""

    state: CartState
    reason: str = ""  # as in `CartFacts`
    until: datetime | None = None  # None: no time changes it


@dataclass(frozen=True, slots=True)
class Pause:
    """Step that makes the cart PAUSED."""

    reason: PauseReason


@dataclass(frozen=True, slots=True)
class Breach:
    """Step that reacts to more failures than allowed.

    PAUSE: it becomes PAUSED for its failures. CANCEL: its ending is FAILED. CONTINUE: recorded.
    """

    then: OnBreach


@dataclass(frozen=True, slots=True)
class SkipRest:
    """Step that makes PENDING items, and waiting runs that were never tried, SKIPPED.

    A waiting run that was tried before is CANCELLED: it gets no further attempt.
    """


@dataclass(frozen=True, slots=True)
class End:
    """Step to the final state of the cart: every item has ended."""

    state: CartState


Step = Begin | Open | Start | RunCheck | Stand | Pause | Breach | SkipRest | End


def decide(facts: CartFacts, now: datetime) -> Step:
    """Decide the next step. Apply it and ask again, until the answer is `Stand`."""
    if facts.is_final:
        return Stand(facts.state, facts.reason)
    if facts.ending is not None:
        return _end_early(facts, facts.ending)
    if _is_new_breach(facts):
        return Breach(facts.rules.failures.then)
    if facts.state is CartState.PAUSED:
        return Stand(CartState.PAUSED, facts.reason)
    if facts.wave == 0 and facts.starts_at is not None and now < facts.starts_at:
        return Stand(CartState.PLANNED, until=facts.starts_at)
    if facts.state is CartState.PLANNED:
        return Begin()
    return _go_on(facts, now)


def _end_early(facts: CartFacts, ending: CartState) -> Step:
    if facts.pending_wave is not None or facts.waiting:
        return SkipRest()
    if facts.open:
        return Stand(CartState.RUNNING, CANCELLING)
    return End(ending)


def _is_new_breach(facts: CartFacts) -> bool:
    """Return whether a breach has not been answered yet.

    A cart that a person paused is judged all the same: what was in flight may have failed since.
    """
    if not is_breached(facts):
        return False
    if facts.rules.failures.then is OnBreach.CONTINUE:
        return not facts.is_breach_recorded
    return not (facts.state is CartState.PAUSED and facts.reason == PauseReason.FAILURES)


def _go_on(facts: CartFacts, now: datetime) -> Step:
    if facts.pending_wave is None:
        return Stand(CartState.RUNNING) if facts.open else End(_end_of(facts))
    if facts.pending_wave == facts.current_wave:
        return _start(facts, facts.pending_wave)
    if facts.open:
        return Stand(CartState.RUNNING)
    is_first = facts.pending_wave > facts.wave
    gate = _between(facts, now) if is_first and facts.wave else None
    return gate or _closed(facts, now) or Open(facts.pending_wave, is_first)


def _end_of(facts: CartFacts) -> CartState:
    return CartState.COMPLETED if facts.completed == facts.items else CartState.PARTIAL


def _start(facts: CartFacts, wave: int) -> Step:
    count = min(facts.pending_in_wave, window(facts) - facts.open)
    return Start(wave, count) if count > 0 else Stand(CartState.RUNNING)


def wait_for_room(open_items: int, now: datetime) -> Stand:
    """Poll while the quota of queued runs is full: nothing notifies a cart of room."""
    until = now + _LOOKS_FOR_ROOM
    if open_items:
        return Stand(CartState.RUNNING, until=until)
    return Stand(CartState.WAITING, WaitReason.QUOTA, until)


def _between(facts: CartFacts, now: datetime) -> Step | None:
    """Return the step that the gate between two waves demands; None: it is passed."""
    return _soak(facts, now) or _check(facts) or _approval(facts)


def _soak(facts: CartFacts, now: datetime) -> Step | None:
    if facts.wave_ended_at is None:
        return None
    until = facts.wave_ended_at + facts.rules.between.wait
    return Stand(CartState.WAITING, WaitReason.SOAK, until) if now < until else None


def _check(facts: CartFacts) -> Step | None:
    job = facts.rules.between.check
    if not job:
        return None
    if facts.check is None:
        return RunCheck(job)
    if not is_final(facts.check):
        return Stand(CartState.WAITING, WaitReason.CHECK)
    return None if facts.check is RunState.COMPLETED else Pause(PauseReason.CHECK)


def _approval(facts: CartFacts) -> Step | None:
    if facts.rules.between.approve and not facts.approved_by:
        return Stand(CartState.WAITING, WaitReason.APPROVAL)
    return None


def _closed(facts: CartFacts, now: datetime) -> Step | None:
    if facts.closed_until is not None and now < facts.closed_until:
        return Stand(CartState.WAITING, WaitReason.WINDOW, facts.closed_until)
    return None
