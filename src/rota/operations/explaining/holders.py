"""The runs that have what another one waits for, and when they are likely to end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.domain.durations import parse_duration
from rota.domain.forecast.durations import REMEMBERED_RUNS, Durations, Source, durations_of
from rota.domain.ids import RunId
from rota.domain.run import Run
from rota.operations.backends import Backends
from rota.operations.explaining.explanation import Holder
from rota.ports.records import RunQuery


async def holders_by_id(
    backends: Backends, project: str, runs: Collection[RunId]
) -> dict[RunId, Holder]:
    """These runs of a project."""
    if not runs:
        return {}
    found = await backends.store.runs(RunQuery(project=project, ids=sorted(runs)))
    return {holder.run: holder for holder in await holders_of(backends, found)}


async def holders_of(backends: Backends, runs: Sequence[Run]) -> list[Holder]:
    """The same of runs that are at hand."""
    if not runs:
        return []
    store = backends.store
    now = await store.now()
    seconds = await store.latest_durations({run.job_id for run in runs}, REMEMBERED_RUNS)
    documents = await store.documents([(run.job_id, run.job_version) for run in runs])
    holders = []
    for run in runs:
        expect = _expect(documents.get((run.job_id, run.job_version), {}))
        durations = durations_of(seconds.get(run.job_id, ()), expect)
        holders.append(Holder(run.id, run.job, _end(run, durations, now)))
    return holders


def _expect(document: Mapping[str, Any]) -> timedelta | None:
    try:
        return parse_duration(document["expect"])
    except (KeyError, ValueError):  # it says nothing, or nothing that this release can read
        return None


def _end(run: Run, durations: Durations, now: datetime) -> datetime | None:
    if run.started_at is None or durations.source is Source.GUESS:
        return None
    elapsed = max((now - run.started_at).total_seconds(), 0.0)
    return now + timedelta(seconds=durations.left_after(elapsed))
