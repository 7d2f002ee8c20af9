from __future__ import annotations

import pytest
import structlog

from rota.domain.access import Role
from rota.domain.errors import (
    Conflict,
    Denied,
    Invalid,
    NotFound,
    RotaError,
    StaleTransition,
    Unavailable,
)
from rota.operations.tokens import create_login_link_secret
from rota.server.gateway.parsers import parse_json
from rota.server.gateway.problems import answer, status_of
from tests.unit.server.gateway.served import YAML, Served, job, job_file

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("x"), 422),
        (Invalid("x", code="malformed"), 400),
        (Invalid("x", code="something_new"), 422),
        (NotFound("x", code="run_not_found"), 404),
        (Conflict("x"), 409),
        (Conflict("x", code="etag_mismatch"), 412),
        (StaleTransition("x"), 409),
        (Denied("x"), 403),
        (Denied("x", code="unauthenticated"), 401),
        (Unavailable("x"), 503),
    ],
)
def test_every_error_has_the_status_of_its_code_or_else_its_class(
    error: RotaError, status: int
) -> None:
    assert status_of(error) == status


def test_an_unavailable_store_says_when_to_come_again() -> None:
    assert answer(Unavailable("away"), "t").headers["retry-after"] == "1"


async def test_an_unknown_parameter_is_refused_with_the_nearest(served: Served) -> None:
    response = await served.get("jobs", params={"limt": "5"})

    assert (response.status_code, response.json()["code"]) == (400, "unknown_parameter")
    assert "limit" in response.json()["errors"][0]["hint"]


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("jobs", {"limit": "0"}),
        ("jobs", {"limit": "1001"}),
        ("jobs", {"limit": "many"}),
        ("jobs", {"cursor": "nonsense"}),
        ("runs", {"cursor": "bm9uc2Vuc2U"}),
        ("jobs", {"project": "../other"}),
        ("events", {"after": "-1"}),
        ("events", {"after": "99999999999999999999"}),
        ("runs", {"where": "state"}),
        ("runs", {"since": "soon"}),
        ("runs", {"since": "yesterday", "timezone": "Europe/Berln"}),
        ("schedule/preview", {}),
        ("schedule/preview", {"expression": "@daily", "from": "2026-13-01T00:00:00"}),
    ],
)
async def test_a_wrong_parameter_is_refused(
    served: Served, path: str, params: dict[str, str]
) -> None:
    response = await served.get(path, params=params)

    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"inputs": {"a": NaN}}',
        b'{"priority": 1, "priority": 2}',
        b'{"inputs": {"a": "\\ud800"}}',
        b'{"at": "\xff"}',
        b'{"priority": ' + b"9" * 5_000 + b"}",
        b'{"inputs": ' + b"[" * 100_000,
    ],
    ids=["torn", "NaN", "key twice", "lone surrogate", "not UTF-8", "huge number", "deep"],
)
async def test_json_that_is_none_is_malformed(served: Served, body: bytes) -> None:
    await served.apply(job())

    response = await served.post(
        "jobs/tidy/runs", content=body, headers={"Content-Type": "application/json"}
    )

    assert (response.status_code, response.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"input": {}}, 'unknown key "input"'),
        ({"priority": "high"}, "must be a valid integer"),
        ({"priority": 10}, "must be less than or equal to 9"),
    ],
    ids=str,
)
async def test_what_is_wrong_with_a_body_is_told_in_words_of_users(
    served: Served, body: dict[str, object], told: str
) -> None:
    await served.apply(job())

    [problem] = (await served.post("jobs/tidy/runs", json=body)).json()["errors"]

    assert told in problem["message"]
    assert "nput" not in problem["message"].replace('"input"', "")


def test_proper_json_is_read() -> None:
    assert parse_json(b'{"a": ["\\u00e9", 1.5, null]}') == {"a": ["é", 1.5, None]}


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded"])
async def test_what_a_form_could_send_is_not_read_as_json(
    served: Served, content_type: str
) -> None:
    response = await served.post(
        "login", None, content=b'{"secret": "x"}', headers={"Content-Type": content_type}
    )

    assert response.status_code == 422


