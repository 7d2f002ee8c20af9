"""What people see of walls: of jobs, runs, workers, pools, policies and the installation."""

from __future__ import annotations

from pathlib import Path

from rota.domain.walls import NEW_CLUSTER
from rota.ports.work import Offer
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

WALLED = """
jobs:
  - name: tidy
    isolation: sandbox
    network: true
    limits: {memory: 512MiB, open_files: 64}
    steps: [{run: x}]
"""
LIMITED = "jobs: [{name: tidy, limits: {memory: 512MiB}, steps: [{run: x}]}]"
PLAIN = "jobs: [{name: tidy, steps: [{run: x}]}]"
NO_SANDBOX = (
    Offer("wall", "sandbox", "bubblewrap is not installed"),
    Offer("limit", "memory"),
    Offer("limit", "open_files"),
    Offer("type", "shell"),
)
DEMANDING = """
jobs:
  - name: simulate
    lease: 2h
    steps: [{run: x}]
  - name: tell
    type: http
    http: {submit: {url: "https://ci.example.org/", headers: {A: {secret: CI_TOKEN}}}}
"""
PLAIN_OFFERS = (Offer("wall", "process"), Offer("type", "shell"))
LIMIT_OF_MEMORY = (Offer("limit", "memory"),)
SANDBOX = (Offer("wall", "sandbox"), Offer("network", "sandbox/outbound"), *NO_SANDBOX[1:])


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_job_and_its_runs_are_shown_with_their_wall(rota: Console, server: Server) -> None:
    server.register("able", offers=SANDBOX)
    server.define(WALLED)
    rota("trigger", "tidy")

    told = "isolation sandbox · network outbound · at most memory 512MiB, open files 64"
    assert told in words(rota("job", "show", "tidy").out)
    assert told in words(rota("run", "show", "tidy").out)
    shown = rota("run", "show", "tidy", "--json").json
    assert (shown["isolation"], shown["network"]) == ("sandbox", "outbound")
    assert shown["limits"] == {"memory": "512MiB", "open_files": 64}


def test_a_lease_and_a_secret_that_no_worker_has_are_told_at_once_with_what_to_do(
    rota: Console, server: Server, tmp_path: Path
) -> None:
    server.register("fra-1", offers=(*PLAIN_OFFERS, Offer("lease", "30"), Offer("type", "http")))
    (tmp_path / "jobs.yaml").write_text(DEMANDING)

    applied = rota("apply", str(tmp_path / "jobs.yaml"))
    rota("trigger", "simulate")
    why = rota("why", "simulate")

    assert "jobs.yaml:4:12  warning: no worker of pool default offers lease of 2h" in applied.err
    assert "jobs.yaml:6:5  warning: no worker of pool default offers secret CI_TOKEN" in applied.err
    assert "worker fra-1 has no lease of 2h: start it with --lease 2h" in why.out


def test_why_names_the_wall_the_worker_and_its_reason(rota: Console, server: Server) -> None:
    server.register("fra-1", offers=NO_SANDBOX)
    server.register("fra-2")
    server.define(WALLED)
    rota("trigger", "tidy")

    said = rota("why", "tidy")

    [line] = [line for line in words(said.out) if "no worker of pool" in line]
    assert "worker fra-1 has no sandbox: bubblewrap is not installed" in line
    assert "worker fra-2 has no sandbox: release unknown has none" in line
    assert "rota worker show NAME" in said.out
    assert "missing sandbox" in rota("run", "list").out


def test_why_names_the_setting_that_lacks_a_secret(rota: Console, server: Server) -> None:
    server.register("fra-1", offers=(Offer("type", "http"),))
    server.define(
        """
jobs:
  - name: pay
    type: http
    http:
      submit: {url: "https://pay.example.org/v1", headers: {Key: {secret: PAY_TOKEN}}}
"""
    )
    rota("trigger", "pay")

    said = rota("why", "pay").out

    assert "fra-1 has no secret PAY_TOKEN: its setting http_secrets names none such" in said


def test_why_tells_workers_that_are_alike_together(rota: Console, server: Server) -> None:
    for number in range(5):
        server.register(f"fra-{number}", offers=NO_SANDBOX)
    server.define(WALLED)
    rota("trigger", "tidy")

    said = rota("why", "tidy").out

    assert "each of fra-0, fra-1, fra-2 and 2 more has no sandbox: bubblewrap is not" in said


def test_applying_warns_where_no_worker_has_the_wall(rota: Console, server: Server) -> None:
    server.register("fra-1", offers=NO_SANDBOX)
    Path("walled.yaml").write_text(WALLED)

    applied = rota("apply", "walled.yaml")

    assert applied.code == 0
    assert "4:16  warning: no worker of pool default offers sandbox: runs will wait" in applied.err


