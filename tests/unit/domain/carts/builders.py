"""Carts in one line: running, in the middle of wave 1, unless said otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from rota.domain.carts.definition import Between, CartRules, Failures, OnBreach, Scope, parse_share
from rota.domain.carts.facts import CartFacts, CartState

NOW = datetime(2026, 6, 1, 22, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
STOP_AT_ONCE = Failures()
NO_GATE = Between()


def failures(
    allow: str = "0",
    of: Scope = Scope.CART,
    then: OnBreach = OnBreach.PAUSE,
    *,
    strict: bool = False,
) -> Failures:
    return Failures(parse_share(allow), of, then, strict)


def cart(
    *,
    failures: Failures = STOP_AT_ONCE,
    between: Between = NO_GATE,
    max_parallel: int | None = None,
    **facts: Any,
) -> CartFacts:
    rules = CartRules(max_parallel=max_parallel, failures=failures, between=between)
    usual: dict[str, Any] = {
        "state": CartState.RUNNING,
        "items": 10,
        "wave": 1,
        "current_wave": 1,
        "items_in_wave": 5,
    }
    return CartFacts(rules=rules, **(usual | facts))


def between_waves(between: Between = NO_GATE, **facts: Any) -> CartFacts:
    """Wave 1 is over since now, wave 2 is next."""
    usual: dict[str, Any] = {
        "pending_wave": 2,
        "pending_in_wave": 5,
        "completed": 5,
        "wave_ended_at": NOW,
    }
    return cart(between=between, **(usual | facts))
