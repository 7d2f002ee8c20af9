from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from rota.sdk import errors
from rota.sdk.client import AsyncClient, Client
from tests.unit.sdk.answering import Answering, Ask, Given, document, problem

RUN = {"id": "r_1", "job": "tidy", "state": "PROCESSING", "attempt": 1}
ENDED = {**RUN, "state": "COMPLETED"}
DAY = "2026-05-04T00:00:00Z"


@pytest.fixture
def client(server: Answering) -> Iterator[Client]:
    with Client(server.url, "secret", project="ops") as client:
        yield client


def test_both_clients_offer_the_same(server: Answering) -> None:
    def offer(client: object) -> dict[str, object]:
        public = {name for name in dir(client) if not name.startswith("_")}
        methods = {name: getattr(client, name) for name in public}
        return {
            name: (inspect.signature(method).parameters, inspect.getdoc(method))
            for name, method in methods.items()
            if callable(method) and name != "each"
        }

    assert offer(Client(server.url)) == offer(AsyncClient(server.url))


def test_method_has_the_help_of_its_call(client: Client) -> None:
    assert (inspect.getdoc(client.trigger) or "").startswith("Make a run of a job, now or `at`")
    assert list(inspect.signature(client.trigger).parameters)[:2] == ["job", "inputs"]


def test_verb_of_the_class_is_the_call_itself(server: Answering, ask: Ask) -> None:
    server.on("GET /jobs/tidy", document({"id": "j_1", "name": "tidy"}))

    call = Client.get_job("tidy")

    assert (call.method, call.path) == ("GET", "/jobs/tidy")
    assert ask(server, "send", call).name == "tidy"


def test_answer_is_typed_and_newer_fields_are_ignored(server: Answering, ask: Ask) -> None:
    job = {"id": "j_1", "name": "tidy", "next_at": "2026-01-01T02:00:00Z", "unheard_of": 1}
    server.on("GET /jobs/tidy", document(job))

    found = ask(server, "get_job", "tidy")

    assert (found.name, found.next_at) == ("tidy", datetime(2026, 1, 1, 2, tzinfo=UTC))


def test_request_carries_token_project_and_only_the_terms_given(
    server: Answering, client: Client
) -> None:
    server.on("GET /runs", document({"items": []}))

    client.list_runs(where="state:failed job:a*", active=True)

    (asked,) = server.asked
    assert asked.headers["Authorization"] == "Bearer secret"
    assert asked.query == {
        "project": ["ops"],
        "where": ["state:failed job:a*"],
        "active": ["true"],
    }


def test_names_stay_within_their_part_of_the_path(server: Answering, client: Client) -> None:
    with pytest.raises(errors.NotFound):
        client.get_job("../tokens?x=1")

    assert server.asked[0].path == "/api/v1/jobs/..%2Ftokens%3Fx%3D1"


def test_trigger_sends_inputs_and_a_key_of_its_own(server: Answering, ask: Ask) -> None:
    server.on("POST /jobs/tidy/runs", document(RUN, 202))

    ask(server, "trigger", "tidy", {"target": "all"}, priority=8)
    ask(server, "trigger", "tidy", key="mine")

    first, second = server.asked
    assert first.document == {"inputs": {"target": "all"}, "priority": 8}
    assert len(first.headers["Idempotency-Key"]) > 20
    assert second.headers["Idempotency-Key"] == "mine"


def test_backfill_sends_the_range_and_a_key_of_its_own(server: Answering, ask: Ask) -> None:
    skipped = {"cause": "completed", "count": 2, "first": DAY, "last": DAY}
    server.on("POST /jobs/tidy:backfill", document({"id": "b_1", "runs": 1, "skipped": [skipped]}))

    answer = ask(server, "backfill_job", "tidy", DAY, only="missing", max_parallel=4, plan=True)

    (asked,) = server.asked
    assert (answer.id, answer.skipped[0].count) == ("b_1", 2)
    assert asked.document == {"from": DAY, "only": "missing", "max_parallel": 4}
    assert asked.query == {"plan": ["true"]}
    assert len(asked.headers["Idempotency-Key"]) > 20


def test_job_file_is_sent_as_it_is_with_the_plans_etag(server: Answering, ask: Ask) -> None:
    plan = {"changes": [{"name": "tidy", "change": "new"}], "etag": "7f3a", "applied": True}
    server.on("POST /jobs:apply", document(plan))

    answer = ask(server, "apply", "jobs: []", name="jobs", prune=True, if_match="7f3a")

    (asked,) = server.asked
    assert answer.changes[0].change == "new"
    assert asked.body == b"jobs: []"
    assert asked.headers["Content-Type"] == "application/yaml"
    assert asked.headers["If-Match"] == '"7f3a"'
    assert asked.query == {"name": ["jobs"], "prune": ["true"]}


