from __future__ import annotations

from pathlib import Path

import pytest

from rota.adapters.executors.environment import told_by_rota
from rota.domain.errors import Invalid
from rota.domain.jobfile import read_job
from rota.guardian.processes import MARKER_VARIABLE
from rota.ports.executor import Assignment
from rota.ports.work import Work
from rota.runtime import config


@pytest.fixture(autouse=True)
def _no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_FILES", (tmp_path / "rota.toml",))


def complaints(**environ: str) -> list[str]:
    with pytest.raises(Invalid) as refused:
        config.load(environ=environ)
    return [str(problem) for problem in refused.value.problems]


def test_mistyped_variable_is_an_error_with_the_nearest_name() -> None:
    assert complaints(ROTA_LEAS="3s") == ['ROTA_LEAS  unknown setting — did you mean "ROTA_LEASE"?']


def test_variable_like_no_setting_says_where_they_are_listed() -> None:
    [complaint] = complaints(ROTA_XYZZY="1")

    assert "rota config show" in complaint


def test_every_problem_of_the_environment_is_told_at_once() -> None:
    told = complaints(ROTA_LEAS="3s", ROTA_SLOT="1", ROTA_POOL="a", SLOTS="x")

    assert [text.partition(" ")[0] for text in told] == ["ROTA_LEAS", "ROTA_SLOT"]


def test_secret_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")

    settings = config.load(environ={"ROTA_TOKEN_FILE": str(tmp_path / "token")})

    assert settings.token == "secret"


def test_what_rota_tells_its_jobs_and_processes_is_no_mistake() -> None:
    spec = read_job({"name": "tidy", "steps": [{"run": "x"}]})
    assignment = Assignment(Work("r_1", 1, "j_1", 1, 0), spec)
    told = told_by_rota(assignment, output=Path("output"), progress=Path("progress"))
    internal = dict.fromkeys(
        ("ROTA_CART", "ROTA_ITEM", "ROTA_GUARDIAN_FD", "ROTA_GUARDIAN_KILL_FD", MARKER_VARIABLE),
        "1",
    )

    assert config.load(environ=told | internal) == config.Settings()
