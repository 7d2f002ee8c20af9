"""Carts that are paused, retried, approved, cancelled and edited."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rota.domain.access import Role
from tests.unit.cli.carts import ALL_AT_ONCE, advance, refused, states, submit, work
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server


class TestSteering:
    def test_pause_and_resume(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)

        paused, again = rota("cart", "pause", cart), rota("cart", "pause", cart)
        resumed = rota("cart", "resume", cart)

        assert paused.err.splitlines()[0] == f"{cart} is paused: by a person now"
        assert again.err.splitlines()[0] == f"{cart} is paused: by a person already"
        assert resumed.err.splitlines()[0] == f"{cart} is running now"
        assert rota("cart", "resume", cart).code == 5

    def test_resume_after_too_many_failures_needs_more_allowance(
        self, rota: Console, server: Server
    ) -> None:
        cart = submit(rota, server)
        work(server, cart, "FAILED")

        assert refused(rota("cart", "resume", cart), 5, "allow 1 failures")
        assert rota("cart", "resume", cart, "--allow", "34%", "--json").json["failures"] == {
            "allow": "34%",
            "of": "cart",
            "then": "pause",
            "strict": False,
        }

    def test_failed_items_are_retried_by_cause(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server, ALL_AT_ONCE)
        work(server, cart, "COMPLETED", "FAILED")

        ended = rota("cart", "retry", cart, "--failed", "--cause", "exit")

        assert ended.err.splitlines()[0] == "1 item queued in its wave"
        assert f"rota cart resume {cart}" in ended.err
        assert sorted(states(rota, cart)) == ["COMPLETED", "OPEN", "PENDING"]

    def test_retry_selects_what_was_named(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server, ALL_AT_ONCE)
        work(server, cart, "COMPLETED", "COMPLETED", "COMPLETED")

        assert rota("cart", "retry", cart, "--failed").code == 5
        chosen = rota("cart", "retry", cart, "--item", "db-0", "--item", "db-2", "--json")
        advance(server, cart)
        work(server, cart, "COMPLETED", "COMPLETED")
        all_of_it = rota("cart", "retry", cart, "--from-wave", "1", "--json")

        assert (chosen.json["affected"], all_of_it.json["affected"]) == (2, 3)

    def test_skipped_items_are_retried_with_failed_ones(
        self, rota: Console, server: Server
    ) -> None:
        cart = submit(rota, server, "order: serial; failures: {then: cancel}")
        work(server, cart, "FAILED")

        assert states(rota, cart) == ["FAILED", "SKIPPED", "SKIPPED"]
        assert rota("cart", "retry", cart, "--skipped", "--json").json["affected"] == 3

    def test_what_was_cancelled_is_named_and_retried_with_what_never_started(
        self, rota: Console, server: Server
    ) -> None:
        cart = submit(rota, server)
        held = server.claim()
        rota("cart", "cancel", cart)
        server.finish(held, "CANCELLED")
        advance(server, cart)

        shown = rota("cart", "show", cart).err
        retried = rota("cart", "retry", cart, "--skipped", "--json")

        assert shown == f"1 cancelled, 2 skipped · rota cart retry {cart} --skipped\n"
        assert retried.json["affected"] == 3

    def test_retrying_many_items_needs_consent(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server, count=101)
        rota("cart", "cancel", cart, "--yes")
        advance(server, cart)

        asked = rota("cart", "retry", cart, "--skipped")

        assert refused(asked, 2, "run more than 100 items", "--yes")
        assert rota("cart", "retry", cart, "--skipped", "--yes").code == 0

    def test_retry_must_be_told_what(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)

        assert refused(rota("cart", "retry", cart), 2, "--from-wave K")

    def test_wave_is_approved_by_somebody_else(
        self, rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.OPERATOR])
        cart = submit(rota, server, "order: serial; between: {approve: operator}")
        work(server, cart, "COMPLETED")
        waiting = rota("cart", "show", cart)

        own = rota("cart", "approve", cart)
        monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.ADMIN])
        other = rota("cart", "approve", cart)
        advance(server, cart)

        assert "waiting: for approval" in waiting.out
        assert "of someone with the role operator" in waiting.out
        assert f"rota cart approve {cart}" in waiting.err
        assert own.code == 4
        assert other.code == 0
        assert other.err == f"wave 2 approved by admin · rota cart watch {cart}\n"
        assert states(rota, cart) == ["COMPLETED", "OPEN", "PENDING"]

    def test_cancelled_cart_skips_what_never_started(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        work(server, cart, "COMPLETED")
        held = server.claim()

        ended = rota("cart", "cancel", cart)
        server.finish(held, "CANCELLED")
        advance(server, cart)

        assert ended.err == f"{cart} is running: being cancelled now\n"
        assert states(rota, cart) == ["COMPLETED", "CANCELLED", "SKIPPED"]
        assert rota("cart", "cancel", cart).code == 5

    def test_what_is_running_may_finish(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        held = server.claim()

        rota("cart", "cancel", cart, "--let-running-finish")
        server.finish(held)
        advance(server, cart)

        assert states(rota, cart) == ["COMPLETED", "SKIPPED", "SKIPPED"]

    def test_cancelling_many_items_needs_consent(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server, count=101)

        assert refused(rota("cart", "cancel", cart), 2, "101 items that have not ended?", "--yes")
        assert rota("cart", "cancel", cart, "--yes").code == 0

    def test_limits_and_items_are_changed(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server, count=4)
        words = ["--max-parallel", "5", "--allow", "2", "--skip", "db-3", "--order", "db-1=7"]

        ended = rota("cart", "edit", cart, *words, "--json")

        shown = rota("cart", "items", cart, "--json").json["items"]
        assert (ended.json["max_parallel"], ended.json["failures"]["allow"]) == (5, 2)
        assert [(item["key"], item["wave"]) for item in shown if item["key"] == "db-1"] == [
            ("db-1", 7)
        ]
        assert states(rota, cart)[3] == "SKIPPED"
        assert "is changed, 1 item changed" in rota("cart", "edit", cart, "--skip", "db-2").err

    @pytest.mark.parametrize("words", [[], ["--order", "db-1"], ["--order", "db-1=x"]])
    def test_edit_must_be_told_what(
        self, rota: Console, server: Server, words: Iterable[str]
    ) -> None:
        cart = submit(rota, server)

        assert rota("cart", "edit", cart, *words).code == 2

    def test_opened_wave_cannot_be_edited(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)

        assert refused(rota("cart", "edit", cart, "--skip", "db-0"), 5, "opened already")

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (["pause"], 20),
            (["cancel"], 20),
            (["retry", "--failed"], 0),
            (["edit", "--skip", "db-1", "--max-parallel", "2", "--order", "db-2=9"], 20),
        ],
    )
    def test_rehearsal_changes_nothing(
        self, rota: Console, server: Server, words: list[str], code: int
    ) -> None:
        cart = submit(rota, server)
        before = rota("cart", "show", cart, "--json").json["version"]

        ended = rota("cart", *words, cart, "--dry-run")

        assert ended.code == code
        assert ended.err.startswith("would ")
        assert rota("cart", "show", cart, "--json").json["version"] == before

    def test_rehearsal_tells_counts_and_options(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        work(server, cart, "FAILED")

        def rehearsed(*words: str) -> str:
            return rota("cart", *words, cart, "--dry-run").err

        assert "would retry up to 1 item (failed, cause exit) of" in rehearsed(
            "retry", "--failed", "--cause", "exit"
        )
        assert rehearsed("resume", "--allow", "34%").endswith("paused now, so that 34% may fail\n")
        assert rehearsed("cancel").endswith(": 2 items not ended, what runs is stopped\n")
        assert rehearsed("pause").startswith(f"nothing to do: {cart} is paused: ")