async def test_an_unknown_address_is_a_problem_too(served: Served) -> None:
    response = await served.get("nothing/here")

    assert (response.status_code, response.json()["code"]) == (404, "not_found")


async def test_a_wrong_method_is_a_problem_too(served: Served) -> None:
    response = await served.delete("whoami")

    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
    assert response.headers["allow"] == "GET"


HOSTILE_NAMES = ["..%2f..%2fetc", "%00", "a%0ab", "<script>", "%25s", "*", "%", "'--", "é" * 300]


@pytest.mark.parametrize("path", ["jobs/{}", "runs/{}", "runs/{}/log", "jobs/{}/ledger"])
async def test_hostile_names_find_nothing(served: Served, path: str) -> None:
    await served.apply(job())
    await served.trigger()

    responses = {name: await served.get(path.format(name)) for name in HOSTILE_NAMES}

    for name, response in responses.items():
        assert response.status_code in {400, 404}, name
        assert response.headers["content-type"] == "application/problem+json"


async def test_a_hostile_name_is_quoted_as_json_and_forges_no_header_or_log_line(
    served: Served,
) -> None:
    with structlog.testing.capture_logs() as lines:
        response = await served.get("jobs/<script>alert(1)<%2fscript>%0d%0aSet-Cookie:%20a=b")

    assert response.status_code == 404
    assert "set-cookie" not in response.headers
    assert not any("script" in str(line) for line in lines)


async def test_what_nobody_expected_is_a_500_that_tells_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(served.engine.store, "jobs", fail)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}

    with structlog.testing.capture_logs() as lines:
        response = await served.get("jobs", headers=headers)

    assert (response.status_code, response.json()["trace_id"]) == (500, trace)
    assert "hunter2" not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"
    [error, request] = lines
    assert (error["log_level"], error["trace_id"]) == ("error", trace)
    assert isinstance(error["exc_info"], RuntimeError)
    assert request["status"] == 500


async def test_a_store_that_is_away_is_a_503(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        raise Unavailable("the disk is full", hint="free some space")

    monkeypatch.setattr(served.engine.store, "jobs", fail)

    response = await served.get("jobs")

    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.json()["hint"] == "free some space"


async def test_every_request_is_one_line_without_secrets(served: Served) -> None:
    await served.apply(job("hidden-name"))
    secret = served.secrets[Role.VIEWER]
    link = await create_login_link_secret(served.engine.store, actor="up")

    with structlog.testing.capture_logs() as lines:
        await served.get("jobs/hidden-name", Role.VIEWER)
        await served.post("login", None, json={"secret": secret})
        await (await served.browser()).get("/login", params={"token": link})

    assert [(line["method"], line["route"], line["status"]) for line in lines] == [
        ("GET", "/api/v1/jobs/{job}", 200),
        ("POST", "/api/v1/login", 200),
        ("GET", "/login", 303),
    ]
    assert lines[0]["caller"] == "viewer"
    assert lines[0]["ms"] > 0
    assert secret not in str(lines)
    assert link not in str(lines)
    assert "hidden-name" not in str(lines)


async def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    response = await served.post("jobs:apply", content=b"#" * (4 * 1024 * 1024 + 1), headers=YAML)

    assert (response.status_code, response.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("path", "content_type"),
    [("jobs:apply", "application/yaml"), ("jobs/tidy/runs", "application/json")],
)
async def test_a_body_of_unknown_length_is_cut_off(
    served: Served, path: str, content_type: str
) -> None:
    async def endless() -> object:
        for _ in range(100):
            yield b" " * 100_000

    await served.apply(job())
    response = await served.post(path, content=endless(), headers={"Content-Type": content_type})

    assert (response.status_code, response.json()["code"]) == (413, "too_large")


async def test_compressed_bodies_are_refused(served: Served) -> None:
    headers = {**YAML, "Content-Encoding": "gzip"}

    response = await served.post("jobs:apply", content=job_file(job()), headers=headers)

    assert response.status_code == 415


async def test_answers_are_inert_in_browsers(served: Served) -> None:
    response = await served.get("jobs", headers={"Origin": "http://evil.test"})

    assert response.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"
    assert not any(name.startswith("access-control") for name in response.headers)
