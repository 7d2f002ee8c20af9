from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.job import RunRules, rules_of
from rota.domain.keys import (
    Asker,
    Counted,
    Declaration,
    DeclarationId,
    Each,
    KeyKind,
    Limit,
    Quota,
    Rate,
    Resource,
    declaration_of,
    demands_of,
    exclusive_key,
    rule_of,
)
from rota.domain.spec import Input, JobSpec

SECOND = timedelta(seconds=1)
PUTS = Limit("shop", "s3-put", tokens=10, per=SECOND, burst=20)


def asker(user: str = "ann", inputs: dict[str, object] | None = None, **rules: object) -> Asker:
    return Asker(RunRules("deploy", "shop", **rules), user, inputs or {})  # type: ignore[arg-type]


def each(whom: Each) -> Limit:
    return Limit("shop", "api", tokens=1, per=SECOND, burst=1, each=whom)


def test_a_run_takes_what_its_job_names() -> None:
    run = asker(uses={"license": 2}, rate_limits={"s3-put": 3}, exclusive_by=("host",))

    assert demands_of(run, [PUTS]) == {
        'exclusive:shop/{"host":null}': 1,
        "rate:shop/s3-put": 3,
        "resource:shop/license": 2,
    }


@pytest.mark.parametrize(
    ("whom", "key"),
    [
        (Each.JOB, "rate:shop/api/job=deploy"),
        (Each.USER, "rate:shop/api/user=ann"),
        (Each.PROJECT, "rate:shop/api"),
    ],
)
def test_a_limit_for_each_concerns_every_run(whom: Each, key: str) -> None:
    assert demands_of(asker(), [each(whom)]) == {key: 1}
    assert demands_of(asker(rate_limits={"api": 5}), [each(whom)]) == {key: 5}


def test_a_quota_concerns_every_run_as_far_as_it_says_something() -> None:
    keys = demands_of(asker(), [Quota("shop", running=3, queued=5)])

    assert keys == {"quota:shop/running": 1}


def test_exclusive_keys_are_equal_where_values_are_and_stay_short() -> None:
    one = asker(inputs={"host": "a", "zone": 1, "version": 1}, exclusive_by=("host", "zone"))
    same = asker(inputs={"zone": 1.0, "host": "a"}, exclusive_by=("zone", "host"))
    other = asker(inputs={"zone": "1", "host": "a"}, exclusive_by=("zone", "host"))
    long = asker(inputs={"host": "x" * 10_000}, exclusive_by=("host",))

    assert exclusive_key(one) == exclusive_key(same) == 'exclusive:shop/{"host":"a","zone":1}'
    assert exclusive_key(one) != exclusive_key(other)
    assert exclusive_key(long).startswith("exclusive:shop/host#")
    assert len(exclusive_key(long)) < 200
    assert len(exclusive_key(asker(exclusive_by=tuple(f"{n:0128}" for n in range(20))))) < 300


def test_an_input_that_is_not_given_has_its_default() -> None:
    spec = JobSpec("deploy", "shop", inputs={"host": Input(default="a")}, exclusive_by=("host",))

    key = exclusive_key(Asker(rules_of(spec), "ann", {}))

    assert key == 'exclusive:shop/{"host":"a"}'


def test_a_key_finds_its_rule() -> None:
    declared: dict[DeclarationId, Declaration] = {
        (KeyKind.RATE, "shop", "s3-put"): PUTS,
        (KeyKind.RESOURCE, "shop", "license"): Resource("shop", "license", total=4),
        (KeyKind.QUOTA, "shop", ""): Quota("shop", running=3),
    }

    assert rule_of("rate:shop/s3-put", declared) == Rate(10, 1.0, 20)
    assert rule_of("rate:shop/s3-put/user=a/b", declared) == Rate(10, 1.0, 20)
    assert rule_of("resource:shop/license", declared) == Counted(4)
    assert rule_of("quota:shop/running", declared) == Counted(3)
    assert rule_of('exclusive:shop/{"host":"a/b:c"}', declared) == Counted(1)
    assert rule_of("quota:shop/runs-per-minute", declared) is None
    assert rule_of("rate:shop/gone", declared) is None
    assert declaration_of("quota:shop/running") == (KeyKind.QUOTA, "shop", "")
