from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from bench import compare, costs

BENCH = Path(compare.__file__).parent
TURNS = [({"drain": 100.0}, {"drain": 60.0}), ({"drain": 120.0}, {"drain": 50.0})]


def test_a_line_tells_what_a_run_costs_before_and_after() -> None:
    [cost] = compare.costs_of("P1", TURNS)

    assert (cost.before.median, cost.after.median) == (110, 55)
    assert cost.ratio == 0.5


def test_table_shows_both_costs_their_spread_and_the_ratio() -> None:
    line = compare.render(compare.costs_of("P1", TURNS)).splitlines()[-1]

    assert re.split(r"  +", line) == [
        "P1", "drain", "110 µs (100–120)", "55.0 µs (50.0–60.0)", "0.50 ×"
    ]  # fmt: skip


def test_every_workload_that_can_be_compared_has_its_costs() -> None:
    assert set(compare.WORKLOADS) == set(costs.MEASURES)


def test_a_checkout_without_an_environment_is_refused_with_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path)])

    assert "has no .venv: run `make dev` there first" in capsys.readouterr().err


def test_an_unknown_workload_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path), "P7"])

    assert "no such workload: P7" in capsys.readouterr().err


def test_a_failing_turn_is_told_with_its_checkout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)

    code = compare.main([str(tmp_path), "P5", "--turns=1"])

    assert code == 1
    assert f"P5 failed in {tmp_path} (exit code 3)" in capsys.readouterr().out


def test_costs_import_nothing_that_a_rebuilt_checkout_may_have_elsewhere() -> None:
    """At run time only `bench`: where things are in `rota` differs between checkouts."""
    tree = ast.parse((BENCH / "costs.py").read_text())

    imported = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]

    assert [name for name in imported if name.split(".")[0] == "rota"] == []
