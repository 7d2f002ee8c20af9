from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.api.carts import CartDetail, WatchedCart
from rota.cli.cart_watching import ProgressDisplay, progress_line
from rota.cli.terminal import Terminal
from rota.sdk.exchange import read_as, to_json
from tests.unit.cli.console import Console
from tests.unit.sdk.answering import Answering, AnsweringServer, document, problem

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
CART = {"id": "c_1", "name": "fleet", "state": "RUNNING", "items": 1_000, "place": "4 of 13"}
FAR = {
    **CART,
    "completed": 103,
    "failed": 3,
    "failures_in_scope": 3,
    "open": 20,
    "limit": 20,
    "eta": "2026-06-01T15:52:00Z",
}
PLAN = {"name": "fleet", "items": 1, "order": "serial", "eta_seconds": 90.0}
FILE = """
jobs: [{name: up, steps: [{run: x}]}]
carts: [{name: fleet, job: up, items: [{key: a}]}]
"""
BEGUN = {"started_at": "2026-06-01T12:00:00Z", "ended_at": "2026-06-01T12:01:30Z"}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """A server whose carts are as a test wants them."""
    with AnsweringServer() as answering:
        monkeypatch.setenv("ROTA_URL", answering.url)
        monkeypatch.setenv("ROTA_TOKEN", "secret")
        yield answering


def cart(**fields: Any) -> CartDetail:
    return read_as(CartDetail, to_json({**FAR, **fields}))


def watched(rota: Console, fake: Answering, *words: str, **fields: Any) -> Any:
    """What watching a cart comes to that is found in this state."""
    fake.on("GET /carts/c_1", document({**FAR, **fields}))
    return rota("cart", "watch", "c_1", *words)


