"""Fields of jobs of type `external`: what is refused, where, and what to write instead."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.errors import Invalid
from rota.domain.job import rules_of
from rota.domain.jobfile import read_file, read_job
from rota.domain.jobfile.read import with_defaults
from rota.domain.policy import Bounds, Policy, excesses
from rota.domain.shape import shape_of, unmet
from rota.domain.spec import EXTERNAL_POOL, Delivery, HttpMethod, JobSpec, JobType

ANNOUNCE = {"url": "https://ci.example.org/runs"}


def read(external: Any = None, **fields: Any) -> JobSpec:
    given = {"name": "build", "type": "external", "timeout": "1h", "external": external}
    return read_job({k: v for k, v in (given | fields).items() if v is not None})


def problems(external: Any = None, **fields: Any) -> str:
    with pytest.raises(Invalid) as refused:
        read(external, **fields)
    return "\n".join(f"{each} {each.hint}" for each in refused.value.problems)


def test_what_is_not_written_has_its_usual_value() -> None:
    spec = read({"announce": ANNOUNCE, "cancel": {**ANNOUNCE, "method": "DELETE"}})

    assert spec.external is not None
    assert spec.external.announce is not None
    assert spec.external.cancel is not None
    assert spec.external.announce.method is HttpMethod.POST
    assert spec.external.cancel.method is HttpMethod.DELETE
    assert (spec.external.heartbeat, spec.pool) == (None, EXTERNAL_POOL)


def test_a_job_may_say_nothing_but_how_long_it_may_take() -> None:
    spec = read()

    assert spec.external is not None
    assert spec.external.announce is None
    assert rules_of(spec).tells == ()


def test_its_rules_say_what_is_told_and_how_long_it_may_be_silent() -> None:
    rules = rules_of(read({"announce": ANNOUNCE, "cancel": ANNOUNCE, "heartbeat": "5m"}))

    assert (rules.tells, rules.heartbeat) == (("announce", "cancel"), timedelta(minutes=5))


def test_it_asks_nothing_of_any_worker() -> None:
    shape = shape_of(rules_of(read({"announce": ANNOUNCE}, resources={})))

    assert unmet(shape, {}, ()) == []
    assert shape == ""


@pytest.mark.parametrize(
    ("external", "fields", "said"),
    [
        (None, {"timeout": None}, 'has no "timeout", which type external needs'),
        ({"announce": {}}, {}, 'has no "url"'),
        ({"announce": {"url": "ftp://a/"}}, {}, "is no address to go to"),
        ({"announce": {"url": {"secret": "A"}}}, {}, "an address cannot have a secret"),
        ({"announce": {"url": {"run": "report_token"}}}, {}, "an address cannot have the token"),
        (
            {"announce": {**ANNOUNCE, "query": {"t": {"run": "report_token"}}}},
            {},
            "an address cannot have the token",
        ),
        ({"announce": {"url": {"header": "Location"}}}, {}, "no answer is kept"),
        ({"announce": {**ANNOUNCE, "body": {"a": {"answer": "/a"}}}}, {}, "no answer is kept"),
        ({"announce": {**ANNOUNCE, "body": {"a": {"input": "x"}}}}, {}, 'no input "x"'),
        ({"announce": {**ANNOUNCE, "headers": {"Webhook-Id": "x"}}}, {}, "only Rota sets"),
        ({"announce": {**ANNOUNCE, "headers": {"idempotency-key": "x"}}}, {}, "only Rota sets"),
        ({"announce": {**ANNOUNCE, "method": "GET", "body": "x"}}, {}, "a GET has no body"),
        ({"announce": {**ANNOUNCE, "timeout": "2m"}}, {}, "from 1ms to 1m"),
        (
            {"cancel": {**ANNOUNCE, "headers": {"T": {"run": "report_token"}}}},
            {},
            "the token ends with the attempt",
        ),
        ({"heartbeat": "2h"}, {}, "heartbeat is longer than timeout"),
        ({"heartbeat": "1ms"}, {}, "heartbeat"),
        ({"anounce": ANNOUNCE}, {}, 'did you mean "announce"'),
        (None, {"steps": [{"run": "x"}]}, '"steps" does not go with type external'),
        (None, {"function": "f"}, '"function" does not go with type external'),
        (None, {"source": {"path": "/srv"}}, '"source" does not go with type external'),
        (None, {"env": {"A": "b"}}, '"env" does not go with type external'),
        (None, {"pool": "linux"}, '"pool" does not go with type external'),
        (None, {"needs": {"a": "b"}}, '"needs" does not go with type external'),
        (None, {"isolation": "sandbox"}, '"isolation" does not go with type external'),
        (None, {"lease": "2h"}, '"lease" does not go with type external'),
        (None, {"grace": "5s"}, '"grace" does not go with type external'),
        (None, {"stalled_after": "5m"}, "write it as heartbeat below external"),
        (None, {"resources": {"cpu": 2}}, "cpu is a machine's"),
        (None, {"inputs": {"a": {"type": "file"}}}, "cannot be a file"),
        (None, {"http": {"submit": ANNOUNCE}}, '"http" goes with type http only'),
    ],
)
def test_what_makes_no_sense_is_refused(external: Any, fields: dict[str, Any], said: str) -> None:
    assert said in problems(external, **fields)


ENDLESS = """
jobs:
  - name: build
    type: external
    external: {heartbeat: 5m}
