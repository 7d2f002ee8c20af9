from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.unit.cli.console import Console, Ended
from tests.unit.cli.server import Server

from rota.domain.ids import CartId
from rota.ports.records import Role

JOBS = """
jobs:
  - name: upgrade
    inputs: {host: {type: string, default: none}, version: {type: integer, default: 16}}
    steps: [{run: "true"}]
  - {name: smoke, steps: [{run: "true"}]}
"""
SERIAL = "order: serial"
ALL_AT_ONCE = "order: parallel"


def cart_file(rules: str = SERIAL, items: str = "", *, count: int = 3, jobs: str = JOBS) -> str:
    """A file with one cart; its items are `db-0`, `db-1`, … unless they are given."""
    listed = ", ".join(f"{{key: db-{number}}}" for number in range(count))
    source = items or f"items: [{listed}]"
    cart = ["name: fleet", "job: upgrade", *rules.split("; "), source]
    return jobs + "carts:\n  - " + "\n    ".join(cart) + "\n"


def submit(rota: Console, server: Server, rules: str = SERIAL, *, count: int = 3) -> str:
    """The id of a cart that has begun."""
    server.define(JOBS)
    Path("fleet.yaml").write_text(cart_file(rules, count=count))
    cart = rota("cart", "submit", "fleet.yaml", "--yes", "-o", "name").out.strip()
    advance(server, cart)
    return cart


def advance(server: Server, cart: str) -> None:
    while server.do(server.backends.store.advance_cart(CartId(cart), None)).has_more:
        pass


def work(server: Server, cart: str, *results: str) -> None:
    """Let items end, one after another."""
    for result in results:
        server.finish(server.claim(), result)
        advance(server, cart)


def states(rota: Console, cart: str) -> list[str]:
    return [item["state"] for item in rota("cart", "items", cart, "--json").json["items"]]


def refused(ended: Ended, code: int, *words: str) -> bool:
    return ended.code == code and all(word in ended.err for word in words)


