"""Fields of jobs of type `http`: what is refused, where, and what to write instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.job import rules_of
from rota.domain.jobfile import read_job
from rota.domain.shape import demand_of, shape_of, unmet
from rota.domain.spec import HttpMethod, HttpState, HttpValue, JobSpec

SUBMIT = {"url": "https://pay.example.org/v1"}
STATUS = {"url": {"header": "Location"}}


def read(http: Any, **fields: Any) -> JobSpec:
    return read_job({"name": "pay", "type": "http", "http": http, **fields})


def problems(http: Any, **fields: Any) -> str:
    with pytest.raises(Invalid) as refused:
        read(http, **fields)
    return "\n".join(map(str, refused.value.problems))


def test_what_is_not_written_has_its_usual_value() -> None:
    http = read({"submit": {**SUBMIT, "body": {"a": 1}}, "status": {**STATUS, "every": "30s"}}).http

    assert http is not None
    assert (http.submit.method, http.submit.url.text) == (HttpMethod.POST, SUBMIT["url"])
    assert http.status is not None
    assert (http.status.method, http.status.url) == (HttpMethod.GET, HttpValue(header="Location"))
    assert (http.every, http.patience) == (timedelta(seconds=30), timedelta(minutes=5))
    assert (http.result.running, http.result.otherwise) == (("202",), HttpState.FAILED)


@pytest.mark.parametrize(
    ("http", "fields", "said"),
    [
        (None, {}, 'has no "http", which type http needs'),
        ({}, {}, 'has no "submit"'),
        ({"submit": {}}, {}, 'has no "url"'),
        ({"submit": {"url": "http://me:pw@a/"}}, {}, "a user or password"),
        ({"submit": {"url": "http://127.1/"}}, {}, "in its usual form"),
        ({"submit": {"url": {"secret": "A"}}}, {}, "an address cannot have a secret"),
        ({"submit": {"url": {"inputs": "a"}}}, {}, 'did you mean "input"?'),
        ({"submit": {"url": {"input": "a", "run": "id"}}}, {}, "name exactly one of"),
        ({"submit": {"url": {"header": "Location"}}}, {}, "submit comes first"),
        ({"submit": {**SUBMIT, "query": {"m": {"input": "mont"}}}}, {}, 'no input "mont"'),
        ({"submit": {**SUBMIT, "query": {"m": {"run": "ids"}}}}, {}, 'did you mean "id"?'),
        ({"submit": {**SUBMIT, "headers": {"Host": "x"}}}, {}, "only Rota sets Host"),
        ({"submit": {**SUBMIT, "headers": {"a b": "x"}}}, {}, "the name of a header"),
        ({"submit": {**SUBMIT, "method": "GET", "body": "x"}}, {}, "a GET has no body"),
        ({"submit": SUBMIT, "cancel": SUBMIT}, {}, "nothing goes on that could be stopped"),
        ({"submit": SUBMIT, "result": {"running": [202]}}, {}, "there is no status"),
        ({"submit": SUBMIT, "result": {"pointer": "/a"}}, {}, "what its values mean"),
        ({"submit": SUBMIT, "result": {"values": {"a": "failed"}}}, {}, "there is no pointer"),
        ({"submit": SUBMIT, "result": {"pointer": "a"}}, {}, "a JSON pointer such as /status"),
        (
            {"submit": SUBMIT, "status": {"url": {"answer": "id"}}},
            {},
            '"id" is not a JSON pointer — write /id',
        ),
        ({"submit": SUBMIT}, {"steps": [{"run": "x"}]}, '"steps" does not go with type http'),
        ({"submit": SUBMIT}, {"isolation": "sandbox"}, '"isolation" does not go with type http'),
        ({"submit": SUBMIT}, {"resources": {"cpu": 1}}, "cpu is a machine's"),
        ({"submit": SUBMIT}, {"resources": {"http_slots": 1}}, "every run takes one"),
    ],
)
def test_what_does_not_go_together_is_refused(http: Any, fields: dict[str, Any], said: str) -> None:
    assert said in problems(http, **fields)


def test_requests_go_with_their_type_only() -> None:
    with pytest.raises(Invalid) as refused:
        read_job({"name": "pay", "http": {"submit": SUBMIT}, "steps": [{"run": "true"}]})

    assert "goes with type http only" in str(refused.value.problems[0])


def test_its_worker_must_have_the_type_and_the_secrets() -> None:
    secret = {"secret": "TOKEN", "prefix": "Bearer "}
    spec = read({"submit": {**SUBMIT, "headers": {"Authorization": secret}}})
    shape = shape_of(rules_of(spec))

    assert demand_of(shape).resources == {"http_slots": 1000}
    assert unmet(shape, {}, (), {"slots": 1000}) == [
        "executor for jobs of type http",
        "secret TOKEN",
    ]
    offers = {"type/http", "secret/TOKEN"}
    assert unmet(shape, {}, (), {"slots": 1000, "http_slots": 1000}, offers) == []
