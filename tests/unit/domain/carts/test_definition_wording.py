"""Templates in words."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.carts.definition import template_in_words
from rota.domain.jobfile import read_cart

ITEMS = [{"key": "db-1"}, {"key": "db-2"}]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "2 items one after another · none may fail"),
        ({"items": ITEMS[:1]}, "1 item one after another · none may fail"),
        ({"order": "parallel", "max_parallel": 9}, "2 items all at once, 9 in flight"),
        ({"order": "groups", "group_size": [1, "10%"]}, "2 items in waves of 1, 10%, …"),
        ({"items": [{"key": "a", "order": 7}]}, "1 item in the order of their numbers"),
        ({"items_from": "hosts.csv"}, "the items of hosts.csv one after another"),
        ({"items_from": {"workers": {"site": "fra"}}}, "each live worker with site=fra one"),
        ({"failures": {"allow": "2.5%"}}, "up to 2.5% may fail"),
        ({"failures": {"allow": 5, "of": "wave"}}, "up to 5 of each wave may fail"),
    ],
)
def test_a_template_is_told_in_a_line(fields: dict[str, Any], words: str) -> None:
    source = {} if "items_from" in fields else {"items": ITEMS}

    told = template_in_words(read_cart({"name": "fleet", "job": "upgrade", **source, **fields}))

    assert words in told
