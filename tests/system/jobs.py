"""Builders for the job files of system tests."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from rota.sdk.answers import Run, RunDetail
from rota.sdk.client import Client
from testkit.waiting import PATIENCE

Document = dict[str, Any]


def job(name: str, *steps: str | Document, **fields: Any) -> Document:
    """A job; a step that is only text is what it runs."""
    return {
        "name": name,
        "steps": [{"run": step} if isinstance(step, str) else step for step in steps],
        **fields,
    }


def apply(client: Client, *jobs: Document) -> None:
    client.apply(file_of(*jobs))


def file_of(*jobs: Document) -> str:
    return json.dumps({"jobs": jobs})


def execute(client: Client, *steps: str | Document, **fields: Any) -> RunDetail:
    """Apply a job of these steps, trigger it, and wait for its end."""
    name = fields.pop("name", "tried")
    inputs = fields.pop("given", None)
    apply(client, job(name, *steps, **fields))
    return settle(client, client.trigger(name, inputs))


def settle(client: Client, run: Run) -> RunDetail:
    return client.wait(run.id, PATIENCE.total_seconds())


def runs_of(client: Client, job: str | None = None, state: str | None = None) -> list[Run]:
    """All of them, however many."""
    return list(client.each(Client.list_runs(job=job, state=state, limit=1000)))


def all_completed(client: Client, count: int) -> list[Run]:
    """All runs; fails until there are so many and each has ended well."""
    runs = runs_of(client)
    assert Counter(run.state for run in runs) == {"COMPLETED": count}
    return runs


def log_of(client: Client, run: str, attempt: int | None = None) -> str:
    """What an attempt printed, standard output and error as they came."""
    return client.raw_log(run, attempt=attempt).decode()
