"""`-` as a file, in processes that are fed through a pipe as in a shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testkit.processes import ROTA
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

JOBS = "jobs: [{name: piped, steps: [{run: 'true'}]}]"
CARTS = "carts: [{name: rollout, job: piped, items: [{key: a}]}]"
CALENDAR = 'name: weekends\nwindows: ["Sat,Sun 00:00-24:00"]\n'
WORKLOAD = (Path(__file__).parents[3] / "examples" / "workload.yaml").read_text()


def piped(text: str | bytes, *words: str) -> subprocess.CompletedProcess[str]:
    data = text.encode() if isinstance(text, str) else text
    ended = subprocess.run([ROTA, *words], input=data, capture_output=True, check=False)
    return subprocess.CompletedProcess(
        words, ended.returncode, ended.stdout.decode(), ended.stderr.decode()
    )


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        (JOBS, ["validate", "-"], "<stdin>: valid, 1 job"),
        (JOBS, ["validate", "-", "--json"], '"file": "<stdin>"'),
        ("5 4 * * * /bin/true\n", ["import", "crontab", "-"], "schedule:"),
        ("5 4 * * * /bin/true\n", ["import", "crontab", "-", "--tz", "UTC"], "schedule:"),
        (WORKLOAD, ["simulate", "-", "--for", "10m"], "JOB"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_commands_without_a_server_read_standard_input(
    text: str, words: list[str], told: str
) -> None:
    ended = piped(text, *words)

    assert ended.returncode == 0, ended.stderr
    assert told in ended.stdout


def test_files_and_standard_input_go_together(tmp_path: Path) -> None:
    (tmp_path / "jobs.yaml").write_text(JOBS)

    ended = piped(JOBS, "validate", "jobs.yaml", "--plain", "-")

    assert ended.stdout.splitlines() == ["jobs.yaml: valid, 1 job", "<stdin>: valid, 1 job"]


@pytest.mark.usefixtures("server")
def test_jobs_are_applied_from_standard_input(rota: Console) -> None:
    planned = piped(JOBS, "apply", "-", "--plan")
    applied = piped(JOBS, "apply", "-")

    assert (planned.returncode, applied.returncode) == (20, 0)
    assert "Apply with: rota apply - --if-match" in planned.stderr
    assert rota("job", "list", "-o", "name").lines == ["piped"]


@pytest.mark.usefixtures("server")
def test_a_calendar_is_set_from_standard_input(rota: Console) -> None:
    ended = piped(CALENDAR, "calendar", "set", "-")

    assert ended.returncode == 0, ended.stderr
    assert rota("calendar", "list", "-o", "name").lines == ["weekends"]


def test_a_cart_is_submitted_from_standard_input(rota: Console, server: Server) -> None:
    server.define(JOBS)

    ended = piped(CARTS, "cart", "submit", "-", "--yes")

    assert ended.returncode == 0, ended.stderr
    assert "rollout" in rota("cart", "list").out


def test_a_mistyped_option_beside_it_still_gets_the_nearest_one() -> None:
    ended = piped(JOBS, "apply", "-", "--plam")

    assert ended.returncode == 2
    assert "Did you mean --plan?" in ended.stderr


def test_what_is_not_text_is_refused() -> None:
    ended = piped(b"jobs: \xff", "validate", "-")

    assert ended.returncode == 6
    assert ended.stderr == "rota: <stdin> is not UTF-8 text\n"


@pytest.mark.usefixtures("server")
def test_pipes_prune_only_by_a_set_that_they_name() -> None:
    refused = piped(JOBS, "apply", "-", "--prune", "--yes")
    named = piped(f"set: mine\n{JOBS}", "apply", "-", "--prune", "--yes")

    assert refused.returncode == 2
    assert "names no set" in refused.stderr
    assert named.returncode == 0, named.stderr


@pytest.mark.usefixtures("server")
def test_a_pipe_leaves_jobs_and_carts_in_the_set_of_their_file(rota: Console) -> None:
    text = f"{JOBS}\n{CARTS}\n"
    Path("shop.yaml").write_text(text)
    rota("apply", "shop.yaml")

    again = piped(text, "apply", "-", "--plan")
    changed = piped(text.replace("'true'", "'false'"), "apply", "-")

    assert (again.returncode, again.stderr) == (0, "no changes\n")
    assert "steps[0].run" in changed.stdout
    assert rota("job", "show", "piped", "--json").json["set"] == "shop"
    assert rota("cart", "templates", "--json").json["items"][0]["set_name"] == "shop"


@pytest.mark.usefixtures("server")
def test_a_pipe_that_names_a_set_takes_a_job_into_it(rota: Console) -> None:
    Path("shop.yaml").write_text(JOBS)
    rota("apply", "shop.yaml")

    moved = piped(f"set: mine\n{JOBS}", "apply", "-")

    assert "set  shop → mine" in moved.stdout
    assert rota("job", "show", "piped", "--json").json["set"] == "mine"
