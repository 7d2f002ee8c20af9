from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rota.domain.carts import commands
from rota.domain.carts.commands import NOBODY, Approver
from rota.domain.carts.definition import Between, OnBreach, Scope
from rota.domain.carts.facts import FINAL_CART_STATES, CartFacts, CartState, PauseReason, WaitReason
from rota.domain.errors import Conflict, Denied, RotaError
from rota.domain.states import RunState
from tests.unit.domain.carts.builders import MINUTE, NOW, between_waves, cart, failures

ADMIN = Approver("eve", {"viewer", "operator", "editor", "admin"})
COMMANDS: dict[str, Callable[[CartFacts], object]] = {
    "paused": commands.pause,
    "resumed": commands.resume,
    "cancelled": commands.cancel,
    "approved": lambda facts: commands.approve(facts, ADMIN, "adam"),
    "edited": commands.edit,
    "retried": lambda facts: commands.retry(facts, 1),
}
LIVE = sorted(frozenset(CartState) - FINAL_CART_STATES)


def refused(command: Callable[[], object], kind: type[RotaError] = Conflict) -> RotaError:
    with pytest.raises(kind) as caught:
        command()
    assert type(caught.value) is kind
    return caught.value


def live(state: CartState, **facts: Any) -> CartFacts:
    reasons = {CartState.PAUSED: PauseReason.PERSON, CartState.WAITING: WaitReason.SOAK}
    return cart(state=state, reason=reasons.get(state, ""), **facts)


def paused(reason: PauseReason = PauseReason.PERSON, **facts: Any) -> CartFacts:
    return cart(state=CartState.PAUSED, reason=reason, **facts)


def waiting(reason: WaitReason = WaitReason.APPROVAL) -> CartFacts:
    return between_waves(Between(approve="admin"), state=CartState.WAITING, reason=reason)


@pytest.mark.parametrize("what", [name for name in COMMANDS if name != "retried"])
@pytest.mark.parametrize("state", sorted(FINAL_CART_STATES))
def test_what_is_over_can_only_be_retried(what: str, state: CartState) -> None:
    error = refused(lambda: COMMANDS[what](cart(state=state)))

    assert error.code == "cart_final"
    assert error.message == f"the cart cannot be {what}: it is over ({state})"
    assert "retry" in error.hint


@pytest.mark.parametrize("what", [name for name in COMMANDS if name != "cancelled"])
@pytest.mark.parametrize("ending", [CartState.CANCELLED, CartState.FAILED])
def test_what_is_being_cancelled_takes_no_other_order(what: str, ending: CartState) -> None:
    error = refused(lambda: COMMANDS[what](cart(ending=ending, open=1)))

    assert error.code == "cart_cancelling"
    assert what in error.message


class TestPause:
    @pytest.mark.parametrize("state", LIVE)
    def test_is_needed_unless_it_is_so_already(self, state: CartState) -> None:
        assert commands.pause(live(state)) is (state is not CartState.PAUSED)


class TestCancel:
    @pytest.mark.parametrize("state", LIVE)
    def test_is_granted_in_every_state_that_is_not_final(self, state: CartState) -> None:
        assert commands.cancel(live(state))

    @pytest.mark.parametrize("ending", [CartState.CANCELLED, CartState.FAILED])
    def test_is_done_already_when_it_is_coming_to_an_early_end(self, ending: CartState) -> None:
        assert not commands.cancel(cart(ending=ending))


class TestResume:
    def test_goes_on_where_it_was(self) -> None:
        assert commands.resume(paused()) is CartState.RUNNING

    def test_a_cart_that_had_not_begun_is_planned_again(self) -> None:
        assert commands.resume(paused(wave=0, current_wave=0)) is CartState.PLANNED

    @pytest.mark.parametrize(
        ("facts", "words"),
        [
            (live(CartState.PLANNED), "its time has not come"),
            (live(CartState.RUNNING), "it is running"),
            (waiting(WaitReason.SOAK), "it waits between two waves, as its rules say"),
            (waiting(WaitReason.CHECK), "it waits for the check between two waves"),
            (waiting(WaitReason.APPROVAL), "it waits for approval"),
            (waiting(WaitReason.WINDOW), "it waits until its calendars let it go on"),
        ],
    )
    def test_what_is_not_paused_says_what_it_does(self, facts: CartFacts, words: str) -> None:
        error = refused(lambda: commands.resume(facts))

        assert error.code == "not_paused"
        assert error.message == f"the cart is not paused: {words}"

    @pytest.mark.parametrize("reason", PauseReason)
    def test_is_refused_while_too_many_have_failed(self, reason: PauseReason) -> None:
        facts = paused(reason, failures=failures("2%"), items=1000, failed=20, unknown=1, open=1)

        error = refused(lambda: commands.resume(facts))

        assert error.code == "still_breached"
        assert error.message == "21 of its items failed and 20 may: it would pause again at once"
        assert error.hint.endswith("or allow 21 failures")
        assert error.facts == {"failures": 21, "limit": 20, "scope": "cart"}

    def test_is_granted_once_the_allowance_is_raised(self) -> None:
        facts = paused(PauseReason.FAILURES, failures=failures("21"), failed=21)

        assert commands.resume(facts) is CartState.RUNNING

    def test_looks_at_the_wave_if_that_is_the_scope(self) -> None:
        facts = paused(failures=failures("1", Scope.WAVE), failed=5, failed_in_wave=1)

        assert commands.resume(facts) is CartState.RUNNING

    def test_failures_do_not_matter_if_they_change_nothing(self) -> None:
        facts = paused(failures=failures("0", then=OnBreach.CONTINUE), failed=5)

        assert commands.resume(facts) is CartState.RUNNING


