"""Texts with a few known values: the answers describe those that the server can send."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args

import msgspec
import pytest

from rota.api import answers, backfills, calendars, carts, forecasts, jobs, limits, output, runs
from rota.api import tokens as token_answers
from rota.domain.access import Role
from rota.domain.backfill import SkipCause
from rota.domain.calendars import Inside
from rota.domain.carts.definition import OnBreach, Order, Scope
from rota.domain.carts.facts import FINAL_CART_STATES, CartState, ItemState, WaitReason
from rota.domain.forecast.ahead import Source
from rota.domain.jobfile.export import Change
from rota.domain.keys import Each, Sharing
from rota.domain.output import Stream
from rota.domain.run import AttemptResult, OutputState, Trigger
from rota.domain.schedule import Kind
from rota.domain.spec import Delivery
from rota.domain.states import FINAL_STATES, RunState


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        (answers.ChangeWord, Change),
        (backfills.SkipCause, SkipCause),
        (calendars.Inside, Inside),
        (carts.CartState, CartState),
        (carts.ItemState, ItemState),
        (carts.OnBreach, OnBreach),
        (carts.Order, Order),
        (carts.Scope, Scope),
        (carts.WaitReason, WaitReason),
        (forecasts.Source, Source),
        (jobs.Kind, Kind),
        (limits.Each, Each),
        (limits.Sharing, Sharing),
        (output.Stream, Stream),
        (runs.AttemptResult, AttemptResult),
        (runs.Delivery, Delivery),
        (runs.OutputState, OutputState),
        (runs.RunState, RunState),
        (runs.Trigger, Trigger),
        (token_answers.Role, Role),
    ],
)
def test_described_values_are_those_of_the_domain(described: Any, kind: type[StrEnum]) -> None:
    meta = get_args(described)[1]

    values = meta.extra_json_schema["x-extensible-enum"]
    assert values == [value for value in kind if value]
    assert all(value in meta.description for value in values)


def test_final_states_are_those_of_the_domain() -> None:
    assert runs.FINAL_STATES == FINAL_STATES
    assert carts.FINAL_CART_STATES == FINAL_CART_STATES


def test_value_that_a_newer_server_sends_is_read() -> None:
    run = msgspec.json.decode(b'{"id": "r_1", "state": "FROZEN", "mood": "fine"}', type=runs.Run)

    assert (run.state, run.is_final) == ("FROZEN", False)
