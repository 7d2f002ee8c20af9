"""Work that is watched: each step is seen while it runs, on a terminal, in a pipe, by a program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.sdk.answers import LinesNews, Run, RunDetail, StepNews
from rota.sdk.client import Client
from testkit.processes import RotaUp
from testkit.waiting import PATIENCE, eventually
from tests.system.jobs import apply, job
from tests.system.watchers import waits_for, watching

pytestmark = pytest.mark.timeout(90)

APP = """
import os, time
from rota import App

app = App()

@app.job()
def copy(ctx, gate: str) -> int:
    with ctx.step("count"):
        print("counted")
    with ctx.step("copy"):
        ctx.progress(45, 100, "of orders")
        while not os.path.exists(gate):
            time.sleep(0.05)
    return 1
"""


class TestCommand:
    @pytest.mark.parametrize("columns", [80, None], ids=["terminal", "pipe"])
    def test_each_step_is_seen_while_it_runs(
        self, shared: RotaUp, tmp_path: Path, columns: int | None
    ) -> None:
        built, tested = tmp_path / "built", tmp_path / "tested"
        steps = [
            {"name": "Build", "run": waits_for(built, "echo compiling")},
            {"name": "Test", "run": waits_for(tested, 'echo 45/100 half > "$ROTA_PROGRESS"')},
        ]
        apply(shared.client, job("ci", *steps))

        with watching(shared, "trigger", "ci", "--watch", columns=columns) as watcher:
            watcher.sees("    | compiling")
            first = watcher.sees("Build  ▶" if columns is None else "▶ Build  ")
            built.touch()
            second = watcher.sees("Test   ▶" if columns is None else "▶ Test  ")
            watcher.sees("█████████░░░░░░░░░░░  45%")
            tested.touch()
            code = watcher.ended()

        assert "✔" not in first.partition("Build")[2].partition("Test")[0]
        assert "Test" not in first
        assert "  Build  ✔ " in second
        assert code == 0
        assert "✔ completed in " in watcher.told
        if columns is None:
            assert "\x1b" not in watcher.told
        else:
            drawn = watcher.told.replace("\x1b[J", "\r").replace("\n", "\r").split("\r")
            # What happened is not cut, where it has ids and addresses to copy.
            assert max(len(line) for line in drawn if "r_" not in line) < columns

    def test_interrupt_leaves_the_run_alone_and_the_screen_tidy(
        self, shared: RotaUp, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        apply(shared.client, job("kept", {"name": "Wait", "run": waits_for(gate)}))

        with watching(shared, "trigger", "kept", "-w", columns=80) as watcher:
            watcher.sees("▶ Wait")
            code = watcher.interrupt()
        [run] = shared.client.list_runs(job="kept", active=True).items
        gate.touch()

        assert code == 130
        assert f"stopped watching; {run.id} goes on · rota run watch {run.id}" in watcher.told
        assert shared.client.wait(run.id, PATIENCE.total_seconds()).state == "COMPLETED"

    def test_each_thing_that_happens_is_a_line_for_programs(self, shared: RotaUp) -> None:
        apply(shared.client, job("said", {"name": "Say", "run": "echo hello"}))

        ended = shared.command("trigger", "said", "--watch", "-o", "json")

        told = [json.loads(line) for line in ended.stdout.splitlines()]
        names = [each["event"] for each in told if each["event"] != "run"]
        assert told[0]["event"] == "run"
        assert names == ["step", "lines", "step", "attempt", "end"]


class TestList:
    def test_what_goes_on_has_its_step_progress_and_last_line(
        self, shared: RotaUp, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        told = waits_for(gate, 'echo "3/4 nearly" > "$ROTA_PROGRESS"', "echo one", "echo two")
        apply(shared.client, job("listed", {"name": "Work", "run": told}))
        run = shared.client.trigger("listed")

        def row() -> str:
            lines = shared.command("ps").stdout.splitlines()
            found = next((line for line in lines if " listed " in line), "")
            return found if "two" in found and "75%" in found else ""

        listed = eventually(row)
        shown = shared.command("run", "show", run.id).stdout
        gate.touch()
        shared.client.wait(run.id, PATIENCE.total_seconds())

        assert "Work" in listed
        assert "2 lines so far" in shown
        assert "Work  ▶ " in shown


class TestProgram:
    def test_steps_and_lines_come_in_the_order_in_which_they_happened(
        self, client: Client, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        steps = [
            {"name": "one", "run": waits_for(gate, "echo a; printf b")},
            {"name": "two", "run": "echo c"},
        ]
        apply(client, job("ordered", *steps))
        told: list[str] = []

        for news in client.follow_run(client.trigger("ordered").id, PATIENCE.total_seconds()):
            match news:
                case StepNews():
                    told.append(f"{news.step.name} {news.step.result}")
                    gate.touch()
                case LinesNews():
                    told += [line.text for line in news.lines]
                case RunDetail():
                    told.append(news.state)
                case _:
                    pass

        steps_and_lines = [each for each in told if each != ""]
        assert steps_and_lines == [
            "one running",
            "a",
            "b",
            "one completed",
            "two running",
            "c",
            "two completed",
            "COMPLETED",
        ]

    def test_all_is_told_of_a_run_that_is_over(self, client: Client) -> None:
        apply(client, job("quick", {"name": "Say", "run": "echo hello"}))
        run = client.trigger("quick")
        client.wait(run.id, PATIENCE.total_seconds())

        told = list(client.follow_run(run.id, PATIENCE.total_seconds()))

        assert isinstance(told[0], Run)
        kinds = [type(each).__name__ for each in told[1:]]
        assert kinds == ["StepNews", "LinesNews", "StepNews", "Attempt", "RunDetail"]


@pytest.mark.slow
def test_steps_of_a_function_are_watched_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    rota = RotaUp(tmp_path / "home", environ={"PYTHONPATH": str(tmp_path)}, app="shop:app")
    gate = tmp_path / "gate"
    try:
        rota.start()
        assert rota.command("apply", "--app", "shop:app").returncode == 0
        with watching(rota, "trigger", "copy", "-i", f"gate={gate}", "-w", columns=80) as watcher:
            watcher.sees("45%  of orders")
            assert "▶ copy  " in watcher.sees("▶ copy  ")
            gate.touch()
            code = watcher.ended()
    finally:
        rota.close()

    assert "  count  ✔ " in watcher.told
    assert "    | counted" in watcher.told
    assert code == 0
