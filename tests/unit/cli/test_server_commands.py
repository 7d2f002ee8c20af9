"""Workers, events, tokens, and what goes wrong on the way to a server."""

from __future__ import annotations

import io
import subprocess

import pytest

from rota.cli import times
from rota.cli.events import EVENTS
from rota.cli.printing import write_table
from rota.cli.terminal import Terminal
from rota.domain.access import Role
from rota.ports.work import Offer
from rota.sdk.client import Client
from testkit.processes import ROTA
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server
from tests.unit.sdk.answering import AnsweringServer, Given

TIDY = "jobs: [{name: tidy, steps: [{run: x}]}]"


def test_workers_are_listed_with_what_they_hold(rota: Console, server: Server) -> None:
    server.define(TIDY)
    rota("trigger", "tidy")
    server.claim()

    [_, line] = rota("worker", "list").lines

    assert line.split()[:8] == ["worker-1", "alive", "default", "1", "of", "100", "cpu", "0/4"]


def test_a_worker_is_shown_with_what_is_in_use(rota: Console, server: Server) -> None:
    server.define(TIDY)
    rota("trigger", "tidy")
    server.claim()

    shown = rota("worker", "show", "worker-1")

    assert {" ".join(line.split()) for line in shown.lines} >= {
        "running 1 of 100",
        "cpu 0 of 4 in use",
    }
    assert rota("worker", "show", "worker-1", "--json").json["resources"] == {"cpu": "4"}
    assert rota("worker", "show", "nobody").code == 3


def test_a_worker_is_shown_with_what_it_offers_and_what_it_cannot_do(
    rota: Console, server: Server
) -> None:
    server.register(
        "limping",
        offers=(
            *(Offer("type", "shell"), Offer("wall", "landlock", "the kernel has none")),
            *(Offer("mount", "/srv/models"), Offer("mount", "/srv/cache:rw")),
        ),
        trouble="no output gets through",
    )

    shown = rota("worker", "show", "limping")

    assert [" ".join(line.split()) for line in shown.lines][-5:] == [
        "OFFERS NAME",
        "type shell yes",
        "wall landlock no: the kernel has none",
        "mount /srv/models yes, to read",
        "mount /srv/cache:rw yes, to write, and as a whole",
    ]
    assert "trouble no output gets through" in {" ".join(line.split()) for line in shown.lines}
    assert rota("worker", "show", "limping", "--json").json["offers"][1] == {
        "kind": "wall",
        "name": "landlock",
        "reason": "the kernel has none",
    }


def test_no_worker_says_what_to_start(rota: Console, server: Server) -> None:
    assert "rota worker" in rota("worker", "list").err


def test_events_are_told_oldest_first_and_past_a_position(rota: Console, server: Server) -> None:
    server.define(TIDY)
    rota("trigger", "tidy")

    everything = rota("events", "tail", "--json").json["items"]
    rest = rota("events", "tail", "--after", everything[-2]["id"], "-o", "jsonl")

    assert everything[-1]["type"] == "rota.run.queued"
    assert len(rest.lines) == 1
    assert "run.queued" in rota("events", "tail").lines[-1]


def test_the_latest_events_are_as_many_as_asked_for(rota: Console, server: Server) -> None:
    server.define(TIDY)
    for _ in range(25):
        rota("trigger", "tidy")
    everything = rota("events", "tail", "--after", "0", "-o", "name").lines

    assert rota("events", "tail", "-o", "name").lines == everything[-20:]
    assert rota("events", "tail", "-n", "2", "-o", "name").lines == everything[-2:]
    assert rota("events", "tail", "-n", "24", "-o", "name").lines == everything[-24:]


def test_whoever_follows_events_first_sees_the_latest(rota: Console, server: Server) -> None:
    server.define(TIDY)
    for _ in range(3):
        rota("trigger", "tidy")
    known = rota("events", "tail", "-o", "name").lines
    words = [str(ROTA), "events", "tail", "-f", "-n", "2", "-o", "name"]

    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        latest = [following.stdout.readline().strip() for _ in range(2)]
        rota("trigger", "tidy")
        coming = following.stdout.readline().strip()
        following.terminate()

    assert latest == known[-2:]
    assert [coming] == rota("events", "tail", "-n", "1", "-o", "name").lines


def test_events_name_the_job_and_keep_id_and_time_whole_at_80_columns(
    rota: Console, server: Server
) -> None:
    server.define("jobs: [{name: nightly-export-of-orders, steps: [{run: x}]}]")
    run = rota("trigger", "nightly-export-of-orders", "-o", "name").out.strip()
    with Client() as client:
        events = client.list_events().items
    screen = Terminal(io.StringIO(), io.StringIO(), has_colour=False, is_plain=False, width=80)

    write_table(screen, EVENTS.columns, events)

    assert isinstance(screen.out, io.StringIO)
    lines = screen.out.getvalue().splitlines()
    last = events[-1]
    assert last.time is not None
    stamp = times.stamp(last.time, times.now())
    assert lines[-1].startswith(f"{last.id}   {stamp}  run.queued   nightly-export-of")
    assert f"  {run[:16]}  " in lines[-1]
    assert max(map(len, lines)) <= 80


def test_token_is_created_listed_and_revoked(rota: Console, server: Server) -> None:
    created = rota("token", "create", "--name", "ci", "--role", "viewer", "--json").json

    listed = rota("token", "list", "--json").json["items"]
    refused = rota("token", "revoke", created["id"])
    revoked = rota("token", "revoke", created["id"], "--yes")

    assert created["secret"].startswith("rotat_")
    assert created["id"] in [token["id"] for token in listed]
    assert (refused.code, revoked.code) == (2, 0)


