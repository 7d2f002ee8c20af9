"""Commands of people to a cart, and when they are refused.

Each function looks at the facts under the cart's lock and raises if the request cannot be granted.
Asking for what is so already is no mistake: two people who press the same button both succeed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rota.domain.carts.definition import Between, OnBreach
from rota.domain.carts.facts import (
    CartFacts,
    CartState,
    PauseReason,
    WaitReason,
    failures_of,
    is_breached,
    limit,
)
from rota.domain.errors import Conflict, Denied
from rota.domain.states import RunState, is_final

_PAUSE_WORDS = {
    PauseReason.PERSON: "somebody paused it",
    PauseReason.FAILURES: "too many of its items failed",
    PauseReason.CHECK: "the check between its waves did not complete",
    PauseReason.JOB: "a job that it needs is gone",
}
_WAIT_WORDS = {
    WaitReason.SOAK: "it waits between two waves, as its rules say",
    WaitReason.CHECK: "it waits for the check between two waves",
    WaitReason.APPROVAL: "it waits for approval",
    WaitReason.WINDOW: "it waits until its calendars let it go on",
    WaitReason.QUOTA: "it waits until its project has fewer runs that wait",
}


@dataclass(frozen=True, slots=True)
class Approver:
    """Person who approves the next wave."""

    name: str
    roles: Collection[str]  # its own, and those that it includes


NOBODY = Approver("", frozenset())


def pause(facts: CartFacts) -> bool:
    """Return whether it has to be paused; False: it is already, for whatever reason."""
    _refuse_final(facts, "paused")
    _refuse_ending(facts, "paused")
    return facts.state is not CartState.PAUSED


def resume(facts: CartFacts) -> CartState:
    """Return the state in which it goes on. `facts` have the allowance as raised by this request.

    Items in flight are unaffected.
    """
    _refuse_final(facts, "resumed")
    _refuse_ending(facts, "resumed")
    if facts.state is not CartState.PAUSED:
        raise Conflict(f"the cart is not paused: {in_words(facts)}", code="not_paused")
    if is_breached(facts) and facts.rules.failures.then is not OnBreach.CONTINUE:
        raise _still_breached(facts)
    return CartState.RUNNING if facts.wave else CartState.PLANNED


def is_check_void(facts: CartFacts) -> bool:
    """Return whether a cart that goes on needs another check: this one ended, and not well."""
    check = facts.check
    return check is not None and is_final(check) and check is not RunState.COMPLETED


def cancel(facts: CartFacts) -> bool:
    """Return whether its ending has to be set; False: it is coming to an early end already."""
    _refuse_final(facts, "cancelled")
    return not facts.is_ending


def approve(facts: CartFacts, by: Approver, submitter: str, wave: int | None = None) -> None:
    """Refuse unless the next wave waits for the approval of just this person.

    With a number it has to be that wave: to say yes twice lets no further one pass.
    """
    _refuse_final(facts, "approved")
    _refuse_ending(facts, "approved")
    if facts.state is not CartState.WAITING or facts.reason != WaitReason.APPROVAL:
        raise Conflict(
            f"the cart does not wait for approval: {in_words(facts)}",
            code="not_waiting_for_approval",
        )
    if wave not in (None, facts.pending_wave):
        raise Conflict(
            f"wave {facts.pending_wave} waits for approval, not wave {wave}",
            code="other_wave_waits",
            facts={"wave": facts.pending_wave},
        )
    _require_approver(facts, by, submitter)


def retry(facts: CartFacts, selected: int) -> CartState:
    """Return the state in which it goes on once `selected` final items are PENDING again.

    A cart that is paused stays so. One that was final loses its ending and its current wave: its
    calendars are asked before it goes on.
    """
    _refuse_ending(facts, "retried")
    if not selected:
        raise Conflict(
            "no item that has ended fits this selection",
            code="nothing_to_retry",
            hint="items that are pending or still running cannot be retried",
        )
    return CartState.RUNNING if facts.is_final else facts.state


def edit(facts: CartFacts) -> None:
    """Refuse an edit once the cart is over, or coming to an early end."""
    _refuse_final(facts, "edited")
    _refuse_ending(facts, "edited")


def edit_between(facts: CartFacts, between: Between, by: Approver, submitter: str) -> None:
    """Refuse to change who has to approve the next wave by somebody who could not approve it."""
    if facts.rules.between.approve not in ("", between.approve):
        _require_approver(facts, by, submitter)


def edit_wave(facts: CartFacts, wave: int) -> None:
    """Refuse unless the items of this wave may still be changed."""
    if wave <= facts.wave:
        raise Conflict(
            f"wave {wave} has been opened already, as has every wave up to {facts.wave}",
            code="wave_opened",
            hint=f"waves after {facts.wave} can be edited; pause the cart to keep them closed",
            facts={"wave": wave, "opened": facts.wave},
        )


def in_words(facts: CartFacts) -> str:
    """Describe what it is doing, as the end of a sentence: `it waits for approval`."""
    match facts.state:
        case CartState.PLANNED:
            return "its time has not come"
        case CartState.RUNNING:
            return "it is being cancelled" if facts.is_ending else "it is running"
        case CartState.PAUSED:
            return f"it is paused, because {_PAUSE_WORDS[PauseReason(facts.reason)]}"
        case CartState.WAITING:
            return _WAIT_WORDS[WaitReason(facts.reason)]
        case _:
            return f"it is over ({facts.state})"


def _refuse_final(facts: CartFacts, what: str) -> None:
    if facts.is_final:
        raise Conflict(
            f"the cart cannot be {what}: {in_words(facts)}",
            code="cart_final",
            hint="retry its items to take it up again",
            facts={"state": facts.state.value},
        )


def _refuse_ending(facts: CartFacts, what: str) -> None:
    if facts.is_ending:
        raise Conflict(
            f"the cart cannot be {what}: it is being cancelled",
            code="cart_cancelling",
            hint="once what is in flight has ended, its items can be retried",
        )


def _require_approver(facts: CartFacts, by: Approver, submitter: str) -> None:
    role = facts.rules.between.approve
    if role not in by.roles:
        raise Denied(
            f"the next wave is approved by someone with the role {role}",
            code="role_too_low",
            hint=f"ask someone with the role {role} to approve it",
            facts={"role": role},
        )
    if by.name == submitter:
        raise Denied(
            "whoever submitted a cart does not approve its waves",
            code="own_cart",
            hint=f"ask someone else with the role {role} to approve it",
        )


def job_deleted(cart: str, job: str) -> Conflict:
    """Build the refusal of a cart that needs a deleted job; one of the same name is another."""
    return Conflict(
        f"job {job}, which its items need, was deleted",
        code="job_deleted",
        hint=f"submit a new cart for what is left: rota cart items {cart} --state pending",
    )


def _still_breached(facts: CartFacts) -> Conflict:
    failures, allowed = failures_of(facts), limit(facts)
    return Conflict(
        f"{failures} of its items failed and {allowed} may: it would pause again at once",
        code="still_breached",
        hint=f"retry the failed items, resolve unknown ones, or allow {failures} failures",
        facts={"failures": failures, "limit": allowed, "scope": facts.rules.failures.scope.value},
    )
