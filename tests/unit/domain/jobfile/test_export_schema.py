from __future__ import annotations

import pytest
from jsonschema_rs import Draft202012Validator, meta

from rota.domain.jobfile import json_schema
from rota.domain.jobfile.fields import JOB
from tests.unit.domain.jobfile.jobfiles import job

VALIDATOR = Draft202012Validator(json_schema())


def is_valid(*jobs: dict[str, object]) -> bool:
    return VALIDATOR.is_valid({"jobs": list(jobs)})


def test_schema_is_itself_valid() -> None:
    assert meta.is_valid(json_schema())


def test_every_available_field_has_its_sentence_in_the_schema() -> None:
    definitions = json_schema()["$defs"]
    assert isinstance(definitions, dict)

    described = {
        name: field["description"] for name, field in definitions["job"]["properties"].items()
    }

    assert described == {row.name: row.doc for row in JOB.available}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"schedule": "@daily", "retry": 3, "env": {"A": 1, "MY_ROTA_X": "y"}},
        {"schedule": ["@daily", "30s"], "retry": {"jitter": "20%"}},
        {"steps": [{"run": ["a", "b"], "if": "always"}], "log_limit": "1.5GiB"},
        {"inputs": {"n": {"type": "integer", "default": 3}}, "labels": {"tier/x": "gold"}},
        {"schedule": "@daily", "calendars": ["weekends"]},
        {"resources": {"cpu": 0.5, "memory": "4GiB", "catalog": "read"}},
        {"rate_limits": ["s3-put", {"name": "api", "tokens": 2}], "after": ["first"]},
        {"after": {"jobs": ["first"], "within": "2h"}},
        {"isolation": "sandbox", "network": True, "limits": {"cpu": 0.5, "memory": "1GiB"}},
        {"type": "container", "image": "app:1", "mounts": [{"source": "/a", "target": "/b"}]},
    ],
    ids=str,
)
def test_valid_job_passes(fields: dict[str, object]) -> None:
    assert is_valid(job(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "a/b"},
        {"shedule": "@daily"},
        {"image": "A B"},
        {"isolation": "vm"},
        {"network": "public"},
        {"limits": {"memory": 5}},
        {"limits": [{"name": "s3-put"}]},
        {"mounts": [{"source": "/a"}]},
        {"http": {}},
        {"priority": 10},
        {"retry": 0},
        {"retry": {"atempts": 1}},
        {"env": {"1A": "x"}},
        {"env": {"ROTA_FENCE": "9"}},
        {"steps": []},
        {"steps": [{"name": "x"}]},
        {"timeout": 30},
        {"log_limit": "100"},
        {"calendars": "weekends"},
        {"resources": {"cpu": "two"}},
        {"rate_limits": [{"tokens": 1}]},
        {"after": {"within": "2h"}},
    ],
    ids=str,
)
def test_invalid_job_does_not(fields: dict[str, object]) -> None:
    assert not is_valid(job(**fields))