class TestCheck:
    @pytest.mark.parametrize(
        ("check", "is_void"),
        [
            (None, False),
            (RunState.PROCESSING, False),
            (RunState.UNKNOWN, False),
            (RunState.COMPLETED, False),
            (RunState.FAILED, True),
            (RunState.CANCELLED, True),
        ],
    )
    def test_is_void_once_it_ended_badly(self, check: RunState | None, is_void: bool) -> None:
        assert commands.is_check_void(paused(check=check)) is is_void


class TestApprove:
    def test_is_for_somebody_else_with_the_role(self) -> None:
        commands.approve(waiting(), ADMIN, "adam")

    @pytest.mark.parametrize(
        ("facts", "words"),
        [
            (live(CartState.PLANNED), "its time has not come"),
            (live(CartState.RUNNING), "it is running"),
            (waiting(WaitReason.SOAK), "it waits between two waves, as its rules say"),
            (waiting(WaitReason.WINDOW), "it waits until its calendars let it go on"),
            (paused(PauseReason.PERSON), "it is paused, because somebody paused it"),
            (
                paused(PauseReason.CHECK),
                "it is paused, because the check between its waves did not complete",
            ),
            (paused(PauseReason.JOB), "it is paused, because a job that it needs is gone"),
        ],
    )
    def test_what_does_not_wait_for_it_says_what_it_waits_for(
        self, facts: CartFacts, words: str
    ) -> None:
        error = refused(lambda: commands.approve(facts, ADMIN, "adam"))

        assert error.code == "not_waiting_for_approval"
        assert error.message == f"the cart does not wait for approval: {words}"

    def test_is_denied_to_the_submitter(self) -> None:
        error = refused(lambda: commands.approve(waiting(), ADMIN, "eve"), Denied)

        assert error.code == "own_cart"
        assert "someone else with the role admin" in error.hint

    def test_is_denied_to_a_lower_role(self) -> None:
        operator = Approver("oscar", {"viewer", "operator"})

        error = refused(lambda: commands.approve(waiting(), operator, "adam"), Denied)

        assert error.code == "role_too_low"
        assert error.facts == {"role": "admin"}


class TestRetry:
    @pytest.mark.parametrize("state", sorted(FINAL_CART_STATES))
    def test_takes_up_again_what_was_over(self, state: CartState) -> None:
        ending = state if state in (CartState.CANCELLED, CartState.FAILED) else None

        assert commands.retry(cart(state=state, ending=ending), 3) is CartState.RUNNING

    @pytest.mark.parametrize("state", LIVE)
    def test_leaves_a_live_cart_as_it_is(self, state: CartState) -> None:
        assert commands.retry(live(state), 3) is state

    @pytest.mark.parametrize("state", CartState)
    def test_needs_something_to_retry(self, state: CartState) -> None:
        error = refused(lambda: commands.retry(live(state), 0))

        assert error.code == "nothing_to_retry"


class TestEdit:
    def test_is_for_waves_that_are_not_open_yet(self) -> None:
        commands.edit_wave(cart(wave=3, current_wave=3), 4)

    @pytest.mark.parametrize("wave", [1, 3])
    def test_is_refused_for_every_wave_up_to_the_highest_opened(self, wave: int) -> None:
        error = refused(lambda: commands.edit_wave(cart(wave=3, current_wave=1), wave))

        assert error.code == "wave_opened"
        assert error.facts == {"wave": wave, "opened": 3}

    def test_of_a_planned_cart_may_change_all(self) -> None:
        planned = cart(state=CartState.PLANNED, starts_at=NOW, wave=0, current_wave=0)

        commands.edit(planned)
        commands.edit_wave(planned, 1)

    @pytest.mark.parametrize("role", ["", "operator"])
    def test_whoever_may_not_approve_may_not_change_who_has_to(self, role: str) -> None:
        operator = Approver("oscar", {"viewer", "operator"})
        change = partial(commands.edit_between, waiting(), Between(approve=role))

        assert refused(partial(change, operator, "adam"), Denied).code == "role_too_low"
        assert refused(partial(change, ADMIN, "eve"), Denied).code == "own_cart"
        change(ADMIN, "adam")

    def test_whoever_may_not_approve_may_ask_for_more(self) -> None:
        between = Between(wait=MINUTE, check="smoke-test", approve="admin")

        commands.edit_between(waiting(), between, NOBODY, "adam")
        commands.edit_between(between_waves(), between, NOBODY, "adam")