class TestSubmitting:
    def test_cart_of_a_file_starts(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file("order: groups; group_size: [1, 2]", count=7))

        ended = rota("cart", "submit", "fleet.yaml")

        assert ended.code == 0
        assert ended.out.startswith("cart c_")
        assert ended.out.endswith(" planned · fleet · 7 items\n")
        assert "7 items · groups 1, 2 × 3 · up to 0 may fail, the 1st pauses" in ended.err
        assert "rota cart watch c_" in ended.err

    def test_items_come_from_a_table_beside_the_file(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("there").mkdir()
        Path("there/fleet.yaml").write_text(cart_file(items="items_from: fleet.csv"))
        Path("there/fleet.csv").write_text("key,host,version\na,db-a,15\nb,db-b,\n")

        rota("cart", "submit", "there/fleet.yaml")

        items = rota("cart", "items", "fleet", "--json").json["items"]
        assert [item["inputs"] for item in items] == [
            {"host": "db-a", "version": 15},
            {"host": "db-b", "version": 16},
        ]

    def test_inputs_for_every_item_are_set_over_their_own(
        self, rota: Console, server: Server
    ) -> None:
        server.define(JOBS)
        listed = "items: [{key: a, with: {host: a, version: 15}}, {key: b, with: {host: b}}]"
        Path("fleet.yaml").write_text(cart_file(items=listed))

        rota("cart", "submit", "fleet.yaml", "--set", "version=17")

        items = rota("cart", "items", "fleet", "--json").json["items"]
        assert [item["inputs"]["version"] for item in items] == [17, 17]
        assert [item["inputs"]["host"] for item in items] == ["a", "b"]

    def test_table_need_not_have_what_is_set(self, rota: Console, server: Server) -> None:
        jobs = JOBS.replace("{type: integer, default: 16}", "{type: integer}")
        server.define(jobs)
        Path("fleet.yaml").write_text(cart_file(items="items_from: fleet.csv", jobs=jobs))
        Path("fleet.csv").write_text("key,host\na,a\n")

        without = rota("cart", "submit", "fleet.yaml")
        with_it = rota("cart", "submit", "fleet.yaml", "--set", "version=17")

        assert refused(without, 6, "fleet.csv:2", 'input "version" must be given')
        assert with_it.code == 0

    def test_every_bad_line_of_a_table_is_told(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file(items="items_from: fleet.csv"))
        Path("fleet.csv").write_text("key,host,version\na,a,15\n,b,16\nc,c,many\na,d,1\n")

        ended = rota("cart", "submit", "fleet.yaml")

        assert ended.code == 6
        assert [line.split("  ")[0] for line in ended.err.splitlines()[:3]] == [
            "fleet.csv:3",
            "fleet.csv:4",
            "fleet.csv:5",
        ]
        assert "nothing was changed" in ended.err

    def test_errors_of_the_job_file_have_line_and_column(
        self, rota: Console, server: Server
    ) -> None:
        Path("fleet.yaml").write_text(cart_file("ordr: groups"))

        assert refused(rota("cart", "submit", "fleet.yaml"), 6, "fleet.yaml:10:5", '"order"')

    def test_what_only_the_server_can_refuse_is_told_by_item(
        self, rota: Console, server: Server
    ) -> None:
        server.define(JOBS)
        no_jobs = cart_file(items="items: [{key: a, with: {hots: x}}]", jobs="jobs: []\n")
        Path("fleet.yaml").write_text(no_jobs)

        assert refused(rota("cart", "submit", "fleet.yaml"), 6, "fleet.yaml:items[0] (a)", "hots")

    def test_unknown_job_is_to_be_applied_first(self, rota: Console, server: Server) -> None:
        Path("fleet.yaml").write_text(cart_file())
        Path("bare.yaml").write_text(cart_file(jobs="jobs: []\n"))

        ours = rota("cart", "submit", "fleet.yaml")
        nobodys = rota("cart", "submit", "bare.yaml")

        assert refused(ours, 3, "there is no job upgrade", "rota apply fleet.yaml")
        assert refused(nobodys, 3, "there is no job upgrade", "rota job list")

    def test_one_of_several_carts_is_chosen(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        second = "  - {name: other, job: upgrade, items: [{key: x}]}\n"
        Path("two.yaml").write_text(cart_file() + second)

        open_choice = rota("cart", "submit", "two.yaml")
        wrong_choice = rota("cart", "submit", "two.yaml", "--cart", "third")
        made = rota("cart", "submit", "two.yaml", "--cart", "other", "--json")

        assert refused(open_choice, 3, "fleet, other", "--cart NAME")
        assert refused(wrong_choice, 3, "no cart third", "fleet, other")
        assert (made.json["name"], made.json["items"]) == ("other", 1)

    def test_file_without_a_cart_is_refused(self, rota: Console, server: Server) -> None:
        Path("jobs.yaml").write_text(JOBS)

        assert refused(rota("cart", "plan", "jobs.yaml"), 6, "jobs.yaml:1:1", 'no "carts"')

    def test_missing_file_is_not_taken_for_a_name(self, rota: Console, server: Server) -> None:
        assert refused(rota("cart", "submit", "fleet.yaml"), 3, "there is no file fleet.yaml")

    def test_missing_file_of_items_is_told_at_the_line_of_its_cart(
        self, rota: Console, server: Server
    ) -> None:
        Path("fleet.yaml").write_text(cart_file(items="items_from: flet.csv"))
        Path("fleet.csv").write_text("key\na\n")

        ended = rota("cart", "submit", "fleet.yaml")

        said = "fleet.yaml:8  there is no file flet.csv — did you mean fleet.csv?"
        assert refused(ended, 6, said)

    def test_file_of_nearly_that_name_is_suggested(self, rota: Console, server: Server) -> None:
        Path("fleet.yaml").write_text(cart_file())

        assert refused(rota("cart", "submit", "fleet.yml"), 3, "did you mean fleet.yaml?")

    def test_items_from_live_workers_are_the_server_s_to_find(
        self, rota: Console, server: Server
    ) -> None:
        Path("fleet.yaml").write_text(cart_file(items="items_from: {workers: {site: fra}}"))

        assert refused(rota("cart", "submit", "fleet.yaml"), 2, "rota cart submit fleet")

    def test_schedule_of_the_file_is_left_aside_and_that_is_said(
        self, rota: Console, server: Server
    ) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file('order: serial; schedule: "0 2 * * *"'))

        ended = rota("cart", "submit", "fleet.yaml")

        assert ended.code == 0
        assert "its schedule is left aside" in ended.err

    def test_planned_maintenance_waits_for_its_time(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file())

        made = rota("cart", "submit", "fleet.yaml", "--at", "2099-06-01T22:00:00+02:00", "--json")

        assert made.json["state"] == "PLANNED"
        assert made.json["starts_at"].startswith("2099-06-01T20:00:00")
        assert "2099-06-01 20:00:00 UTC" in made.err

    @pytest.mark.parametrize("at", ["2020-06-01T22:00:00+02:00", "22:00"])
    def test_time_that_has_passed_or_is_none_starts_nothing(
        self, rota: Console, server: Server, at: str
    ) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file())

        for verb in ("plan", "submit"):
            assert refused(rota("cart", verb, "fleet.yaml", "--at", at), 2, f"--at {at}: ")
        assert rota("cart", "list", "-o", "name").lines == []

    def test_same_key_gives_the_same_cart(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file())

        words = ("cart", "submit", "fleet.yaml", "--key", "once", "-o", "name")

        assert rota(*words).out == rota(*words).out

    def test_second_cart_of_the_name_is_a_conflict(self, rota: Console, server: Server) -> None:
        submit(rota, server)

        assert rota("cart", "submit", "fleet.yaml").code == 5

    def test_many_items_need_consent(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file(count=101))

        ended = rota("cart", "submit", "fleet.yaml")

        assert refused(ended, 2, "start 101 items of cart fleet?", "--yes")
        assert rota("cart", "list", "-o", "name").lines == []
        agreed = rota("cart", "submit", "fleet.yaml", "--yes")
        assert (agreed.code, "101 items · one after another" in agreed.err) == (0, True)

    def test_rehearsal_changes_nothing(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file())

        ended = rota("cart", "submit", "fleet.yaml", "--dry-run")

        assert (ended.code, ended.out) == (0, "")
        assert "3 items · one after another" in ended.err
        assert rota("cart", "list", "-o", "name").lines == []

    @pytest.mark.parametrize("words", [["--set", "version"], ["--set", "=1"]])
    def test_misshapen_input_is_a_usage_error(
        self, rota: Console, server: Server, words: list[str]
    ) -> None:
        assert refused(rota("cart", "submit", "fleet.yaml", *words), 2, "NAME=VALUE")

    def test_choice_is_for_files(self, rota: Console, server: Server) -> None:
        assert rota("cart", "submit", "fleet", "--cart", "x").code == 2

    def test_cart_that_nobody_applied_is_not_found(self, rota: Console, server: Server) -> None:
        assert rota("cart", "submit", "fleet").code == 3
        assert rota("cart", "plan", "fleet", "--set", "a=b").code == 3


