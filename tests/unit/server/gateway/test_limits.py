from __future__ import annotations

from datetime import datetime
from typing import Any

import httpx
import pytest

from rota.domain.access import Role
from rota.domain.ids import micros
from rota.domain.keys import Bucket, KeyState, Rate
from rota.ports.records import KeyUse
from rota.server.gateway.limits import _bucket_answer
from testkit.clock import START
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio

TEN_A_SECOND = {"tokens": 10, "per": "1s"}
ONE_AN_HOUR = {"tokens": 1, "per": "1h"}


async def put(served: Served, path: str, body: object, **kwargs: Any) -> httpx.Response:
    client = await served.client()
    return await client.put(f"/api/v1/{path}", json=body, **kwargs)


async def test_a_limit_is_created_changed_and_left_alone(served: Served) -> None:
    created = await put(served, "limits/s3-put", TEN_A_SECOND)
    changed = await put(served, "limits/s3-put", {**TEN_A_SECOND, "burst": 20, "each": "user"})
    again = await put(served, "limits/s3-put", {**TEN_A_SECOND, "burst": 20, "each": "user"})

    assert [answer.status_code for answer in (created, changed, again)] == [201, 200, 200]
    assert created.json() == {
        "name": "s3-put",
        "change": "new",
        "words": "10 tokens per 1s, burst 10",
        "differences": [],
        "applied": True,
    }
    assert changed.json()["differences"] == ["burst  10 → 20", "each  (none) → user"]
    assert again.json()["change"] == "unchanged"


async def test_a_limit_is_shown_with_its_tokens_and_who_waits(served: Served) -> None:
    await put(served, "limits/s3-put", ONE_AN_HOUR)
    await served.apply(job(rate_limits=["s3-put"], max_concurrency=9))
    await served.trigger()
    await (await served.worker()).claim()
    await served.trigger()

    shown = (await served.get("limits/s3-put")).json()

    bucket = shown["bucket"]
    wait = datetime.fromisoformat(bucket.pop("next_token_at")) - datetime.fromisoformat(
        shown["updated_at"]
    )
    assert bucket == {"tokens": 0, "queued": 0, "waiting": 1}
    assert 3_500 < wait.total_seconds() < 3_700
    assert (shown["per"], shown["burst"], shown["each"]) == ("1h", 1, None)
    assert shown["updated_by"] == "admin"


async def test_a_limit_for_each_user_has_no_one_bucket(served: Served) -> None:
    await put(served, "limits/fair", {**TEN_A_SECOND, "each": "user"})

    assert (await served.get("limits/fair")).json()["bucket"] is None


@pytest.mark.parametrize(
    ("path", "bodies"),
    [("limits", [TEN_A_SECOND] * 3), ("resources", [{"total": 2}] * 3)],
)
async def test_declarations_are_listed_in_parts(
    served: Served, path: str, bodies: list[object]
) -> None:
    for name, body in zip("cab", bodies, strict=True):
        await put(served, f"{path}/{name}", body)

    first = (await served.get(path, params={"limit": 2})).json()
    rest = (await served.get(path, params={"cursor": first["next_cursor"]})).json()

    names = [each["name"] for part in (first, rest) for each in part["items"]]
    assert (names, rest["next_cursor"]) == (["a", "b", "c"], None)


async def test_a_resource_is_shown_with_the_runs_that_hold_it(served: Served) -> None:
    await put(served, "resources/licence", {"total": 1})
    await served.apply(job(resources={"licence": 1}, max_concurrency=9))
    held = await served.trigger()
    await (await served.worker()).claim()
    blocked = await served.trigger()

    shown = (await served.get("resources/licence")).json()

    assert blocked["state"] == "BLOCKED"
    assert shown["use"] == {"held": 1, "queued": 0, "waiting": 1, "holders": [held["id"]]}
    assert (shown["kind"], shown["total"]) == ("counted", 1)


async def test_a_writer_is_one_holder_and_has_the_group_for_itself(served: Served) -> None:
    await put(served, "resources/catalog", {"kind": "read_write"})
    await served.apply(job(resources={"catalog": "write"}))
    await served.trigger()
    await (await served.worker()).claim()

    shown = (await served.get("resources/catalog")).json()

    assert (shown["total"], shown["is_written"], shown["use"]["held"]) == (None, True, 1)


async def test_a_resource_in_use_cannot_be_deleted(served: Served) -> None:
    await put(served, "resources/licence", {"total": 1})
    await served.apply(job(resources={"licence": 1}))

    refused = await served.delete("resources/licence")
    await served.apply(job())
    deleted = await served.delete("resources/licence")

    assert refused.status_code == 409
    assert "tidy" in refused.text
    assert deleted.status_code == 204
    assert (await served.get("resources/licence")).status_code == 404


