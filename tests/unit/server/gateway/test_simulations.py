"""`POST /api/v1/simulations`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.gateway.served import Served, job

pytestmark = pytest.mark.anyio


async def test_before_and_after_a_change_are_told(served: Served) -> None:
    await served.worker()
    await served.apply(job("often", schedule="every 10m", expect="2m"), job("other"))

    body = {"for": "55m", "add_workers": {"default": 1}, "move": {"other": "every 5m"}}
    answer = (await served.post("simulations", json=body)).json()

    before, after = answer["before"], answer["after"]
    assert (before["workers"], after["workers"]) == (1, 2)
    assert {each["name"]: each["waits"]["runs"] for each in before["jobs"]} == {"often": 5}
    assert {each["name"]: each["waits"]["runs"] for each in after["jobs"]} == {
        "often": 5,
        "other": 10,
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"for": "long"}, 422),
        ({"for": "8d"}, 422),
        ({"add_workers": {"default": 0}}, 422),
        ({"add_workers": {"gpu": 1}}, 409),
        ({"without": ["nobody"]}, 404),
        ({"fro": "1h"}, 422),
    ],
)
async def test_what_cannot_be_is_refused(served: Served, body: dict[str, Any], status: int) -> None:
    assert (await served.post("simulations", json=body)).status_code == status
