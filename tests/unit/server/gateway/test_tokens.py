from __future__ import annotations

import pytest

from rota.ports.records import Role
from tests.unit.server.gateway.served import Served

pytestmark = pytest.mark.anyio


async def test_a_new_token_shows_its_secret_once(served: Served) -> None:
    body = {"name": "ci", "role": "operator", "expires_in": "90d"}

    made = (await served.post("tokens", json=body)).json()

    caller = await served.browser({"Authorization": f"Bearer {made['secret']}"})
    assert (await caller.get("/api/v1/whoami")).json()["role"] == "operator"
    listed = await served.get("tokens")
    assert made["secret"] not in listed.text
    [shown] = [token for token in listed.json()["items"] if token["id"] == made["id"]]
    assert shown["created_by"] == "admin"
    assert shown["expires_at"] is not None


async def test_no_secret_is_ever_listed_or_kept_readable(served: Served) -> None:
    listed = await served.get("tokens")

    assert not any(secret in listed.text for secret in served.secrets.values())
    assert "digest" not in listed.text


async def test_a_revoked_token_stops_working_at_once(served: Served) -> None:
    made = (await served.post("tokens", json={"name": "ci", "role": "viewer"})).json()
    caller = await served.browser({"Authorization": f"Bearer {made['secret']}"})
    assert (await caller.get("/api/v1/whoami")).status_code == 200

    answer = await served.delete(f"tokens/{made['id']}")

    assert answer.status_code == 204
    assert (await caller.get("/api/v1/whoami")).status_code == 401


async def test_an_unknown_token_cannot_be_revoked(served: Served) -> None:
    assert (await served.delete("tokens/t_nothing")).status_code == 404


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "two\nlines"},
        {"name": "<script>"},
        {"role": "owner"},
        {"expires_in": "soon"},
        {"expires_in": 90},
        {"kind": "session"},
    ],
)
async def test_a_wrong_token_is_not_made(served: Served, change: dict[str, object]) -> None:
    answer = await served.post("tokens", json={"name": "ci", "role": "viewer", **change})

    assert answer.status_code == 422
    assert len((await served.get("tokens")).json()["items"]) == len(Role)