"""


def test_a_file_says_how_long_or_its_project_does() -> None:
    file = read_file(ENDLESS, name="jobs")
    [warning] = file.warnings

    with pytest.raises(Invalid) as refused:
        with_defaults(file, {"default": {}})
    [problem] = refused.value.problems
    [entry] = with_defaults(file, {"default": {"timeout": "1h"}}).jobs

    assert warning.message == (
        'job build has no "timeout", which type external needs: unless its project gives one, it is'
        " refused"
    )
    assert problem.message == 'job build has no "timeout", which type external needs'
    assert (problem.line, problem.hint[:18]) == (3, "write timeout: 1h,")
    assert entry.spec.timeout == timedelta(hours=1)


def test_only_such_jobs_have_the_field() -> None:
    with pytest.raises(Invalid) as refused:
        read_job({"name": "a", "steps": [{"run": "x"}], "external": {}})

    assert '"external" goes with type external only' in str(refused.value.problems[0])


def test_defaults_of_a_file_give_it_nothing_of_workers() -> None:
    file = {
        "defaults": {
            "pool": "linux",
            "needs": {"site": "fra"},
            "env": {"A": "b"},
            "isolation": "sandbox",
            "timeout": "2h",
            "lease": "2h",
            "stalled_after": "5m",
            "grace": "5s",
        },
        "jobs": [
            {"name": "a", "type": "external", "external": {"heartbeat": "5m"}},
            {"name": "b", "steps": [{"run": "x"}]},
        ],
    }

    one, other = (entry.spec for entry in read_file(json.dumps(file), name="f").jobs)

    assert (one.type, one.pool, one.needs, one.env) == (JobType.EXTERNAL, EXTERNAL_POOL, {}, {})
    assert (one.timeout, one.lease, one.stalled_after) == (timedelta(hours=2), None, None)
    assert shape_of(rules_of(one)) == ""
    assert (other.pool, other.needs) == ("linux", {"site": "fra"})


def test_a_policy_may_keep_a_project_from_such_jobs_but_not_by_its_pools() -> None:
    asked = rules_of(read({"announce": ANNOUNCE}, delivery=Delivery.AT_MOST_ONCE))

    assert excesses(Bounds(Policy(pools=("linux",))), asked) == []
    assert excesses(Bounds(own=()), asked) == []
    [excess] = excesses(Bounds(Policy(executors=(JobType.SHELL,))), asked)
    assert excess.path == ("type",)
