"""Which versions of their jobs items may take when they run once more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from rota.domain.errors import Conflict, Invalid
from rota.domain.ids import JobId
from rota.domain.jobfile import parse_inputs
from rota.domain.spec import JobSpec
from rota.operations.backends import Backends
from rota.ports.carts import Cart, Item, ItemQuery, Selection
from rota.ports.records import JobQuery

_PAGE = 2_000
_ITEMS_NAMED = 5


async def newer_versions(backends: Backends, cart: Cart, selection: Selection) -> dict[JobId, int]:
    """Current versions of jobs of these items, where an item has another one.

    Inputs were read by the version of then: `Conflict` if they do not fit the one of now. A job
    that is gone, or cannot be read, stays as it was.
    """
    store = backends.store
    pinned = set(await store.versions_of_items(cart.id, selection))
    ids = sorted({job for job, _ in pinned})
    jobs = await store.jobs(JobQuery(project=cart.project, ids=ids, limit=len(ids))) if ids else []
    current = {job.id: job.version for job in jobs}
    stale = {ref for ref in pinned if ref[0] in current and current[ref[0]] != ref[1]}
    if not stale:
        return {}
    newer = {(job, current[job]) for job, _ in stale}
    specs = await backends.specs.find(store, stale | newer)
    taken = {job: specs[job, version] for job, version in newer if (job, version) in specs}
    changed = {
        job: taken[job]
        for job, version in stale
        if job in taken and not _declare_the_same(specs.get((job, version)), taken[job])
    }
    if changed:
        await _require_fit(backends, cart, selection, changed)
    return {job: current[job] for job in taken}


def _declare_the_same(old: JobSpec | None, new: JobSpec) -> bool:
    return old is not None and old.inputs == new.inputs


async def _require_fit(
    backends: Backends, cart: Cart, selection: Selection, specs: Mapping[JobId, JobSpec]
) -> None:
    query = ItemQuery(
        cart.id,
        states=sorted(selection.states),
        cause=selection.cause,
        keys=None if selection.keys is None else list(selection.keys),
        limit=_PAGE,
    )
    first = selection.from_wave or 0
    while page := await backends.store.items(query):
        meant = [item for item in page if item.wave >= first and item.job_id in specs]
        # Thousands of inputs take a while to check, and leases are renewed on this loop.
        await asyncio.to_thread(_refuse_misfits, meant, specs)
        query = replace(query, after=page[-1].number)


def _refuse_misfits(items: Sequence[Item], specs: Mapping[JobId, JobSpec]) -> None:
    misfits = list(_misfits(items, specs))
    if not misfits:
        return
    item, why = misfits[0]
    keys = [each.key for each, _ in misfits if each.job_id == item.job_id][:_ITEMS_NAMED]
    raise Conflict(
        f"the inputs of the job {item.job} were changed, and those of items do not fit any more: "
        f"{', '.join(keys)} ({why})",
        code="inputs_changed",
        hint="apply a version of the job that takes them, or submit these items as a new cart",
        facts={"job": item.job, "items": keys},
    )


def _misfits(items: Collection[Item], specs: Mapping[JobId, JobSpec]) -> Iterator[tuple[Item, str]]:
    for item in items:
        try:
            parse_inputs(specs[item.job_id], item.inputs or {})
        except Invalid as error:
            yield item, "; ".join(p.message for p in error.problems) or error.message
