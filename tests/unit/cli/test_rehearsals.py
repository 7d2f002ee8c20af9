"""`--dry-run` and `--plan`: exit code 20 where something would change, 0 where nothing would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.carts import advance, cart_file, submit, work
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

TIDY = """
jobs:
  - {name: tidy, schedule: "0 2 * * *", steps: [{run: x}]}
  - {name: idle, enabled: false, steps: [{run: x}]}
  - {name: undo, steps: [{run: x}]}
"""
CALENDAR = 'name: weekends\nwindows: ["Sat,Sun 00:00-24:00"]\n'
LIMIT = ["limit", "set", "s3-put", "--tokens", "10", "--per", "1s"]
RESOURCE = ["resource", "set", "licence", "--total", "4"]
QUOTA = ["quota", "set", "--running", "5"]


@pytest.fixture
def scene(rota: Console, server: Server) -> dict[str, str]:
    """A server with one of everything; the names of what is there."""
    server.define(TIDY)
    over = submit(rota, server)
    assert rota("cart", "cancel", over).code == 0
    advance(server, over)
    cart = submit(rota, server, "order: serial; rollback: undo")
    work(server, cart, "FAILED")
    Path("other.yaml").write_text(cart_file().replace("name: fleet", "name: other"))
    begun = rota("cart", "submit", "other.yaml", "--yes", "-o", "name").out.strip()
    Path("weekends.yaml").write_text(CALENDAR)
    Path("jobs.yaml").write_text(TIDY.replace("0 2", "0 3"))
    Path("cart.yaml").write_text(cart_file())
    assert rota("apply", "cart.yaml").code == 0
    spare = ["project", "create", "spare", "--max-priority", "7"]
    for words in (["calendar", "set", "weekends.yaml"], LIMIT, RESOURCE, QUOTA, spare):
        assert rota(*words).code == 0
    ended = rota("cart", "items", cart, "--json").json["items"][0]["run"]
    waiting = rota("trigger", "tidy", "-o", "name").out.strip()
    rota("worker", "drain", "worker-1")
    server.register("worker-2")
    token = rota("token", "create", "--name", "ci", "--role", "viewer", "--json").json["id"]
    badge = rota("worker", "token", "create", "worker-1", "--json").json["id"]
    revoked = rota("worker", "token", "create", "worker-2", "--json").json["id"]
    assert rota("worker", "token", "revoke", revoked, "--yes").code == 0
    joining = rota("worker", "join-token", "create", "--json").json["id"]
    return {
        "joining": joining,
        "cart": cart,
        "begun": begun,
        "over": over,
        "ended": ended,
        "waiting": waiting,
        "token": token,
        "badge": badge,
        "revoked": revoked,
    }


CHANGES = [
    ["apply", "jobs.yaml"],
    ["calendar", "delete", "weekends"],
    ["cart", "cancel", "{cart}"],
    ["cart", "delete", "fleet"],
    ["cart", "edit", "{cart}", "--max-parallel", "2"],
    ["cart", "pause", "{begun}"],
    ["cart", "resume", "{cart}", "--allow", "1"],
    ["cart", "retry", "{cart}", "--failed"],
    ["cart", "rollback", "{cart}"],
    ["cart", "submit", "cart.yaml"],
    ["demo"],
    ["job", "backfill", "tidy", "--from", "2026-01-01"],
    ["job", "delete", "tidy"],
    ["job", "disable", "tidy"],
    ["job", "enable", "idle"],
    ["job", "pause", "tidy"],
    ["job", "skip", "tidy"],
    ["job", "trigger", "tidy"],
    ["limit", "delete", "s3-put"],
    [*LIMIT, "--burst", "20"],
    ["pool", "set", "gpu", "--project", "default"],
    ["principal", "disable", "viewer"],
    ["principal", "enable", "viewer"],
    ["project", "create", "shop"],
    ["project", "delete", "spare"],
    ["project", "set", "spare", "--max-priority", "5"],
    ["quota", "clear"],
    ["quota", "set", "--running", "6"],
    ["resource", "delete", "licence"],
    ["resource", "set", "licence", "--total", "5"],
    ["role", "grant", "viewer", "editor", "--project", "spare"],
    ["role", "revoke", "viewer", "--installation"],
    ["run", "cancel", "tidy"],
    ["run", "hold", "{waiting}"],
    ["run", "release", "{waiting}"],
    ["run", "reprioritise", "{waiting}", "9"],
    ["run", "retry", "{ended}"],
    ["server", "defaults", "--isolation", "sandbox"],
    ["share", "set", "default", "--weight", "2"],
    ["token", "revoke", "{token}"],
    ["trigger", "tidy"],
    ["worker", "drain", "worker-2"],
    ["worker", "join-token", "revoke", "{joining}"],
    ["worker", "resume", "worker-1"],
    ["worker", "revoke", "worker-1"],
    ["worker", "token", "revoke", "{badge}"],
]
NOTHING = [
    ["calendar", "set", "weekends.yaml"],
    ["cart", "pause", "{cart}"],
    ["job", "enable", "tidy"],
    ["job", "resume", "tidy"],
    ["job", "skip", "undo"],
    LIMIT,
    RESOURCE,
    QUOTA,
    ["project", "set", "spare", "--max-priority", "7"],
    ["run", "cancel", "{ended}"],
    ["run", "resolve", "{ended}", "--as", "failed"],
    ["run", "report", "{ended}", "--state", "failed"],
    ["run", "retry", "{waiting}"],
    ["worker", "drain", "worker-1"],
    ["worker", "resume", "worker-2"],
]
REFUSED = [
    ["cart", "approve", "{cart}"],
    ["cart", "approve", "{over}"],
    ["cart", "cancel", "{over}"],
    ["cart", "pause", "{over}"],
    ["cart", "resume", "{begun}"],
    ["cart", "resume", "{cart}"],
    ["cart", "resume", "{over}"],
    ["token", "revoke", "t_1", "--yes"],
    ["worker", "drain", "nobody"],
    ["worker", "join-token", "revoke", "t_1", "--yes"],
    ["worker", "resume", "nobody"],
    ["worker", "revoke", "worker-2", "--yes"],
    ["worker", "token", "revoke", "{revoked}", "--yes"],
]
PAGES = Path(__file__).with_name("help_pages.txt")


def ends(rota: Console, scene: dict[str, str], commands: list[list[str]]) -> dict[str, int]:
    lines = [[word.format(**scene) for word in words] for words in commands]
    return {" ".join(words): rota(*words, "--dry-run").code for words in lines}


def test_exit_code_is_20_where_something_would_change(rota: Console, scene: dict[str, str]) -> None:
    codes = ends(rota, scene, CHANGES)

    assert {line: code for line, code in codes.items() if code != 20} == {}
    assert rota("run", "show", scene["waiting"], "--json").json["state"] == "QUEUED"
    assert rota("cart", "show", scene["cart"], "--json").json["state"] == "PAUSED"


def test_exit_code_is_0_where_nothing_would_change(rota: Console, scene: dict[str, str]) -> None:
    codes = ends(rota, scene, NOTHING)

    assert {line: code for line, code in codes.items() if code != 0} == {}


def test_what_is_refused_is_refused_in_the_same_words(rota: Console, scene: dict[str, str]) -> None:
    for words in ([word.format(**scene) for word in words] for words in REFUSED):
        rehearsed, refused = rota(*words, "--dry-run"), rota(*words)

        assert (rehearsed.code, rehearsed.err) == (refused.code, refused.err)
        assert refused.code in (3, 5)


def test_every_command_that_can_be_rehearsed_is_tried_here() -> None:
    pages = PAGES.read_text().split("\n$ rota ")[1:]
    rehearsed = {page.split(" --help")[0] for page in pages if "--dry-run" in page}
    tried = {" ".join(words) for words in CHANGES + NOTHING + REFUSED}

    assert {
        verb for verb in rehearsed if not any(f"{t} ".startswith(f"{verb} ") for t in tried)
    } == set()