async def test_a_plan_changes_nothing(served: Served) -> None:
    answer = await put(served, "limits/s3-put", TEN_A_SECOND, params={"plan": "true"})

    assert (answer.status_code, answer.json()["applied"]) == (200, False)
    assert (await served.get("limits/s3-put")).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("limits/a", {"tokens": 0, "per": "1s"}, "tokens"),
        ("limits/a", {"tokens": True, "per": "1s"}, "tokens"),
        ("limits/a", {"tokens": 1, "per": "1s", "burst": "2"}, "burst"),
        ("limits/a", {"tokens": 1, "per": "0s"}, "per"),
        ("limits/a", {"tokens": 1, "per": "soon"}, "per"),
        ("limits/a", {"tokens": 1, "per": "1s", "each": "worker"}, "each"),
        ("limits/a", {"tokens": 1, "per": "1s", "odd": 1}, "odd"),
        ("resources/a", {}, ""),
        ("resources/a", {"total": 2, "kind": "mutex"}, ""),
        ("resources/a", {"kind": "semaphore"}, "kind"),
        ("resources/a", {"total": True}, "total"),
        ("quota", {"running": -1}, "running"),
        ("quota", {"queued": True}, "queued"),
        ("quota", {"output_bytes_per_day": 1.5}, "output_bytes_per_day"),
        ("shares/a", {"weight": 0}, "weight"),
        ("shares/a", {"weight": True}, "weight"),
    ],
    ids=str,
)
async def test_what_is_wrong_is_told_with_its_path(
    served: Served, path: str, body: object, place: str
) -> None:
    answer = await put(served, path, body)

    assert answer.status_code == 422
    assert [error["path"] for error in answer.json()["errors"]] == [place]


async def test_what_workers_offer_is_no_shared_resource(served: Served) -> None:
    answer = await put(served, "resources/memory", {"total": 4})

    assert (answer.status_code, answer.json()["code"]) == (422, "name_of_workers")


@pytest.mark.parametrize("noun", ["limit", "resource"])
async def test_an_unknown_name_is_told_with_the_nearest_one(served: Served, noun: str) -> None:
    body = TEN_A_SECOND if noun == "limit" else {"total": 1}
    await put(served, f"{noun}s/licence", body)

    shown = await served.get(f"{noun}s/licnce")
    deleted = await served.delete(f"{noun}s/licnce")

    for answer in (shown, deleted):
        assert (answer.status_code, answer.json()["code"]) == (404, f"{noun}_not_found")
        assert answer.json()["hint"] == 'did you mean "licence"?'


async def test_a_quota_is_set_shown_and_cleared(served: Served) -> None:
    before = await served.get("quota")
    quota = {"running": 1, "runs_per_minute": 60, "queued": 100, "output_bytes_per_day": 2**40}
    created = await put(served, "quota", quota)
    await served.apply(job(max_concurrency=9))
    held = await served.trigger()
    await (await served.worker()).claim()
    await served.trigger()
    shown = (await served.get("quota")).json()
    cleared = await served.delete("quota")

    cleared_to = (await served.get("quota")).json()
    assert (before.json()["jobs_now"], shown["jobs_now"], shown["queued_now"]) == (0, 1, 1)
    assert before.json()["running"] is None
    assert created.json()["words"] == (
        "100 queued, 1 running, 60 runs per minute, 1,099,511,627,776 output bytes per day"
    )
    assert shown["use"] == {"held": 1, "queued": 0, "waiting": 1, "holders": [held["id"]]}
    assert shown["bucket"]["tokens"] < 60
    assert shown["output"]["tokens"] in (2**40 - 1, 2**40)
    assert shown["output_bytes_per_day"] == 2**40
    assert cleared.status_code == 204
    assert cleared_to == before.json() | {"jobs_now": 1, "queued_now": cleared_to["queued_now"]}
    assert (await served.delete("quota")).json()["code"] == "quota_not_found"


async def test_a_project_that_may_have_nothing_waits_for_no_token(served: Served) -> None:
    await put(served, "quota", {"runs_per_minute": 0})

    bucket = (await served.get("quota")).json()["bucket"]

    assert (bucket["tokens"], bucket["next_token_at"]) == (0, None)


def test_a_token_that_comes_in_ages_comes_at_no_time() -> None:
    rule = Rate(1, 86_400.0, 1)
    state = KeyState(rule, bucket=Bucket(rule, -1e12, micros(START)))

    bucket = _bucket_answer(KeyUse(state, (), 0), START)

    assert (bucket.tokens, bucket.next_token_at) == (0, None)


async def test_a_share_gets_a_weight(served: Served) -> None:
    saved = await put(served, "shares/default%2Fanna", {"weight": 2.5})
    listed = await served.get("shares")

    assert (saved.status_code, saved.json()["share"]) == (200, "default/anna")
    assert listed.json()["items"] == [saved.json()]
    assert saved.json()["weight"] == 2.5


@pytest.mark.parametrize("path", ["jobs:apply", "jobs:apply?plan=true", "submit_job"])
async def test_only_a_job_of_an_admin_brings_a_share_with_it(served: Served, path: str) -> None:
    file = {"content": job_file(job(share="team")), "headers": YAML}

    refused = await served.post(path, Role.EDITOR, **file)
    accepted = await served.post(path, Role.ADMIN, **file)
    again = await served.post(path, Role.EDITOR, **file)

    [error] = refused.json()["errors"]
    assert (refused.status_code, accepted.is_success) == (422, True)
    assert "rota share set team --weight 1" in error["hint"]
    assert again.is_success == ("plan" not in path)