def test_all_pages_of_a_list_are_walked(server: Answering, ask: Ask) -> None:
    first = {"items": [RUN], "next_cursor": "abc"}
    server.on("GET /runs", document(first), document({"items": [ENDED]}))

    found = ask(server, "each", Client.list_runs(state="any"))

    assert [run.state for run in found] == ["PROCESSING", "COMPLETED"]
    assert server.asked[1].query == {"state": ["any"], "cursor": ["abc"]}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Denied),
        (403, errors.Denied),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (412, errors.Conflict),
        (422, errors.Invalid),
        (503, errors.Unavailable),
        (500, errors.RotaApiError),
    ],
)
def test_problem_becomes_the_error_it_is(
    server: Answering, ask: Ask, status: int, kind: type[errors.RotaApiError]
) -> None:
    fault = {"message": "unknown key", "line": 7, "column": 5, "path": "jobs[0]", "hint": "name"}
    answer = problem(status, code="why", detail="no", hint="do", errors=[fault], trace_id="t")
    server.on("GET /whoami", answer)

    with pytest.raises(kind) as caught:
        ask(server, "whoami")

    error = caught.value
    assert type(error) is kind
    assert (error.code, error.status, error.hint, error.trace_id) == ("why", status, "do", "t")
    assert str(error) == "no\n  7:5  unknown key — name\ndo"


def test_error_page_of_something_else_is_still_an_error(server: Answering, ask: Ask) -> None:
    server.on("GET /whoami", Given(b"<html>Bad gateway</html>", 502, "text/html"))

    with pytest.raises(errors.RotaApiError, match="status 502"):
        ask(server, "whoami")


def test_answer_that_is_no_rota_answer_is_told_as_that(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1", Given(b"<html>welcome</html>", 200, "text/html"))

    with pytest.raises(errors.NotRota) as caught:
        ask(server, "get_run", "r_1")

    assert caught.value.code == "bad_answer"
    assert caught.value.message == (
        f"{server.url} does not answer like a Rota server: status 200, text/html, "
        '"<html>welcome</html>"'
    )
    assert "--url, ROTA_URL" in caught.value.hint


@pytest.mark.parametrize(
    "answer",
    [
        Given(b"<h1>Not Found</h1>", 404, "text/html"),
        Given(b'{"detail": "Not Found"}', 404, "application/json"),
        Given(b"", 302, "text/html"),
        Given(b"forbidden", 403, "text/plain"),
        Given(b'{"hello": "world"}', 200, "application/json"),
        Given(b"", 200, "text/plain"),
    ],
)
def test_answer_of_another_server_is_taken_for_none_of_ours(
    server: Answering, ask: Ask, answer: Given
) -> None:
    server.on("GET /jobs/nightly", answer)

    with pytest.raises(errors.NotRota, match=f"Rota server: status {answer.status}, "):
        ask(server, "get_job", "nightly")


def test_page_of_another_server_is_no_stream_of_events(server: Answering, ask: Ask) -> None:
    server.on("GET /events/stream", Given(b"<html>welcome</html>", 200, "text/html"))

    with pytest.raises(errors.NotRota, match="welcome"):
        ask(server, "follow_events")


def test_missing_token_is_explained(server: Answering, ask: Ask) -> None:
    server.on("GET /whoami", problem(401, detail="not logged in"))

    with pytest.raises(errors.Denied, match="ROTA_TOKEN"):
        ask(server, "whoami")


def test_server_that_is_away_is_unreachable(ask: Ask) -> None:
    nowhere = Answering("http://127.0.0.1:9")

    with pytest.raises(errors.Unreachable, match=r"no answer from http://127\.0\.0\.1:9"):
        ask(nowhere, "whoami")


def test_connection_that_broke_off_is_tried_again_only_if_that_is_harmless(
    server: Answering, client: Client
) -> None:
    torn = Given(b"{", length=100)
    server.on("GET /whoami", document({"name": "me"}), torn, document({"name": "me again"}))
    server.on("POST /runs/r_1:retry", torn)
    client.whoami()

    assert client.whoami().name == "me again"
    client.whoami()
    with pytest.raises(errors.Unreachable):
        client.retry_run("r_1")
    assert [asked.method for asked in server.asked].count("POST") == 1


def test_empty_answer_is_nothing(server: Answering, ask: Ask) -> None:
    server.on("DELETE /jobs/tidy", Given(b"", 204))

    assert ask(server, "delete_job", "tidy") is None


def test_raw_log_is_the_exact_bytes(server: Answering, ask: Ask) -> None:
    server.on("GET /runs/r_1/log/raw", Given(b"\xff\x00", 200, "text/plain"))

    assert ask(server, "raw_log", "r_1", attempt=1) == b"\xff\x00"
