from __future__ import annotations

import pytest

from rota.domain.carts.facts import (
    FINAL_CART_STATES,
    FINAL_ITEM_STATES,
    CartState,
    ItemState,
    item_state_of,
)
from rota.domain.states import Cause, RunState, is_final


@pytest.mark.parametrize("run", RunState)
def test_an_item_is_final_exactly_when_its_run_is(run: RunState) -> None:
    assert (item_state_of(run) in FINAL_ITEM_STATES) is is_final(run)


@pytest.mark.parametrize("run", [state for state in RunState if not is_final(state)])
def test_an_item_whose_run_goes_on_is_open(run: RunState) -> None:
    assert item_state_of(run) is ItemState.OPEN


@pytest.mark.parametrize("run", [state for state in RunState if is_final(state)])
def test_an_item_ends_as_its_run_does_and_a_missed_one_is_skipped(run: RunState) -> None:
    expected = "SKIPPED" if run is RunState.MISSED else run.value

    assert item_state_of(run).value == expected


def test_an_item_whose_worker_did_not_come_in_time_has_failed() -> None:
    assert item_state_of(RunState.MISSED, Cause.NO_WORKER) is ItemState.FAILED


def test_a_cart_that_waits_or_is_paused_is_not_over() -> None:
    unfinished = {CartState.PLANNED, CartState.RUNNING, CartState.PAUSED, CartState.WAITING}

    assert frozenset(CartState) - FINAL_CART_STATES == unfinished
