from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from rota.domain.carts.definition import (
    Between,
    CartRules,
    Failures,
    OnBreach,
    Order,
    Scope,
    Share,
    parse_share,
)


def test_a_cart_without_rules_is_serial_and_pauses_at_its_first_failure() -> None:
    assert CartRules() == CartRules(
        Order.SERIAL,
        failures=Failures(Share(0), Scope.CART, OnBreach.PAUSE, strict=False),
        between=Between(timedelta(0), check="", approve=""),
    )


def test_the_document_speaks_the_words_of_the_job_file() -> None:
    rules = CartRules(
        Order.GROUPS,
        (Share(1), Share(Decimal(10), is_percent=True)),
        max_parallel=20,
        failures=Failures(parse_share("2.5%"), Scope.WAVE, OnBreach.CANCEL, strict=True),
        between=Between(timedelta(minutes=5), "smoke-test", "admin"),
        calendars=("nights",),
    )

    assert rules.to_document() == {
        "order": "groups",
        "group_size": ["1", "10%"],
        "max_parallel": 20,
        "failures": {"allow": "2.5%", "of": "wave", "then": "cancel", "strict": True},
        "between": {"wait": "5m", "check": "smoke-test", "approve": "admin"},
        "calendars": ["nights"],
    }


class TestShare:
    @pytest.mark.parametrize(
        ("text", "share"),
        [
            ("0", Share(0)),
            (" 5 ", Share(5)),
            ("10%", Share(10, is_percent=True)),
            ("2.5 %", Share(Decimal("2.5"), is_percent=True)),
            ("100.000%", Share(100, is_percent=True)),
        ],
    )
    def test_is_a_count_or_a_percentage(self, text: str, share: Share) -> None:
        assert parse_share(text) == share

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "neither a number of items nor a percentage"),
            ("-1", "neither a number of items nor a percentage"),
            ("1e3%", "neither a number of items nor a percentage"),
            ("٣", "neither a number of items nor a percentage"),
            ("9" * 1000, "neither a number of items nor a percentage"),
            ("101%", "write at most 100%"),
            ("100.001%", "write at most 100%"),
            ("2.5", "no whole number of items"),
        ],
    )
    def test_is_refused_with_what_to_write_instead(self, text: str, complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            parse_share(text)

    def test_a_count_is_the_same_of_any_total(self) -> None:
        assert {Share(5).rounded_up(total) for total in (1, 5, 100_000)} == {5}

    @pytest.mark.parametrize(
        ("percent", "total", "down", "up"),
        [
            ("10", 50, 5, 5),
            ("10", 59, 5, 6),
            ("2.5", 39, 0, 1),
            ("0", 1000, 0, 0),
            ("100", 7, 7, 7),
        ],
    )
    def test_a_percentage_is_rounded_down_or_up(
        self, percent: str, total: int, down: int, up: int
    ) -> None:
        share = Share(Decimal(percent), is_percent=True)

        assert (share.rounded_down(total), share.rounded_up(total)) == (down, up)

    def test_a_percentage_that_no_float_has_is_exact(self) -> None:
        assert parse_share("0.7%").rounded_up(1000) == 7  # 0.7 × 1000 / 100 in floats is above 7
        assert parse_share("0.29%").rounded_down(10_000) == 29  # and here below 29
