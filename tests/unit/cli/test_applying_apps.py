"""Jobs that come from an app of the SDK."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

MODULE = "some_shop"
SHOP = """
from rota import App, cron

app = App("shop")

@app.job(schedule=cron("0 2 * * *"))
def restock(shelf: str = "a") -> int:
    return 3
"""
SECOND_JOB = """
@app.job()
def clean() -> None: ...
"""


@pytest.fixture(autouse=True)
def _imports_nothing_for_good(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield
    sys.modules.pop(MODULE, None)


def write(text: str) -> str:
    """The reference of an app in a module of the current folder."""
    sys.modules.pop(MODULE, None)
    Path(f"{MODULE}.py").write_text(text)
    return f"{MODULE}:app"


def test_jobs_of_an_app_are_planned_and_applied_as_a_set_of_its_name(
    rota: Console, server: Server
) -> None:
    shop = write(SHOP)

    planned, applied = rota("apply", "--app", shop, "--plan"), rota("apply", "--app", shop)

    assert (planned.code, applied.code) == (20, 0)
    assert planned.out.startswith("+ restock  new")
    assert f"Apply with: rota apply --app {shop} --if-match " in planned.err
    job = rota("job", "show", "restock", "--json").json
    assert (job["set"], job["type"]) == ("shop", "python")


def test_job_that_an_app_lost_is_pruned(rota: Console, server: Server) -> None:
    rota("apply", "--app", write(SHOP + SECOND_JOB))

    ended = rota("apply", "--app", write(SHOP), "--prune", "--yes")

    assert ended.out.splitlines()[-1].startswith("- clean    removed")


def test_app_and_file_are_applied_together(rota: Console, server: Server) -> None:
    Path("jobs.yaml").write_text("jobs: [{name: tidy, steps: [{run: x}]}]")

    assert rota("apply", "jobs.yaml", "--app", write(SHOP)).code == 0
    assert rota("job", "list", "-o", "name").lines == ["restock", "tidy"]


def test_problem_of_an_app_s_job_is_told_by_its_path(rota: Console, server: Server) -> None:
    shop = write(SHOP.replace("0 2 * * *", "0 25 * * *"))

    ended = rota("apply", "--app", shop)

    assert ended.code == 6
    assert ended.err.startswith(f"{shop}:jobs[0].schedule  ")
    assert "hour 25 does not exist" in ended.err


@pytest.mark.parametrize(
    ("text", "reference", "told"),
    [
        (SHOP, "no_such_module:app", 'there is no module "no_such_module"'),
        (SHOP, f"{MODULE}.py:app", f'"{MODULE}.py" is not the name of a module: for shop/jobs.py'),
        (SHOP, f"{MODULE}:restack", f'{MODULE}.py has no "restack"; did you mean {MODULE}:app?'),
        ("app = None", f"{MODULE}:app", f"{MODULE}:app is not an App: it is None"),
        ("\n1 / 0", f"{MODULE}:app", f"{MODULE}.py:2: ZeroDivisionError: division by zero"),
        ("\nimport no_such", f"{MODULE}:app", f'{MODULE}.py:2: there is no module "no_such"'),
        ("\n\napp = (", f"{MODULE}:app", f"{MODULE}.py:3: '(' was never closed"),
        ("import sys\nsys.exit(3)", f"{MODULE}:app", f"{MODULE}.py:2: SystemExit: 3"),
    ],
    ids=[
        *("no module", "file", "no app", "None"),
        *("broken", "import of nothing", "not Python", "exits"),
    ],
)
def test_app_that_cannot_be_imported_is_refused_in_a_line(
    rota: Console, server: Server, text: str, reference: str, told: str
) -> None:
    write(text)

    ended = rota("apply", "--app", reference)

    assert ended.code == 6
    assert ended.err.startswith(f"rota: the app {reference} cannot be loaded: ")
    assert told in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("text", "reference", "code", "told"),
    [
        (SHOP, f"{MODULE}:restack", 2, f'{MODULE}.py has no "restack"; did you mean {MODULE}:app?'),
        ("app = None", f"{MODULE}:app", 2, "it is None\n  --app MODULE:app names a variable"),
        ("print('hi')\n1 / 0", f"{MODULE}:app", 6, f"{MODULE}.py:2: ZeroDivisionError: division"),
        ("\n\napp = (", f"{MODULE}:app", 6, f"{MODULE}.py:3: '(' was never closed\n  mend the"),
    ],
    ids=["no app", "None", "broken", "not Python"],
)
def test_nothing_is_started_for_an_app_that_cannot_be_imported(
    rota: Console, text: str, reference: str, code: int, told: str
) -> None:
    write(text)

    ended = rota("up", "--app", reference)

    assert (ended.code, ended.out) == (code, "")
    assert told in ended.err
    assert "Traceback" not in ended.err
