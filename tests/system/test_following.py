"""`after` with real processes: one run for each completed upstream run, whoever dies between."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from rota.sdk.answers import Run
from rota.sdk.client import Client
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.waiting import eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, job, runs_of

QUIET = timedelta(seconds=45)  # the lease of the dead has to pass, on a busy machine
GOOD, BAD = 20, 3  # upstream runs that complete, and that fail


def settled(client: Client) -> tuple[list[Run], list[Run]]:
    """Upstream runs and those that follow, once nothing is left to do."""
    upstream, following = (runs_of(client, name) for name in ("import", "report"))
    assert len(following) >= GOOD
    assert all(run.is_final for run in (*upstream, *following))
    return upstream, following


def test_follower_runs_once_per_completed_run_across_a_crash(up: Up, evidence: Evidence) -> None:
    rota = up(slots="4", lease="4s")
    apply(
        rota.client,
        job(
            "import",
            evidence.script('[ "$INPUT_GOOD" = true ] || exit 1', evidence.beats(2)),
            inputs={"good": {"type": "boolean", "default": True}},
        ),
        job("report", evidence.script(evidence.beats(2)), after=["import"]),
    )
    rota.client.trigger_many("import", [{"good": False}] * BAD + [{}] * GOOD)
    eventually(lambda: runs_of(rota.client, "report"))

    rota.kill()
    rota.start()
    upstream, following = eventually(lambda: settled(rota.client), QUIET)

    completed = [run.id for run in upstream if run.state == "COMPLETED"]
    assert Counter(run.follows for run in following) == Counter(completed)
    assert Counter(run.state for run in upstream) == {"COMPLETED": GOOD, "FAILED": BAD}
    assert {run.state for run in following} == {"COMPLETED"}
    done = [*completed, *(run.id for run in following)]
    runs = [*upstream, *following]
    lost = [run.id for run in runs if run.losses]
    assert check(evidence.marks(), done, [run.id for run in runs], lost) == []
