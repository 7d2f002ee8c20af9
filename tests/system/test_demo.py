"""What a newcomer sees first has to work."""

from __future__ import annotations

import pytest

from tests.system.carts import settle
from tests.system.conftest import Up

CART = "demo-upgrade"


@pytest.mark.slow
@pytest.mark.timeout(180)
class TestDemo:
    def test_it_pauses_at_the_fifth_failure_and_a_retry_completes_it(self, up: Up) -> None:
        rota = up(slots="20")

        filled = rota.command("demo", "--no-watch")

        assert filled.returncode == 0, filled.stderr
        cart = rota.client.get_cart(CART).id
        assert f"rota cart watch {cart}" in filled.stderr
        paused = settle(rota.client, cart)
        assert (paused.state, paused.reason) == ("PAUSED", "failures")
        assert (paused.limit, paused.failed) == (4, 5)
        assert [group.count for group in paused.failure_groups] == [3, 2]

        watched = rota.command("cart", "watch", CART)
        retried = rota.command("cart", "retry", CART, "--failed")
        resumed = rota.command("cart", "resume", CART)

        assert (watched.returncode, f"rota cart retry {cart}" in watched.stderr) == (13, True)
        assert (retried.returncode, resumed.returncode) == (0, 0)
        ended = settle(rota.client, cart)
        assert (ended.state, ended.completed) == ("COMPLETED", 200)
        assert rota.command("cart", "watch", CART).returncode == 0