def secret_of(rota: Console, *words: str) -> str:
    """The secret of a new token."""
    return str(rota("token", "create", *words, "--json").json["secret"])


def test_token_is_for_the_project_the_role_and_the_verbs_that_were_asked_for(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "ci",
        "--role",
        "operator",
        "--verb",
        "read",
        "--verb",
        "trigger",
        "--expires-in",
        "1d",
    )
    secret = secret_of(rota, *words)
    table = rota("token", "list", "-o", "wide").lines
    monkeypatch.setenv("ROTA_TOKEN", secret)

    shown = rota("whoami")
    refused = rota("job", "list", "--project", "other")

    assert shown.lines[:4] == [
        "ci, service",
        "  operator in default",
        "This token is for the project default only.",
        "This token may do nothing but read, trigger.",
    ]
    assert shown.lines[4].startswith("It is valid until ")
    assert rota("whoami", "-o", "name").lines == ["ci"]
    assert (refused.code, "there is no project" in refused.err) == (3, True)
    [row] = [line for line in table if " ci " in line]
    assert {"default", "operator", "read,", "trigger", f"{secret[:14]}…"} <= set(row.split())


def test_token_of_the_installation_counts_everywhere(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", secret_of(rota, "all", "--role", "admin", "--installation"))

    shown = rota("whoami")

    assert shown.lines == [
        "all, service",
        "  admin in all projects and the installation",
        "It is valid until revoked.",
    ]


def test_token_is_for_a_project_or_for_the_installation(rota: Console, server: Server) -> None:
    both = ("--project", "default", "--installation")

    ended = rota("token", "create", "ci", "--role", "viewer", *both)

    assert (ended.code, "either --project or --installation" in ended.err) == (2, True)


def test_admin_of_a_project_manages_its_tokens(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", secret_of(rota, "boss", "--role", "admin"))
    made = rota("token", "create", "ci", "--role", "viewer", "--json").json["id"]

    rehearsed = rota("token", "revoke", made, "--dry-run")
    unknown = rota("token", "revoke", "t_nothing", "--dry-run")
    revoked = rota("token", "revoke", made, "--yes")
    denied = rota("worker", "token", "create", "worker-1")

    assert (rehearsed.code, unknown.code, revoked.code, denied.code) == (20, 3, 0, 4)
    assert {each["name"] for each in rota("token", "list", "--json").json["items"]} == {
        "boss",
        "ci",
    }


def test_token_can_expire(rota: Console, server: Server) -> None:
    rota("token", "create", "--name", "ci", "--role", "viewer", "--expires-in", "1h30m")

    [token] = [
        each for each in rota("token", "list", "--json").json["items"] if each["name"] == "ci"
    ]

    assert token["expires_at"] is not None


def test_too_small_a_role_is_denied(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.define(TIDY)
    monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.VIEWER])

    ended = rota("trigger", "tidy")

    assert ended.code == 4
    assert "operator" in ended.err


@pytest.mark.parametrize("token", ["", "rota_wrong"])
def test_without_a_valid_token_nothing_is_told(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("ROTA_TOKEN", token)

    ended = rota("job", "list")

    assert ended.code == 4
    assert "ROTA_TOKEN" in ended.err


def test_server_that_does_not_answer_is_named(
    rota: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")

    ended = rota("job", "list")

    assert ended.code == 7
    assert "http://127.0.0.1:1" in ended.err
    assert "rota up" in ended.err


@pytest.mark.parametrize(
    "words", [["job", "show", "tidy"], ["run", "show", "tidy"], ["cart", "show", "c_1"], ["ps"]]
)
def test_address_of_another_server_is_told_as_that(rota: Console, words: list[str]) -> None:
    with AnsweringServer() as other:
        pages = ("GET /jobs/tidy", "GET /runs/r_tidy", "GET /carts/c_1", "GET /runs")
        for page in pages:
            other.on(page, Given(b"<h1>Not Found</h1>", 404, "text/html"))

        ended = rota(*words, "--url", other.url)

    assert ended.code == 7
    assert ended.err == (
        f"rota: {other.url} does not answer like a Rota server: status 404, text/html, "
        '"<h1>Not Found</h1>"\n'
        "  check the address: --url, ROTA_URL or url in rota.toml; "
        "`rota up` prints that of its server\n"
    )


def test_no_known_server_says_what_to_do(rota: Console) -> None:
    ended = rota("job", "list")

    assert ended.code == 7
    assert "rota up" in ended.err


def test_address_on_the_command_line_wins(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")

    assert rota("job", "list", "--url", server.url).code == 0


def test_names_of_jobs_are_completed_from_the_server(rota: Console, server: Server) -> None:
    server.define(TIDY)

    ended = rota("__complete", "job", "show", "ti")

    assert "tidy\ton demand" in ended.lines


def test_runs_to_cancel_are_completed_from_the_server(rota: Console, server: Server) -> None:
    server.define(TIDY)
    run = rota("trigger", "tidy", "-o", "name").out.strip()

    assert f"{run}\ttidy blocked" in rota("__complete", "run", "cancel", "r_").lines


def test_completion_without_a_server_is_silent(rota: Console) -> None:
    ended = rota("__complete", "job", "show", "")

    assert ended.code == 0
    assert "rota:" not in ended.err