class TestExitCodes:
    def test_completed(self, rota: Console, fake: Answering) -> None:
        ended = watched(rota, fake, state="COMPLETED", completed=1_000, failed=0, **BEGUN)

        assert ended.code == 0
        assert ended.lines[-1] == f"✔ completed in 1 m 30 s · 1,000 items · {fake.url}/carts/c_1"
        assert ended.err == ""

    def test_failures_within_the_budget_are_fine_but_told(
        self, rota: Console, fake: Answering
    ) -> None:
        ended = watched(rota, fake, state="PARTIAL", completed=997)

        assert ended.code == 0
        assert ended.lines[-1].startswith("✔ partial · 3 failed, 20 may")
        assert "3 of 1,000 items failed, within what is allowed" in ended.err

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"state": "PARTIAL", "failed": 21, "breached": True}, 10),
            ({"state": "FAILED", "failed": 21}, 10),
            ({"state": "PARTIAL", "cancelled": 1}, 11),
            ({"state": "PARTIAL", "skipped": 1}, 11),
            ({"state": "CANCELLED"}, 11),
            ({"state": "PAUSED", "reason": "person"}, 13),
        ],
    )
    def test_other_ends(
        self, rota: Console, fake: Answering, fields: dict[str, Any], code: int
    ) -> None:
        ended = watched(rota, fake, **fields)

        assert ended.code == code
        assert ended.lines[-1].startswith(f"✖ {fields['state'].lower()}")

    def test_breach_says_what_to_type(self, rota: Console, fake: Answering) -> None:
        counts = {"failed": 21, "failures_in_scope": 21, "breached": True}
        ended = watched(rota, fake, state="PAUSED", reason="failures", **counts)

        assert ended.err.splitlines() == [
            "rota cart show c_1 --failed",
            "rota cart retry c_1 --failed",
            "rota cart resume c_1 --allow 21",
        ]

    def test_limit_that_holds_again_after_a_retry_is_not_lowered(
        self, rota: Console, fake: Answering
    ) -> None:
        ended = watched(rota, fake, state="PAUSED", reason="failures", breached=False)

        assert ended.err.splitlines()[-1] == "rota cart resume c_1"

    def test_time_is_up(self, rota: Console, fake: Answering) -> None:
        ended = watched(rota, fake, "--timeout", "1ms")

        assert ended.code == 12
        assert ended.err == "c_1 is still going · rota cart watch c_1\n"

    def test_interrupted_watching_leaves_the_cart_alone(
        self, rota: Console, fake: Answering, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("rota.sdk.client.pause", interrupt)

        ended = watched(rota, fake)

        assert ended.code == 130
        assert ended.err == "stopped watching; c_1 goes on · rota cart watch c_1\n"

    def test_server_that_is_away_for_a_moment_is_waited_for(
        self, rota: Console, fake: Answering
    ) -> None:
        seen, away = document(FAR), problem(503, detail="restarting")
        fake.on("GET /carts/c_1", seen, away, away, document({**FAR, "state": "COMPLETED"}))

        assert rota("cart", "watch", "c_1").code == 0

    def test_programs_get_a_line_for_each_time_the_cart_stands_in_another_way(
        self, rota: Console, fake: Answering
    ) -> None:
        seen, done = document(FAR), document({**FAR, "state": "COMPLETED"})
        fake.on("GET /carts/c_1", seen, seen, done)

        ended = rota("cart", "watch", "c_1", "--json")

        told = [json.loads(line) for line in ended.lines]
        assert [(each["event"], each["data"]["state"]) for each in told] == [
            ("cart", "RUNNING"),
            ("end", "COMPLETED"),
        ]
        assert ended.err == ""


class TestSubmitAndWatch:
    @pytest.fixture(autouse=True)
    def submittable(self, fake: Answering) -> None:
        Path("fleet.yaml").write_text(FILE)
        fake.on("GET /carts/c_1", document({**FAR, "state": "COMPLETED"}))

    def test_watching_goes_on_after_the_submit(self, rota: Console, fake: Answering) -> None:
        fake.on("POST /carts", document(PLAN), document(CART, 202))

        ended = rota("cart", "submit", "fleet.yaml", "--yes", "--watch")

        assert ended.code == 0
        assert ended.lines[-1].startswith("✔ completed")
        assert [asked.method for asked in fake.asked[:2]] == ["POST", "POST"]

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """Puts a person before the terminal, who will say this."""

        def say(word: str) -> None:
            monkeypatch.setattr(Terminal, "has_person", True)
            monkeypatch.setattr("sys.stdin", io.StringIO(f"{word}\n"))

        return say

    def test_person_who_agrees_is_shown_what_comes_of_it(
        self, rota: Console, fake: Answering, answer: Callable[[str], None]
    ) -> None:
        fake.on("POST /carts", document(PLAN), document(CART, 202))
        answer("y")

        ended = rota("cart", "submit", "fleet.yaml")

        assert ended.code == 0
        assert ended.err.splitlines()[:2] == [
            "cart fleet · 1 item · one after another · up to 0 may fail, the 1st pauses",
            "forecast: about 1 m 30 s",
        ]
        assert "start now? [y/N] cart c_1" in ended.err
        assert ended.lines[-1].startswith("✔ completed")

    def test_person_who_plans_ahead_is_not_kept(
        self, rota: Console, fake: Answering, answer: Callable[[str], None]
    ) -> None:
        fake.on("POST /carts", document(PLAN), document({**CART, "state": "PLANNED"}, 202))
        answer("y")

        ended = rota("cart", "submit", "fleet.yaml", "--at", "2099-01-01T00:00Z")

        assert "start at 2099-01-01 00:00:00 UTC? [y/N] " in ended.err
        assert ended.out == "cart c_1 planned · fleet · 1,000 items\n"

    def test_person_who_does_not_agree_changes_nothing(
        self, rota: Console, fake: Answering, answer: Callable[[str], None]
    ) -> None:
        fake.on("POST /carts", document(PLAN))
        answer("")

        ended = rota("cart", "submit", "fleet.yaml")

        assert ended.code == 2
        assert "nothing was changed" in ended.err
        assert [asked.query["plan"] for asked in fake.asked] == [["true"]]

    def test_project_of_the_file_is_the_cart_s(self, rota: Console, fake: Answering) -> None:
        Path("fleet.yaml").write_text(f"project: payments\n{FILE}")
        fake.on("POST /carts", document(PLAN), document(CART, 202))

        rota("cart", "submit", "fleet.yaml", "--yes")

        assert [asked.query["project"] for asked in fake.asked] == [["payments"], ["payments"]]

    def test_template_is_submitted_by_its_name(self, rota: Console, fake: Answering) -> None:
        fake.on("POST /carts", document(PLAN), document(CART, 202))

        ended = rota("cart", "submit", "fleet", "--set", "version=16.3", "--yes", "-o", "name")

        assert ended.lines == ["c_1"]
        assert fake.asked[0].document == {"template": "fleet", "with": {"version": "16.3"}}


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def display(
    stream: io.StringIO, *, plain: bool = False, width: int | None = 120
) -> ProgressDisplay:
    return ProgressDisplay(Terminal(stream, io.StringIO(), False, plain, width), stream)


RUNNING = (
    {
        "key": "db-007",
        "run": "r_1",
        "state": "PROCESSING",
        "started_at": "2026-06-01T11:59:00Z",
        "progress": {"done": 45.0, "total": 100.0, "message": "of orders"},
        "note": {"step": "copy", "step_started_at": "2026-06-01T11:59:48Z"},
    },
    {
        "key": "db-8",
        "run": "r_2",
        "state": "PROCESSING",
        "started_at": "2026-06-01T11:58:58Z",
        "note": {"step": "restart", "last_line": "waiting for postgres"},
    },
    {"key": "db-9", "run": "r_3", "state": "CLAIMED"},
)


def watched_cart(*running: dict[str, Any], **fields: Any) -> WatchedCart:
    return read_as(WatchedCart, to_json({**FAR, **fields, "running": running}))


class TestProgress:
    def test_line_has_wave_bar_counts_and_eta(self) -> None:
        assert progress_line(cart(), NOON) == (
            "wave 4/13  ██░░░░░░░░░░░░░░░░░░  106/1,000  ✔ 103  ✖ 3  ▶ 20  ETA 15:52 UTC"
        )

    def test_end_on_another_day_has_its_date(self) -> None:
        late = cart(eta="2026-06-02T03:52:00Z")

        assert progress_line(late, NOON).endswith("ETA 2026-06-02 03:52 UTC")

    def test_cart_that_stands_still_says_why(self) -> None:
        waiting = cart(state="WAITING", reason="approval")

        assert progress_line(waiting, NOON).endswith("▶ 20  waiting: for approval")

    def test_line_is_drawn_over_itself_on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        screen = Screen()
        shown = display(screen, width=40)

        for completed in (103, 103, 104):
            shown.take(cart(completed=completed))
        shown.end_line()

        first, second = screen.getvalue().split("\r")
        assert first == "wave 4/13  ██░░░░░░░░░░░░░░░░░░  106/1…"
        assert second == "\x1b[Jwave 4/13  ██░░░░░░░░░░░░░░░░░░  107/1…\n"

    def test_items_that_run_are_below_the_bar_with_step_and_progress(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr("rota.cli.times.now", lambda: NOON)
        screen = Screen()
        shown = display(screen, width=80)

        shown.take(watched_cart(*RUNNING, open=20))
        shown.end_line()

        assert screen.getvalue().splitlines()[1:] == [
            "  ▶ db-007  copy  12 s  █████████░░░░░░░░░░░  45%  of orders",
            "  ▶ db-8    restart  1 m 02 s  | waiting for postgres",
            "  ▶ db-9    claimed",
            "    … and 17 more",
        ]

    def test_items_that_run_go_with_each_line_where_nothing_can_be_drawn(self) -> None:
        log = io.StringIO()

        display(log, width=None).take(watched_cart(RUNNING[0]))

        assert len(log.getvalue().splitlines()) == 3
        assert "\x1b" not in log.getvalue()

    def test_elsewhere_a_line_comes_with_each_step(self) -> None:
        log = io.StringIO()
        shown = display(log, plain=True, width=None)

        for completed in (103, 104, 105, 160):
            shown.take(cart(completed=completed))
        shown.take(cart(completed=160, state="PAUSED", reason="failures"))
        shown.end_line()

        assert [line.split("  ")[2] for line in log.getvalue().splitlines()] == [
            "106/1,000",
            "163/1,000",
            "163/1,000",
        ]
        assert "##.................." in log.getvalue()
        assert log.getvalue().isascii()

    def test_a_thousand_waves_are_not_a_thousand_lines(self) -> None:
        log = io.StringIO()
        shown = display(log)

        for number in range(1_000):
            shown.take(cart(completed=number, failed=0, place=f"{number + 1} of 1000"))

        assert len(log.getvalue().splitlines()) == 20