class TestPlan:
    def test_waves_limit_and_what_nobody_can_run(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file("order: parallel; failures: {allow: 2%}", count=99))

        ended = rota("cart", "plan", "fleet.yaml")

        assert ended.lines == [
            "cart fleet · 99 items · all at once · up to 1 may fail (2%), the 2nd pauses",
            "forecast: nobody knows how long its jobs take",
            "! upgrade: no live worker of pool default can run it",
        ]

    def test_forecast_from_what_is_known_of_the_job(self, rota: Console, server: Server) -> None:
        jobs = JOBS.replace("name: upgrade", "name: upgrade\n    expect: 1m")
        server.define(jobs)
        Path("fleet.yaml").write_text(cart_file("order: parallel; max_parallel: 2", count=6))

        assert (
            rota("cart", "plan", "fleet.yaml").lines[1] == "forecast: about 3 m 00 s, 2 at a time"
        )

    def test_plan_for_programs(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file())

        assert rota("cart", "plan", "fleet.yaml", "--json").json["wave_count"] == 3
        assert rota("cart", "plan", "fleet.yaml", "-o", "name").lines == ["fleet"]


class TestLooking:
    def test_list_says_how_far_each_is(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)
        work(server, cart, "FAILED")

        [heading, line] = rota("cart", "list").lines

        assert heading.split() == ["CART", "NAME", "STATE", "ENDED", "FAILED", "STARTED", "DETAIL"]
        assert line.split()[:7] == [cart, "fleet", "paused", "1", "of", "3", "1"]
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

    def test_open_item_has_the_state_of_its_run(self, rota: Console, server: Server) -> None:
        cart = submit(rota, server)

        first = rota("cart", "items", cart).lines[1].split()

        assert first[:3] == ["db-0", "1", "queued"]
        assert f"cart     {cart} · db-0" in rota("run", "show", first[3]).lines


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
        "words",
        [
            ["pause"],
            ["resume"],
            ["approve"],
            ["cancel"],
            ["retry", "--failed"],
            ["edit", "--skip", "db-1", "--max-parallel", "2", "--order", "db-2=9"],
        ],
    )
    def test_rehearsal_changes_nothing(
        self, rota: Console, server: Server, words: list[str]
    ) -> None:
        cart = submit(rota, server)
        before = rota("cart", "show", cart, "--json").json["version"]

        ended = rota("cart", *words, cart, "--dry-run")

        assert ended.code == 0
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
        assert rehearsed("resume", "--allow", "5%").endswith("paused now, so that 5% may fail\n")
        assert rehearsed("cancel").endswith(": 2 items not ended, what runs is stopped\n")
