"""The short form of `make chaos`: every kind of fault once, then peace and the verdict.

`make test` runs it last and by itself. It needs both of two cores, and still measures times there
that a machine with more would not have: hence the allowance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from testkit.chaos.campaign import Plan, run_campaign
from testkit.chaos.report import report

pytestmark = [pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(900)]


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not below pytest's folder, which only its own user may enter: PostgreSQL runs as another.
    with tempfile.TemporaryDirectory(prefix="rota-chaos-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_every_promise_is_kept_under_fire(folder: Path) -> None:
    told: list[str] = []
    plan = Plan(faults_for=timedelta(minutes=2), seed=4, allowance=timedelta(seconds=5))

    verdict = run_campaign(plan, folder, told.append)

    assert not verdict.violations, "\n".join([*told, report(verdict)])
    assert verdict.case.dump.events["shards.taken"]
    assert any(run.losses for run in verdict.case.dump.runs.values())
