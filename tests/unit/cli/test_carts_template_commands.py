"""Carts that files define: applied with their items, listed, deleted; and undoing one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rota.domain.ids import CartId
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

FLEET = """\
jobs:
  - {name: upgrade, inputs: {version: {type: integer, default: 16}}, steps: [{run: "true"}]}
  - {name: undo, steps: [{run: "true"}]}
carts:
  - {name: fleet, job: upgrade, rollback: undo, items_from: hosts.csv}
"""
HOSTS = "key,version\ndb-1,16\ndb-2,17\n"


@pytest.fixture
def fleet() -> str:
    """A job file whose cart has its items in a table beside it."""
    Path("hosts.csv").write_text(HOSTS)
    Path("fleet.yaml").write_text(FLEET)
    return "fleet.yaml"


def test_apply_reads_the_items_of_carts(rota: Console, server: Server, fleet: str) -> None:
    planned = rota("apply", fleet, "--plan")
    applied = rota("apply", fleet)
    again = rota("apply", fleet, "--plan")

    assert planned.code == 20
    assert "+ cart fleet  new        2 items one after another · none may fail · on demand" in (
        planned.out
    )
    assert (applied.code, applied.err.splitlines()[-1]) == (0, "3 changes applied")
    assert again.code == 0


def test_a_file_for_every_item_is_uploaded(rota: Console, server: Server) -> None:
    server.define(
        "jobs: [{name: configure, inputs: {config: {type: file}}, steps: [{run: 'true'}]}]\n"
        "carts: [{name: fleet, job: configure, items: [{key: a}, {key: b}]}]\n"
    )
    Path("site.conf").write_text("listen 8080;\n")

    submitted = rota("cart", "submit", "fleet", "--set", "config=@site.conf", "--yes")

    assert submitted.code == 0
    items = rota("cart", "items", "fleet", "--json").json["items"]
    assert [item["inputs"]["config"]["file"] for item in items] == ["site.conf", "site.conf"]


def test_a_matrix_of_two_lists_is_an_item_for_each_pair(rota: Console, server: Server) -> None:
    Path("grid.yaml").write_text(
        "jobs: [{name: try, inputs: {python: {}, store: {}}, steps: [{run: 'true'}]}]\n"
        "carts:\n"
        "  - name: grid\n"
        "    job: try\n"
        "    matrix: {python: ['3.11', '3.12'], store: [sqlite, postgres]}\n"
        "    exclude: [{python: '3.11', store: postgres}]\n"
    )

    applied = rota("apply", "grid.yaml")
    submitted = rota("cart", "submit", "grid", "--yes")

    assert (applied.code, submitted.code) == (0, 0), applied.err + submitted.err
    items = rota("cart", "items", "grid", "--json").json["items"]
    assert {item["key"]: item["inputs"] for item in items} == {
        "3.11/sqlite": {"python": "3.11", "store": "sqlite"},
        "3.12/sqlite": {"python": "3.12", "store": "sqlite"},
        "3.12/postgres": {"python": "3.12", "store": "postgres"},
    }


def test_a_bad_line_of_items_is_told_at_its_place(
    rota: Console, server: Server, fleet: str
) -> None:
    Path("hosts.csv").write_text(HOSTS + "db-3,new\n")

    ended = rota("apply", fleet)

    assert ended.code == 6
    assert ended.err.startswith("hosts.csv:4")
    assert "nothing was changed" in ended.err
    assert rota("job", "list", "-o", "name").out == ""


def test_a_file_of_items_that_is_not_there_is_told(
    rota: Console, server: Server, fleet: str
) -> None:
    Path("hosts.csv").unlink()

    ended = rota("apply", fleet)

    assert ended.code == 6
    assert "hosts.csv" in ended.err


def test_what_is_wrong_with_the_job_file_is_told_at_its_lines(
    rota: Console, server: Server, fleet: str
) -> None:
    Path(fleet).write_text(FLEET.replace("job: upgrade", "job: upgrad"))

    ended = rota("apply", fleet)

    assert ended.code == 6
    assert 'fleet.yaml:5:24  there is no job "upgrad" — did you mean "upgrade"?' in ended.err


def test_applied_carts_are_listed(rota: Console, server: Server, fleet: str) -> None:
    rota("apply", fleet)

    listed = rota("cart", "templates")
    data = rota("cart", "templates", "-o", "json")

    assert "fleet" in listed.lines[1]
    assert "2 items one after another" in listed.lines[1]
    assert [it["name"] for it in json.loads(data.out)["items"]] == ["fleet"]


def test_a_definition_is_deleted_on_consent(rota: Console, server: Server, fleet: str) -> None:
    rota("apply", fleet)

    rehearsed = rota("cart", "delete", "fleet", "--dry-run")
    refused = rota("cart", "delete", "fleet")
    deleted = rota("cart", "delete", "fleet", "--yes")

    assert rehearsed.err == "would delete the definition of cart fleet\n"
    assert refused.code != 0
    assert deleted.err.endswith("deleted the definition of cart fleet\n")
    assert rota("cart", "delete", "fleet", "--yes").code == 3


def test_pruning_asks_before_a_cart_goes(rota: Console, server: Server, fleet: str) -> None:
    rota("apply", fleet)
    Path(fleet).write_text(FLEET[: FLEET.index("carts:")])

    refused = rota("apply", fleet, "--prune")
    pruned = rota("apply", fleet, "--prune", "--yes")

    assert "delete 1 cart (fleet)?" in refused.err
    assert "- cart fleet  removed" in pruned.out
    assert rota("cart", "templates", "-o", "name").out == ""


def test_a_cart_that_goes_on_is_not_rolled_back(rota: Console, server: Server, fleet: str) -> None:
    rota("apply", fleet)
    made = rota("cart", "submit", "fleet", "--yes", "-o", "name").out.strip()

    ended = rota("cart", "rollback", made, "--yes")

    assert ended.code == 5
    assert "only what was cancelled" in ended.err


def test_what_a_breached_cart_did_is_undone_on_consent(
    rota: Console, server: Server, fleet: str
) -> None:
    rota("apply", fleet)
    made = rota("cart", "submit", "fleet", "--yes", "-o", "name").out.strip()
    advance(server, made)
    server.finish(server.claim(), "FAILED")
    advance(server, made)

    shown = rota("cart", "show", made)
    rehearsed = rota("cart", "rollback", made, "--dry-run")
    refused = rota("cart", "rollback", made)
    undone = rota("cart", "rollback", made, "--yes")

    assert f"rota cart rollback {made}" in shown.err
    assert (rehearsed.code, rehearsed.out) == (20, "")
    assert f"{made} is paused; this cancels it" in rehearsed.err
    assert f"roll back 1 item of {made} (fleet)?" in refused.err
    assert undone.code == 0
    assert undone.out.rstrip().endswith("planned · fleet-rollback · 1 item")


def advance(server: Server, cart: str) -> None:
    """Let the cart do what it can, which a keeper does elsewhere."""
    while server.do(server.engine.store.advance_cart(CartId(cart), None)).has_more:
        pass


@pytest.mark.parametrize("verb", ["submit", "plan", "delete"])
def test_mistyped_definition_gets_the_nearest_one(
    rota: Console, server: Server, fleet: str, verb: str
) -> None:
    rota("apply", fleet)

    ended = rota("cart", verb, "fleeet")

    assert ended.code == 3
    assert 'did you mean "fleet"?' in ended.err
