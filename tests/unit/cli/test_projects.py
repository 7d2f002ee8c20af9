"""`rota project`, `rota pool`, `rota role` and `rota principal`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.domain.access import Role, TokenTerms
from rota.operations.tokens import create_token
from rota.ports.records import NewToken
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

CREATE = ("project", "create", "shop", "--title", "Web shop", "--max-timeout", "1h")


def test_a_project_is_made_changed_shown_and_deleted(rota: Console, server: Server) -> None:
    created = rota(*CREATE)
    changed = rota(
        "project",
        "set",
        "shop",
        *("--pool", "default", "--pool", "gpu"),
        *("--max-priority", "7", "--max-resource", "cpu=4", "--max-resource", "memory=8GiB"),
        *("--default", "timezone=Europe/Berlin", "--default", "retry.attempts=3"),
    )
    shown = rota("project", "show", "shop")
    listed = rota("project", "list")
    deleted = rota("project", "delete", "shop", "--yes")

    assert (created.code, created.err.splitlines()) == (
        0,
        [
            "created project shop: timeout at most 1h",
            "give somebody a role in it: rota role grant PRINCIPAL admin --project shop",
        ],
    )
    assert changed.err.splitlines() == [
        "changed project shop",
        '  policy.pools  (none) → ["default", "gpu"]',
        "  policy.priority  (none) → 7",
        '  policy.resources  (none) → {"cpu": 4, "memory": "8GiB"}',
        '  defaults.retry  (none) → {"attempts": 3}',
        "  defaults.timezone  (none) → Europe/Berlin",
    ]
    words = [" ".join(line.split()) for line in shown.lines]
    assert "title Web shop" in words
    assert "policy: pools default, gpu" in words
    assert "policy: timeout at most 1h" in words
    assert "policy: memory at most 8GiB" in words
    assert "default: timezone Europe/Berlin" in words
    assert any(line.startswith("jobs unlimited, 0 now") for line in words)  # of its quota
    assert [line.split()[0] for line in listed.lines[1:]] == ["default", "shop"]
    assert (deleted.code, deleted.err) == (0, "deleted project shop\n")
    assert rota("project", "show", "shop").code == 3


def test_bounds_and_defaults_are_taken_away(rota: Console, server: Server) -> None:
    rota(*CREATE, "--pool", "gpu", "--max-resource", "cpu=4", "--default", "timeout=1h")

    rota(
        "project",
        "set",
        "shop",
        *("--max-timeout", "unlimited", "--pool", "any", "--max-resource", "cpu=unlimited"),
        *("--default", "timeout="),
    )

    found = rota("project", "show", "shop", "--json").json
    assert (found["policy"], found["defaults"]) == ({}, {})
    assert found["quota"]["project"] == "shop"


def test_dry_run_changes_nothing(rota: Console, server: Server) -> None:
    rota(*CREATE)

    planned = rota("project", "set", "shop", "--max-priority", "3", "--dry-run")
    same = rota("project", "set", "shop", "--max-timeout", "60m", "--dry-run")

    assert (planned.code, planned.err.splitlines()[0]) == (20, "would change project shop")
    assert (same.code, same.err) == (0, "project shop is unchanged\n")


@pytest.mark.parametrize(
    "words",
    [
        ("project", "set", "shop"),
        ("project", "set", "shop", "--default", "timeout"),
        ("pool", "set", "gpu"),
        ("pool", "set", "gpu", "--shared", "--project", "default"),
        ("role", "grant", "ann", "viewer", "--project", "default", "--installation"),
    ],
)
def test_what_is_not_said_in_one_way_is_refused(
    rota: Console, server: Server, words: tuple[str, ...]
) -> None:
    assert rota(*words).code == 2


def test_pools_are_given_to_projects(rota: Console, server: Server) -> None:
    rota(*CREATE)
    server.register("worker-2")

    given = rota("pool", "set", "gpu", "--project", "shop", "--project", "default")
    listed = rota("pool", "list")
    shown = rota("pool", "show", "gpu")
    shared = rota("pool", "set", "gpu", "--shared")

    assert (given.code, given.err) == (0, "pool gpu is for shop, default now\n")
    assert [line.split() for line in listed.lines[1:]] == [
        ["default", "1", "all", "allowed"],
        ["gpu", "0", "default,", "shop", "allowed"],
    ]
    assert "default, shop" in shown.out
    assert shared.err == "pool gpu is for all projects now\n"


def test_a_bound_on_what_no_worker_offers_is_remarked(rota: Console, server: Server) -> None:
    server.define("jobs: [{name: a, steps: [{run: x}]}]")
    rota("trigger", "a")
    server.claim()  # by a worker that offers cpu

    bounded = rota("pool", "set", "default", "--max", "cpu=2", "--max", "cpus=1")
    usual = rota("pool", "set", "default", "--max", "cpu=2")

    assert bounded.code == 0
    assert bounded.err.splitlines()[1:] == ['no worker offers cpus: did you mean "cpu"?']
    assert usual.err == "pool default is for runs of at most 2 cpu now\n"


def test_roles_are_granted_listed_and_revoked(rota: Console, server: Server) -> None:
    rota(*CREATE)

    granted = rota("role", "grant", "viewer", "editor", "--project", "shop")
    group = rota(
        *("role", "grant", "group:web", "viewer", "--project", "shop"),
        *("--issuer", "https://login.example.org/"),
    )
    listed = rota("role", "list", "--project", "shop", "-o", "name")
    installation = rota("role", "list", "--installation", "-o", "name")
    every = rota("role", "list", "--all", "-o", "name")
    revoked = rota("role", "revoke", "viewer", "--project", "shop", "--yes")
    last = rota("role", "revoke", "admin", "--installation", "--yes")

    assert granted.err == "viewer is editor of project shop now\n"
    assert group.err == "web is viewer of project shop now\n"
    assert listed.lines == ["viewer", "web"]
    assert set(installation.lines) == set(Role)
    assert sorted(every.lines) == sorted([*listed.lines, *installation.lines])
    assert revoked.err == "viewer has no role of its own in project shop any more\n"
    assert (last.code, "nobody is left who can act as admin" in last.err) == (5, True)


def test_principals_are_disabled_and_enabled(rota: Console, server: Server) -> None:
    disabled = rota("principal", "disable", "viewer", "--yes")
    listed = rota("principal", "list")
    enabled = rota("principal", "enable", "viewer")

    assert disabled.err == "viewer is disabled\n"
    assert any("disabled" in line for line in listed.lines if line.startswith("viewer"))
    assert enabled.err == "viewer is enabled\n"


def test_doctor_names_what_to_tighten(rota: Console, server: Server) -> None:
    rota(*CREATE)
    server.register("worker-1")
    server.define("jobs: [{name: left, steps: [{run: x}]}]")  # by "test", who has no role
    old = NewToken("t_old", "ci", Role.EDITOR, "digest", "api", "admin", None)
    server.do(server.engine.store.add_token(old))

    found = rota("doctor", "--json").json

    told = {finding["subject"]: finding for finding in found}
    tokens = [it for it in found if it["subject"] == "token" and "t_old" in it["message"]]
    assert [it["verdict"] for it in tokens] == ["warning"]
    assert tokens[0]["advice"].endswith("rota token revoke t_old")
    assert told["job"]["message"].startswith("left of project default: test, who made it")
    assert told["isolation"]["verdict"] == "ok"
    assert "run as plain processes" in told["isolation"]["message"]
    assert told["pool"]["verdict"] == "warning"
    assert "shared by all projects, and plain processes may run there" in told["pool"]["message"]
    assert told["pool"]["advice"].startswith("rota pool set default --private")


def test_doctor_tells_advice_to_admins_only(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota(*CREATE)
    server.register("worker-1")
    monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.EDITOR])

    found = rota("doctor", "--json").json

    assert "pool" not in {finding["subject"] for finding in found}


def test_a_file_is_applied_where_it_says_by_a_member_of_that_project_only(
    rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rota(*CREATE)
    terms = TokenTerms(project="shop")
    create = create_token(
        server.engine.store, name="ed", role=Role.EDITOR, actor="test", terms=terms
    )
    monkeypatch.setenv("ROTA_TOKEN", server.do(create)[1])
    job = "jobs: [{name: tidy, timeout: 5m, steps: [{run: x}]}]"
    Path("jobs.yaml").write_text(f"# ours\nproject: shop\n{job}\n")
    Path("foreign.yaml").write_text(f"project: default\n{job}\n")

    applied, foreign = rota("apply", "jobs.yaml"), rota("apply", "foreign.yaml")
    listed = rota("job", "list", "--project", "shop", "-o", "name")

    assert (applied.code, listed.lines) == (0, ["tidy"])
    assert (foreign.code, 'there is no project "default"' in foreign.err) == (3, True)
