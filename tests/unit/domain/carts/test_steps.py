from __future__ import annotations

from dataclasses import replace

import pytest

from rota.domain.carts.definition import Between, OnBreach, Scope
from rota.domain.carts.facts import (
    CANCELLING,
    FINAL_CART_STATES,
    CartFacts,
    CartState,
    PauseReason,
    WaitReason,
)
from rota.domain.carts.steps import (
    Begin,
    Breach,
    End,
    Open,
    Pause,
    RunCheck,
    SkipRest,
    Stand,
    Start,
    Step,
    decide,
    wait_for_room,
)
from rota.domain.states import FINAL_STATES, RunState
from tests.unit.domain.carts.builders import MINUTE, NOW, between_waves, cart, failures

RUNNING = Stand(CartState.RUNNING)


def step(facts: CartFacts) -> Step:
    return decide(facts, NOW)


class TestBeginning:
    def test_a_planned_cart_stands_until_its_time(self) -> None:
        facts = cart(state=CartState.PLANNED, wave=0, starts_at=NOW + MINUTE, pending_wave=1)

        assert step(facts) == Stand(CartState.PLANNED, until=NOW + MINUTE)
        assert decide(facts, NOW + MINUTE) == Begin()

    def test_a_cart_without_a_time_begins_at_once(self) -> None:
        assert step(cart(state=CartState.PLANNED, wave=0, pending_wave=1)) == Begin()

    def test_a_cart_that_was_resumed_before_its_time_is_planned_again(self) -> None:
        facts = cart(wave=0, starts_at=NOW + MINUTE, pending_wave=1)

        assert step(facts) == Stand(CartState.PLANNED, until=NOW + MINUTE)

    def test_the_first_wave_opens_without_a_gate(self) -> None:
        between = Between(MINUTE, "smoke-test", "admin")

        assert step(between_waves(between, wave=0, current_wave=0, pending_wave=3)) == Open(
            3, is_first=True
        )

    def test_the_first_wave_waits_for_the_calendars(self) -> None:
        facts = cart(wave=0, current_wave=0, pending_wave=1, closed_until=NOW + MINUTE)

        assert step(facts) == Stand(CartState.WAITING, WaitReason.WINDOW, NOW + MINUTE)
        assert decide(facts, NOW + MINUTE) == Open(1, is_first=True)


class TestInsideAWave:
    def test_as_many_start_as_are_pending(self) -> None:
        assert step(cart(pending_wave=1, pending_in_wave=4)) == Start(1, 4)

    def test_as_many_start_as_the_window_has_room_for(self) -> None:
        facts = cart(max_parallel=3, pending_wave=1, pending_in_wave=4, open=1)

        assert step(facts) == Start(1, 2)

    @pytest.mark.parametrize("in_flight", [3, 4])
    def test_nothing_starts_while_the_window_is_full(self, in_flight: int) -> None:
        facts = cart(max_parallel=3, pending_wave=1, pending_in_wave=4, open=in_flight)

        assert step(facts) == RUNNING

    def test_a_strict_budget_lets_fewer_start(self) -> None:
        strict = failures("2", strict=True)
        facts = cart(failures=strict, pending_wave=1, pending_in_wave=4, failed=1, open=1)

        assert step(facts) == Start(1, 1)

    def test_calendars_let_an_open_wave_finish(self) -> None:
        facts = cart(pending_wave=1, pending_in_wave=4, closed_until=NOW + MINUTE)

        assert step(facts) == Start(1, 4)

    def test_without_room_in_the_queue_it_looks_again_soon(self) -> None:
        with_some, with_none = wait_for_room(2, NOW), wait_for_room(0, NOW)

        assert (with_some.state, with_some.reason) == (CartState.RUNNING, "")
        assert (with_none.state, with_none.reason) == (CartState.WAITING, WaitReason.QUOTA)
        assert all(NOW < (stand.until or NOW) <= NOW + MINUTE for stand in (with_some, with_none))


