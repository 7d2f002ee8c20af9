from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.console import Console
from tests.unit.refused_schedules import REFUSED, Refused


@pytest.mark.parametrize("refused", REFUSED, ids=str)
def test_a_file_is_refused_with_the_place_and_the_reason(rota: Console, refused: Refused) -> None:
    Path("jobs.yaml").write_text(json.dumps({"jobs": [refused.job]}))

    ended = rota("validate", "jobs.yaml")

    [problem, total] = ended.err.splitlines()
    assert ended.code == 6
    assert problem.startswith("jobs.yaml:1:")
    assert refused.message in problem
    assert total == "jobs.yaml: 1 error"


@pytest.mark.parametrize("refused", [r for r in REFUSED if r.is_whole_without_a_job], ids=str)
@pytest.mark.parametrize("verb", ["next", "explain"])
def test_a_preview_is_refused_with_the_reason(rota: Console, refused: Refused, verb: str) -> None:
    expressions, zone = refused.preview

    ended = rota("cron", verb, *expressions, "--tz", zone)

    assert (ended.code, ended.out) == (2, "")
    assert refused.message in ended.err
    assert "Traceback" not in ended.err
