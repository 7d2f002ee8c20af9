"""Carts and items that are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.carts import ALL_AT_ONCE, JOBS, advance, cart_file, refused, submit, work
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server


class TestLooking:
    def test_list_says_how_far_each_is(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        work(server, cart, "FAILED")

        [heading, line] = rota("cart", "list").lines

        assert heading.split() == ["CART", "NAME", "STATE", "ENDED", "FAILED", "STARTED", "DETAIL"]
        assert line.split()[:7] == [cart[:8], "fleet", "paused", "1", "of", "3", "1"]
        assert line.endswith("too many failed")

    def test_list_is_narrowed_by_filters(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)

        found = [
            rota("cart", "list", *words, "-o", "name").lines
            for words in (
                ["--where", "name:fl*"],
                ["--active"],
                ["--state", "running"],
                ["--state", "paused"],
            )
        ]

        assert found == [[cart], [cart], [cart], []]

    def test_an_item_that_waits_for_its_worker_says_so(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        items = "items: [{key: front, needs: {worker: web-1}}]"
        Path("fleet.yaml").write_text(cart_file("within: 10m", items))
        cart = rota("cart", "submit", "fleet.yaml", "--yes", "-o", "name").out.strip()
        advance(server, cart)

        planned = rota("cart", "plan", "fleet.yaml").out
        shown = rota("cart", "show", cart).out
        watched = rota("cart", "watch", cart, "--timeout", "1ms").out

        told = "front waits for worker web-1, which pool default does not have; it fails in "
        assert "! front: no live worker of pool default can run it (needs worker=web-1)" in planned
        assert "within     10m for a worker that is gone" in shown
        assert f"\n{told}" in shown
        assert f"  · {told}" in watched
        assert "worker=web-1" in rota("cart", "items", cart, "-o", "wide").out

    def test_no_carts_say_how_to_get_one(self, rota: Console, server: Server) -> None:
        assert "rota cart submit FILE" in rota("cart", "list").err

    @pytest.mark.parametrize(
        "form", ["{cart}", "{prefix}", "{bare}", "{url}/carts/{cart}", "/carts/{cart}", "fleet"]
    )
    def test_cart_is_found_by_every_form_of_its_name(
        self, rota: Console, server: Server, form: str
    ) -> None:
        cart = submit(rota, server)
        forms = {"cart": cart, "prefix": cart[:10], "bare": cart[2:], "url": server.url}

        assert rota("cart", "show", form.format(**forms), "-o", "name").out.strip() == cart

    @pytest.mark.parametrize(
        "words",
        [
            ["show"],
            ["watch"],
            ["items"],
            ["pause"],
            ["resume"],
            ["approve"],
            ["cancel"],
            ["retry", "--failed"],
            ["edit", "--max-parallel", "2"],
        ],
    )
    def test_unknown_cart_is_not_found(
        self, rota: Console, server: Server, words: list[str]
    ) -> None:
        assert rota("cart", *words, "c_nope").code == 3

    def test_page_has_progress_budget_and_what_to_type(self, rota: Console, server: Server) -> None:
        rules = "order: serial; failures: {allow: 50%}; between: {wait: 10m, approve: admin}"
        cart = submit(rota, server, rules)
        work(server, cart, "FAILED")

        ended = rota("cart", "show", cart)

        shown = dict(line.split("  ", 1) for line in ended.lines if "  " in line)
        assert {name: text.strip() for name, text in shown.items()} | {
            "cart": cart,
            "state": "waiting: between two waves",
            "items": "3: 1 failed, 2 pending",
            "wave": "1 of 3",
            "failures": "1 of 1 allowed (50%)",
            "between waves": "wait 10m, approval by admin",
            "will end": "after approval",
        } == {name: text.strip() for name, text in shown.items()}
        assert "1 × exit 1 (db-0, r_" in ended.out

    def test_check_that_failed_is_named(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server, "order: serial; between: {check: smoke}")
        work(server, cart, "COMPLETED", "FAILED")

        ended = rota("cart", "show", cart)

        [check] = [run for run in rota("run", "list", "--json").json["items"] if not run["item"]]
        assert "paused: the check did not complete" in ended.out
        assert f"rota logs {check['id']}" in ended.err

    def test_wave_of_which_too_many_failed_is_not_forgotten(
        self, rota: Console, server: Server
    ) -> None:
        rules = "rollback: smoke; failures: {of: wave, then: continue}; order: serial"
        cart = submit(rota, server, rules)
        work(server, cart, "FAILED", "COMPLETED", "COMPLETED")

        shown, watched = rota("cart", "show", cart), rota("cart", "watch", cart)

        assert "0 of 0 of the wave allowed, but too many of an earlier wave" in shown.out
        assert (watched.code, "too many of an earlier wave failed;" in watched.out) == (10, True)
        assert f"rota cart rollback {cart}" in watched.err

    def test_failed_items_are_named(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        work(server, cart, "FAILED")

        for_people = rota("cart", "show", cart, "--failed")
        for_programs = rota("cart", "show", cart, "--failed", "--json")

        assert for_people.lines[-1].split()[:3] == ["db-0", "1", "failed"]
        assert f"rota cart retry {cart} --failed" in for_people.err
        assert [item["key"] for item in for_programs.json["items"]] == ["db-0"]

    def test_cart_without_failures_says_so(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)

        assert "no item failed" in rota("cart", "show", cart, "--failed").err

    def test_items_are_narrowed(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        work(server, cart, "FAILED")

        def keys(*words: str) -> list[str]:
            return rota("cart", "items", cart, *words, "-o", "name").lines

        assert keys() == ["db-0", "db-1", "db-2"]
        assert keys("--state", "failed") == ["db-0"]
        assert keys("--state", "failed", "--state", "pending", "--wave", "2") == ["db-1"]
        assert keys("--cause", "EXIT") == ["db-0"]
        assert keys("--limit", "2") == ["db-0", "db-1"]

    def test_events_tell_who_did_what(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        rota("cart", "pause", cart)

        told = [line.split() for line in rota("cart", "events", cart).lines]

        assert [words[-1] for words in told if "cart.paused" in words] == ["admin"]

    def test_unknown_cause_is_answered_with_those_there_are(
        self, rota: Console, server: Server
    ) -> None:
        cart = submit(rota, server)
        work(server, cart, "FAILED")

        assert refused(rota("cart", "items", cart, "--cause", "disk"), 3, "causes: exit 1")

    def test_open_items_of_a_paused_cart_are_told_by_what_became_of_their_runs(
        self, rota: Console, server: Server
    ) -> None:
        cart = submit(rota, server, f"{ALL_AT_ONCE}; max_parallel: 2")
        server.claim()
        rota("cart", "pause", cart)
        advance(server, cart)

        shown = [line.split(maxsplit=1) for line in rota("cart", "show", cart).lines]
        watched = rota("cart", "watch", cart).lines

        assert ["items", "3: 2 open (1 blocked, 1 processing), 1 pending"] in shown
        assert "▶ 1  1 not started  paused: by a person" in watched[0]

    def test_open_item_has_the_state_of_its_run(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)

        first = rota("cart", "items", cart).lines[1].split()

        assert first[:3] == ["db-0", "1", "blocked"]  # there is no worker
        shown = [line.split() for line in rota("run", "show", first[3]).lines]
        assert ["cart", cart, "·", "db-0"] in shown


@pytest.mark.parametrize("verb", ["show", "watch", "items", "events", "pause", "resume"])
def test_mistyped_cart_gets_the_nearest_one(rota: Console, server: Server, verb: str) -> None:
    submit(rota, server)

    ended = rota("cart", verb, "fleeet")

    assert ended.code == 3
    assert ended.err == "rota: no cart 'fleeet'\n  did you mean \"fleet\"?\n"