class TestOrder:
    def test_a_higher_wave_waits_for_the_last_item_of_a_lower_one(self) -> None:
        assert step(between_waves(open=1)) == RUNNING

    def test_an_unknown_end_holds_its_wave(self) -> None:
        facts = between_waves(failures=failures("5"), open=1, unknown=1)

        assert step(facts) == RUNNING

    def test_items_of_an_earlier_wave_run_again_once_nothing_else_is_open(self) -> None:
        facts = cart(wave=3, current_wave=3, pending_wave=1, pending_in_wave=2, open=1)

        assert step(facts) == RUNNING
        assert step(replace(facts, open=0)) == Open(1, is_first=False)

    @pytest.mark.parametrize("wave", [1, 3])
    def test_a_wave_that_was_open_before_needs_no_gate(self, wave: int) -> None:
        between = Between(MINUTE, "smoke-test", "admin")

        facts = between_waves(between, wave=3, current_wave=2, pending_wave=wave)

        assert step(facts) == Open(wave, is_first=False)

    def test_a_cart_that_goes_on_after_its_end_asks_its_calendars(self) -> None:
        facts = cart(wave=3, current_wave=0, pending_wave=3, closed_until=NOW + MINUTE)

        assert step(facts) == Stand(CartState.WAITING, WaitReason.WINDOW, NOW + MINUTE)


class TestBetweenWaves:
    def test_without_a_gate_the_next_wave_opens(self) -> None:
        assert step(between_waves()) == Open(2, is_first=True)

    def test_it_soaks_from_the_end_of_the_last_item(self) -> None:
        facts = between_waves(Between(wait=MINUTE))

        assert step(facts) == Stand(CartState.WAITING, WaitReason.SOAK, NOW + MINUTE)
        assert decide(facts, NOW + MINUTE) == Open(2, is_first=True)

    def test_the_check_runs_after_the_soak(self) -> None:
        facts = between_waves(Between(MINUTE, check="smoke-test"))

        assert step(facts) == Stand(CartState.WAITING, WaitReason.SOAK, NOW + MINUTE)
        assert decide(facts, NOW + MINUTE) == RunCheck("smoke-test")

    @pytest.mark.parametrize("state", sorted(frozenset(RunState) - FINAL_STATES))
    def test_it_waits_for_the_end_of_the_check(self, state: RunState) -> None:
        facts = between_waves(Between(check="smoke-test"), check=state)

        assert step(facts) == Stand(CartState.WAITING, WaitReason.CHECK)

    @pytest.mark.parametrize("state", sorted(FINAL_STATES - {RunState.COMPLETED}))
    def test_a_check_that_did_not_complete_pauses_the_cart(self, state: RunState) -> None:
        facts = between_waves(Between(check="smoke-test"), check=state)

        assert step(facts) == Pause(PauseReason.CHECK)

    def test_approval_comes_after_the_check(self) -> None:
        facts = between_waves(Between(check="smoke-test", approve="admin"))
        passed = replace(facts, check=RunState.COMPLETED)

        assert step(facts) == RunCheck("smoke-test")
        assert step(passed) == Stand(CartState.WAITING, WaitReason.APPROVAL)
        assert step(replace(passed, approved_by="eve")) == Open(2, is_first=True)

    def test_calendars_come_last(self) -> None:
        facts = between_waves(Between(approve="admin"), closed_until=NOW + MINUTE)
        approved = replace(facts, approved_by="eve")

        assert step(facts) == Stand(CartState.WAITING, WaitReason.APPROVAL)
        assert step(approved) == Stand(CartState.WAITING, WaitReason.WINDOW, NOW + MINUTE)

    def test_a_gate_stands_only_before_another_wave(self) -> None:
        facts = cart(between=Between(MINUTE, "smoke-test", "admin"), completed=10)

        assert step(facts) == End(CartState.COMPLETED)


