"""The failure budget: how many items may fail, and how many may be in flight because of it."""

from __future__ import annotations

from rota.domain.carts.definition import Scope, Share
from rota.domain.carts.facts import CartFacts

MOST_IN_FLIGHT = 1_000  # of one cart, whatever its rules say: only the open part costs anything


def limit_of(allow: Share, items_in_scope: int) -> int:
    """How many may fail; one more is a breach."""
    return allow.rounded_down(items_in_scope)


def failures_of(facts: CartFacts) -> int:
    """The failures in scope. A run whose end nobody knows counts as one until it is resolved."""
    return _ended_badly(facts) + facts.unknown


def limit(facts: CartFacts) -> int:
    """How many items of the present scope may fail."""
    failures = facts.rules.failures
    is_cart = failures.scope is Scope.CART
    return limit_of(failures.allow, facts.items if is_cart else facts.items_in_wave)


def is_breached(facts: CartFacts) -> bool:
    """Whether more items of the present scope failed than may."""
    return failures_of(facts) > limit(facts)


def window(facts: CartFacts) -> int:
    """How many items may be in flight.

    Strict: so few that even if all of them fail, the limit is exceeded by one at most. After a
    breach that changes nothing (`then: continue`) there is no limit left to keep.
    """
    most = min(facts.rules.max_parallel or MOST_IN_FLIGHT, MOST_IN_FLIGHT)
    if not facts.rules.failures.strict or is_breached(facts):
        return most
    return min(most, limit(facts) + 1 - _ended_badly(facts))


def _ended_badly(facts: CartFacts) -> int:
    is_cart = facts.rules.failures.scope is Scope.CART
    return facts.failed if is_cart else facts.failed_in_wave
