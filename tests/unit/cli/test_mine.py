"""`--mine` and `--created-by`: what is one's own, and for admins what is another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.access import Role
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

JOBS = """
jobs:
  - {name: often, schedule: every 10m, steps: [{run: x}]}
  - {name: tidy, steps: [{run: x}]}
"""


def be(monkeypatch: pytest.MonkeyPatch, server: Server, role: Role) -> None:
    monkeypatch.setenv("ROTA_TOKEN", server.secrets[role])


@pytest.fixture
def both(rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch) -> Console:
    """Jobs of an admin, and a run of one of them that an operator asked for."""
    Path("jobs.yaml").write_text(JOBS)
    assert rota("apply", "jobs.yaml", "--yes").code == 0
    be(monkeypatch, server, Role.OPERATOR)
    assert rota("trigger", "tidy").code == 0
    return rota


def test_mine_lists_what_is_ones_own(
    both: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota = both
    be(monkeypatch, server, Role.OPERATOR)
    theirs = [rota(*words, "--mine", "-o", "name").lines for words in lists()]
    be(monkeypatch, server, Role.ADMIN)
    admins = [rota(*words, "--mine", "-o", "name").lines for words in lists()]

    assert [len(lines) for lines in theirs] == [0, 1, 1, 0]
    assert [len(lines) for lines in admins] == [2, 0, 0, 0]


def test_an_admin_may_ask_for_another_and_nobody_else(
    both: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota = both
    be(monkeypatch, server, Role.OPERATOR)
    refused = [rota(*words, "--created-by", "admin") for words in (*lists(), ("forecast",))]
    be(monkeypatch, server, Role.ADMIN)
    listed = rota("run", "list", "--created-by", "operator", "-o", "name")

    assert {answer.code for answer in refused} == {4}
    assert len(listed.lines) == 1


def test_a_forecast_of_ones_own_leaves_others_out(
    both: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    be(monkeypatch, server, Role.ADMIN)
    mine = both("forecast", "--mine", "-o", "name").lines
    be(monkeypatch, server, Role.OPERATOR)
    theirs = both("forecast", "--mine", "-o", "name").lines

    assert "often" in mine
    assert "often" not in theirs


def test_only_one_of_both_can_be_asked_for(both: Console) -> None:
    refused = both("job", "list", "--mine", "--created-by", "admin")

    assert refused.code == 2
    assert "either --mine or --created-by" in refused.err


def lists() -> list[tuple[str, ...]]:
    return [("job", "list"), ("run", "list"), ("ps",), ("cart", "list")]