def test_an_end_by_a_limit_says_which_and_what_was_used(rota: Console, server: Server) -> None:
    server.define(LIMITED.replace("limits: {memory: 512MiB}, ", ""))
    rota("trigger", "tidy")
    work = server.claim()
    server.finish(work, "FAILED", cause="oom", cpu_seconds=3.2, max_memory_bytes=512 * 2**20)

    shown = words(rota("run", "show", "tidy").out)

    assert "cause oom: it was killed for the memory that it took" in shown
    assert "used cpu 3.2 s · memory 512 MiB" in shown


def test_a_limit_is_named_with_the_cause(rota: Console, server: Server) -> None:
    server.define(LIMITED)
    rota("trigger", "tidy")
    server.finish(server.claim(LIMIT_OF_MEMORY), "FAILED", cause="oom")

    assert "cause oom: it was killed for the memory that it took, at most 512MiB" in words(
        rota("run", "show", "tidy").out
    )


def test_offers_are_listed_by_kind(rota: Console, server: Server) -> None:
    server.register("fra-1", offers=NO_SANDBOX)

    shown = words(rota("worker", "show", "fra-1").out)

    assert shown[-5:] == [
        "OFFERS NAME",
        "type shell yes",
        "wall sandbox no: bubblewrap is not installed",
        "limit memory yes",
        "limit open_files yes",
    ]


def test_defaults_are_shown_and_changed(rota: Console, server: Server) -> None:
    server.do(server.engine.store.settle_walls(NEW_CLUSTER))

    shown = rota("server", "defaults")
    same = rota("server", "defaults", "--isolation", "sandbox", "--dry-run")
    rehearsed = rota("server", "defaults", "--isolation", "process", "--dry-run")
    changed = rota("server", "defaults", "--isolation", "process", "--network", "none", "--json")

    assert words(shown.out) == [
        "isolation sandbox",
        "network outbound (behind a wall)",
        "shared pools plain processes may not run in pools of several projects",
    ]
    assert (same.code, rehearsed.code) == (0, 20)
    assert changed.json == {
        "isolation": "process",
        "network": "none",
        "has_shared_process": False,
    }
    assert rota("server", "defaults", "--isolation", "container").code == 2


def test_a_job_takes_the_default_when_it_is_applied(rota: Console, server: Server) -> None:
    server.define(PLAIN)
    server.do(server.engine.store.settle_walls(NEW_CLUSTER))

    before = rota("job", "show", "tidy", "--json").json
    server.define(PLAIN)
    after = rota("job", "show", "tidy", "--json").json

    assert (before["isolation"], before["network"]) == ("process", "host")
    assert (after["isolation"], after["network"]) == ("sandbox", "outbound")
    assert after["document"]["isolation"] == "sandbox"
    assert after["version"] == before["version"] + 1


def test_a_second_project_is_told_to_close_pools(rota: Console, server: Server) -> None:
    server.do(server.engine.store.settle_walls(NEW_CLUSTER))
    server.register("fra-1")

    created = rota("project", "create", "shop")
    listed = rota("pool", "list")

    assert "several projects may use default now: jobs without walls start nothing" in created.err
    assert "rota pool set default --project default" in created.err
    assert listed.lines[1].split()[3:] == ["refused:", "it", "is", "shared"]


def test_a_pool_is_made_private(rota: Console, server: Server) -> None:
    rota("project", "create", "shop")
    server.register("fra-1")

    private = rota("pool", "set", "default", "--private")
    shown = rota("pool", "show", "default")
    both = rota("pool", "set", "gpu", "--project", "shop", "--private")
    opened = rota("pool", "set", "default", "--no-private")
    unsaid = rota("pool", "set", "default")

    assert private.err == "pool default is private now\n"
    assert "processes refused: it is shared" in words(shown.out)
    assert both.err == "pool gpu is for shop, private now\n"
    assert opened.err == "pool default is not private now\n"
    assert unsaid.code == 2


def test_a_policy_says_which_walls_jobs_may_have(rota: Console, server: Server) -> None:
    rota("project", "create", "shop")

    changed = rota(
        *("project", "set", "shop", "--policy", "isolation=sandbox,container"),
        *("--policy", "network=none", "--policy", "limits.memory=4GiB", "--policy", "run_as=[]"),
        *("--policy", "pinned_images=true"),
    )
    shown = words(rota("project", "show", "shop").out)
    taken = rota("project", "set", "shop", "--policy", "isolation=", "--policy", "limits.memory=")
    wrong = rota("project", "set", "shop", "--policy", "isolation=vm")

    assert changed.code == 0
    assert "policy: isolation sandbox, container" in shown
    assert "policy: limits.memory at most 4GiB" in shown
    assert "policy: run_as none" in shown
    assert "policy: images by digest" in shown
    assert taken.code == 0
    assert "policy: isolation sandbox, container" not in words(rota("project", "show", "shop").out)
    assert "isolation[0] must be process, sandbox or container" in wrong.err
