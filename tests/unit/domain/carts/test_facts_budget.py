from __future__ import annotations

import pytest

from rota.domain.carts.definition import OnBreach, Scope, parse_share
from rota.domain.carts.facts import MOST_IN_FLIGHT, failures_of, is_breached, limit_of, window
from tests.unit.domain.carts.builders import cart, failures


@pytest.mark.parametrize(
    ("allow", "items", "limit"),
    [("0", 50, 0), ("10%", 50, 5), ("10%", 59, 5), ("2%", 1000, 20), ("2.5%", 39, 0), ("7", 3, 7)],
)
def test_the_limit_is_rounded_down(allow: str, items: int, limit: int) -> None:
    assert limit_of(parse_share(allow), items) == limit


@pytest.mark.parametrize(
    ("allow", "failed", "expected"),
    [("0", 0, False), ("0", 1, True), ("10%", 5, False), ("10%", 6, True)],
)
def test_a_breach_is_one_failure_more_than_may_be(
    allow: str, failed: int, *, expected: bool
) -> None:
    assert is_breached(cart(failures=failures(allow), items=50, failed=failed)) is expected


def test_an_unknown_end_counts_as_a_failure() -> None:
    facts = cart(failures=failures("1"), failed=1, open=1, unknown=1)

    assert failures_of(facts) == 2
    assert is_breached(facts)


def test_failures_of_a_wave_are_measured_by_its_own_items() -> None:
    facts = cart(failures=failures("50%", Scope.WAVE), items=100, items_in_wave=4, failed=40)

    assert not is_breached(facts)
    assert is_breached(cart(failures=facts.rules.failures, items_in_wave=4, failed_in_wave=3))


class TestWindow:
    def test_is_what_the_rules_say(self) -> None:
        assert window(cart(max_parallel=3)) == 3

    @pytest.mark.parametrize("asked", [None, 50_000])
    def test_is_never_wider_than_a_cart_may_cost(self, asked: int | None) -> None:
        assert window(cart(max_parallel=asked)) == MOST_IN_FLIGHT

    @pytest.mark.parametrize(("failed", "room"), [(0, 4), (1, 3), (2, 2), (3, 1)])
    def test_shrinks_with_a_strict_budget(self, failed: int, room: int) -> None:
        strict = failures("3", strict=True)

        assert window(cart(failures=strict, max_parallel=5, failed=failed)) == room

    def test_of_a_strict_budget_has_unknown_ends_in_flight(self) -> None:
        strict = failures("3", strict=True)

        assert window(cart(failures=strict, failed=1, open=2, unknown=2)) == 3

    def test_of_a_strict_budget_is_never_wider_than_the_rules_say(self) -> None:
        assert window(cart(failures=failures("100%", strict=True), max_parallel=2)) == 2

    def test_of_a_strict_budget_is_judged_by_its_wave(self) -> None:
        strict = failures("3", Scope.WAVE, strict=True)

        assert window(cart(failures=strict, failed=9, failed_in_wave=1)) == 3

    def test_is_open_again_after_a_breach_that_changes_nothing(self) -> None:
        strict = failures("1", then=OnBreach.CONTINUE, strict=True)

        assert window(cart(failures=strict, max_parallel=5, failed=2)) == 5
