"""Limits and resources of a file."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from rota.domain.jobfile.declarations import (
    Shared,
    build_limit,
    build_resource,
    declaration_document,
    declaration_in_words,
)
from rota.domain.keys import READERS, Each, Limit, Resource, Sharing
from tests.unit.domain.jobfile.jobfiles import by_message, errors_in, file_of, job, read

S3 = {"name": "s3-put", "tokens": 10, "per": "1s"}


def declared(**fields: object) -> tuple[Shared, ...]:
    return read(json.dumps(fields)).declarations


def test_limits_and_resources_belong_to_the_files_project() -> None:
    found = declared(project="data", limits=[S3], resources=[{"name": "pg-license", "total": 4}])

    assert found == (
        Limit("data", "s3-put", 10, timedelta(seconds=1), burst=10),
        Resource("data", "pg-license", 4),
    )


def test_a_file_may_have_nothing_else() -> None:
    assert read(json.dumps({"resources": [{"name": "lock", "kind": "mutex"}]})).jobs == ()


@pytest.mark.parametrize(
    ("document", "meant", "words"),
    [
        (
            S3 | {"burst": 20},
            Limit("p", "s3-put", 10, timedelta(seconds=1), 20),
            "per 1s, burst 20",
        ),
        (
            {"name": "each", "tokens": 1, "per": "1m", "burst": 1, "each": "user"},
            Limit("p", "each", 1, timedelta(minutes=1), 1, Each.USER),
            "1 token per 1m for each user, burst 1",
        ),
        ({"name": "licence", "total": 4}, Resource("p", "licence", 4), "4 in all"),
        (
            {"name": "lock", "kind": "mutex"},
            Resource("p", "lock", sharing=Sharing.MUTEX),
            "one run at a time",
        ),
        (
            {"name": "catalog", "kind": "read_write"},
            Resource("p", "catalog", sharing=Sharing.READ_WRITE),
            "many read, or one writes",
        ),
    ],
    ids=str,
)
def test_declarations_read_back_as_they_are_written(
    document: dict[str, Any], meant: Shared, words: str
) -> None:
    build = build_limit if isinstance(meant, Limit) else build_resource

    assert build(document, "p") == meant
    assert declaration_document(meant) == document
    assert words in declaration_in_words(meant)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"limits": [{"name": "a", "tokens": 1}]}, 'limit a has no "per"'),
        ({"limits": [S3 | {"tokens": 0}]}, "tokens must be a whole number from 1 to 1,000,000"),
        ({"limits": [S3 | {"per": "0s"}]}, "per must be from 1ms"),
        ({"limits": [S3 | {"each": "jobs"}]}, 'each must be job, user or project, not "jobs"'),
        ({"limits": [S3 | {"bursts": 1}]}, 'unknown key "bursts" in limit s3-put'),
        ({"limits": [S3, S3]}, "limit s3-put is already in line"),
        ({"resources": [{"name": "a"}]}, 'resource a has no "total" — or write its kind'),
        ({"resources": [{"name": "a", "total": READERS}]}, "a whole number from 1 to 999,999"),
        ({"resources": [{"name": "a", "kind": "mutx"}]}, 'did you mean "mutex"?'),
        (
            {"resources": [{"name": "a", "kind": "mutex", "total": 1}]},
            '"total" does not go with kind mutex',
        ),
        ({"resources": [{"name": "cpu", "total": 4}]}, "cpu is what workers offer"),
        ({"resources": [{"name": "slots", "total": 4}]}, "slots is what workers offer"),
    ],
    ids=by_message,
)
def test_wrong_declaration_is_refused_with_what_would_be_right(
    fields: dict[str, object], message: str
) -> None:
    (error,) = errors_in(file_of(job(), **fields))

    assert message in error
