from __future__ import annotations

import pytest

from tests.unit.refused_schedules import REFUSED, Refused
from tests.unit.server.gateway.served import YAML, Served, job_file

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("refused", REFUSED, ids=str)
@pytest.mark.parametrize("verb", ["validate", "apply"])
async def test_a_file_is_refused_with_the_place_and_the_reason(
    served: Served, refused: Refused, verb: str
) -> None:
    answer = await served.post(f"jobs:{verb}", content=job_file(refused.job), headers=YAML)

    [error] = answer.json()["errors"]
    assert answer.status_code == 422
    assert refused.message in error["message"]
    assert error["path"].startswith("jobs[0].")
    assert (await served.get("jobs")).json()["items"] == []


@pytest.mark.parametrize("refused", [r for r in REFUSED if r.is_whole_without_a_job], ids=str)
async def test_a_preview_is_refused_with_the_reason(served: Served, refused: Refused) -> None:
    expressions, zone = refused.preview

    answer = await served.get(
        "schedule/preview", params={"expression": expressions, "timezone": zone}
    )

    [error] = answer.json()["errors"]
    assert answer.status_code == 422
    assert refused.message in error["message"]
