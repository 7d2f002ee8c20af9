"""What a newcomer sees first has to work."""

from __future__ import annotations

from tests.system.carts import settle
from tests.system.conftest import Up

CART = "demo-upgrade"


class TestDemo:
    def test_it_pauses_at_the_fifth_failure_and_a_retry_completes_it(self, up: Up) -> None:
        rota = up(slots="20")

        shown = rota.command("demo")

        assert shown.returncode == 0, shown.stderr
        assert "paused: too many failed" in shown.stdout
        assert f"rota cart retry {rota.client.get_cart(CART).id} --failed" in shown.stderr
        paused = settle(rota.client, CART)
        assert (paused.state, paused.reason) == ("PAUSED", "failures")
        assert (paused.limit, paused.failed) == (4, 5)
        assert [group.count for group in paused.failure_groups] == [3, 2]

        retried = rota.command("cart", "retry", CART, "--failed")
        resumed = rota.command("cart", "resume", CART)

        assert (retried.returncode, resumed.returncode) == (0, 0)
        ended = settle(rota.client, CART)
        assert (ended.state, ended.completed) == ("COMPLETED", 200)
        assert rota.command("cart", "watch", CART).returncode == 0
