"""Carts that are planned and handed in."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rota.cli import times
from tests.unit.cli.carts import JOBS, cart_file, refused, submit
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server


class TestSubmitting:
    def test_cart_of_a_file_starts(self, rota: Console, server: Server) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file("order: groups; group_size: [1, 2]", count=7))

        ended = rota("cart", "submit", "fleet.yaml")

        assert ended.code == 0
        assert ended.out.startswith("cart c_")
        assert ended.out.endswith(" planned · fleet · 7 items\n")
        assert "7 items · waves 1, 2 × 3 · up to 0 may fail, the 1st pauses" in ended.err
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

    @pytest.mark.parametrize("at", ["2020-06-01T22:00:00+02:00", "5m ago", "soon"])
    def test_time_that_has_passed_or_is_none_starts_nothing(
        self, rota: Console, server: Server, at: str
    ) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file())

        for verb in ("plan", "submit"):
            ended = rota("cart", verb, "fleet.yaml", "--at", at)
            assert ended.code == 2
            assert at in ended.err
            assert "--at" in ended.err
        assert rota("cart", "list", "-o", "name").lines == []

    def test_time_without_an_offset_is_on_the_readers_clocks(
        self, rota: Console, server: Server
    ) -> None:
        server.define(JOBS)
        Path("fleet.yaml").write_text(cart_file())
        words = ("cart", "plan", "fleet.yaml", "--json", "--at")

        by_date = rota(*words, "2099-06-01 22:00", "--tz", "Europe/Berlin").json
        by_length = rota(*words, "30m").json

        assert by_date["starts_at"].startswith("2099-06-01T20:00:00")
        wait = datetime.fromisoformat(by_length["starts_at"]) - times.now()
        assert timedelta(minutes=28) < wait <= timedelta(minutes=30)

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

        assert (ended.code, ended.out) == (20, "")
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