class TestPaused:
    @pytest.mark.parametrize("reason", PauseReason)
    def test_it_stands_whatever_is_left(self, reason: PauseReason) -> None:
        facts = between_waves(state=CartState.PAUSED, reason=reason)

        assert step(facts) == Stand(CartState.PAUSED, reason)

    def test_even_if_all_items_have_ended(self) -> None:
        facts = cart(state=CartState.PAUSED, reason=PauseReason.PERSON, completed=10)

        assert step(facts) == Stand(CartState.PAUSED, PauseReason.PERSON)


class TestBreach:
    @pytest.mark.parametrize("then", OnBreach)
    def test_comes_before_anything_new(self, then: OnBreach) -> None:
        facts = cart(failures=failures(then=then), failed=1, pending_wave=1, pending_in_wave=4)

        assert step(facts) == Breach(then)

    def test_is_judged_at_the_last_item_too(self) -> None:
        assert step(cart(failed=1, completed=9)) == Breach(OnBreach.PAUSE)

    def test_of_a_wave_is_judged_before_the_next_one(self) -> None:
        facts = between_waves(failures=failures(of=Scope.WAVE), failed=1, failed_in_wave=1)

        assert step(facts) == Breach(OnBreach.PAUSE)

    def test_is_told_once_when_the_cart_is_paused_for_it(self) -> None:
        facts = cart(state=CartState.PAUSED, reason=PauseReason.FAILURES, failed=1)

        assert step(facts) == Stand(CartState.PAUSED, PauseReason.FAILURES)

    @pytest.mark.parametrize("then", OnBreach)
    def test_is_noticed_while_a_person_holds_the_cart(self, then: OnBreach) -> None:
        facts = cart(
            failures=failures(then=then),
            state=CartState.PAUSED,
            reason=PauseReason.PERSON,
            failed=1,
        )

        assert step(facts) == Breach(then)

    def test_that_is_only_recorded_changes_nothing_else(self) -> None:
        facts = cart(
            failures=failures(then=OnBreach.CONTINUE, strict=True),
            is_breach_recorded=True,
            failed=1,
            pending_wave=1,
            pending_in_wave=4,
        )

        assert step(facts) == Start(1, 4)


class TestEnding:
    @pytest.mark.parametrize("ending", [CartState.CANCELLED, CartState.FAILED])
    @pytest.mark.parametrize("state", sorted(frozenset(CartState) - FINAL_CART_STATES))
    def test_the_rest_is_skipped_then_what_is_in_flight_ends(
        self, ending: CartState, state: CartState
    ) -> None:
        facts = cart(state=state, ending=ending, failed=1, pending_wave=2, open=2, waiting=1)

        assert step(facts) == SkipRest()
        assert step(replace(facts, pending_wave=None)) == SkipRest()
        assert step(replace(facts, pending_wave=None, open=1, waiting=0)) == Stand(
            CartState.RUNNING, CANCELLING
        )
        assert step(replace(facts, pending_wave=None, open=0, waiting=0)) == End(ending)

    def test_a_cart_with_something_in_flight_is_not_over(self) -> None:
        assert step(cart(completed=9, open=1)) == RUNNING

    def test_it_is_completed_if_every_item_is(self) -> None:
        assert step(cart(completed=10)) == End(CartState.COMPLETED)

    @pytest.mark.parametrize("failed", [1, 0])
    def test_it_is_partial_if_one_item_is_not(self, failed: int) -> None:
        facts = cart(failures=failures("1"), completed=9, failed=failed)

        assert step(facts) == End(CartState.PARTIAL)

    @pytest.mark.parametrize("state", sorted(FINAL_CART_STATES))
    def test_what_is_over_stays_so(self, state: CartState) -> None:
        assert step(cart(state=state, ending=CartState.FAILED, failed=9)) == Stand(state)
