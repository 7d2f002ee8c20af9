"""Templates of carts: find, plan and submit them, for people and for schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from rota.domain.carts.definition import CartItem, CartTemplate, ItemsFile, LiveWorkers
from rota.domain.errors import Invalid, NotFound, did_you_mean
from rota.domain.jobfile import read_cart, read_job
from rota.domain.shape import WORKER
from rota.operations import carts
from rota.operations.carts import CartPlan, CartRequest, stream_items
from rota.operations.definitions import find_job
from rota.operations.engine import Engine
from rota.operations.planned_carts import words_of
from rota.operations.specs import cart_timetable
from rota.operations.tenants import open_sessions
from rota.ports.carts import Cart, DueTemplate, Template, TemplateChanges


@dataclass(frozen=True, slots=True)
class TemplateRequest:
    """A template that is to become a cart."""

    name: str
    project: str = "default"
    inputs: Mapping[str, object] = field(default_factory=dict)  # of every item, before its own
    starts_at: datetime | None = None  # None: at once
    idempotency_key: str = ""  # "": every request is a new one


async def find_template(engine: Engine, name: str, *, project: str = "default") -> Template:
    found = await engine.store.templates(project, [name])
    if not found:
        raise NotFound(
            f"no cart is defined as {name!r} in project {project}",
            code="template_not_found",
            hint=await _nearest(engine, name, project),
        )
    return found[0]


async def _nearest(engine: Engine, name: str, project: str) -> str:
    known = [template.name for template in await engine.store.templates(project)]
    return did_you_mean(name, known) or "rota apply defines the carts of a job file"


def words_if_readable(template: Template) -> str:
    """Describe what a cart of it does and when it starts; "" if this release cannot read it."""
    try:
        readable = read_cart(template.document)
    except Invalid:
        return ""
    return words_of(readable, cart_timetable(template.project, readable, template.anchor))


async def submit_template(engine: Engine, request: TemplateRequest, *, actor: str) -> Cart:
    """Make a cart of the template as it stands."""
    asked, items = await _request(engine, await _readable(engine, request), request)
    return await carts.submit(engine, asked, stream_items(items), actor=actor)


async def plan_template(engine: Engine, request: TemplateRequest) -> CartPlan:
    """Return what `submit_template` would do; write nothing."""
    asked, items = await _request(engine, await _readable(engine, request), request)
    return await carts.plan(engine, asked, stream_items(items))


async def submit_due(
    engine: Engine, template: CartTemplate, due: DueTemplate, *, actor: str
) -> Cart:
    """Submit the cart of a due time. `Conflict` if it has one, or if one of its name is live."""
    request = TemplateRequest(due.name, due.project)
    asked, items = await _request(engine, template, request)
    return await carts.submit(engine, replace(asked, due=due), stream_items(items), actor=actor)


async def delete_template(engine: Engine, template: Template, *, actor: str) -> None:
    """Delete a template; carts that were made of it go on."""
    changes = TemplateChanges(removed=[template])
    await engine.store.save_jobs([], removed=(), actor=actor, templates=changes)


async def items_of(
    engine: Engine, template: CartTemplate, *, project: str = "default"
) -> tuple[CartItem, ...]:
    """Return the items of a template now. `Invalid` if it has none."""
    match template.items:
        case ItemsFile(path):
            raise Invalid(
                f"the server cannot read {path}: the CLI reads the file and sends its items"
            )
        case LiveWorkers(labels):
            return await _items_of_workers(engine, template.job, labels, project)
        case items:
            return items


async def _items_of_workers(
    engine: Engine, job: str, labels: Mapping[str, str], project: str
) -> tuple[CartItem, ...]:
    """Make one item for each live worker of the job's pool, which runs on that worker.

    Its key is the worker's name; an input `worker` gets that, too.
    """
    spec = read_job((await find_job(engine, job, project=project)).document)
    wanted = labels.items()
    crew = [each for each in await open_sessions(engine, [project]) if each.pool == spec.pool]
    workers = sorted({each.worker for each in crew if wanted <= each.all_labels.items()})
    if not workers:
        told = " with " + ", ".join(f"{k}={v}" for k, v in sorted(wanted)) if labels else ""
        raise Invalid(
            f"pool {spec.pool}, which job {job} runs in, has no live worker{told}",
            code="no_workers",
            hint="rota worker list shows workers and their labels",
        )
    is_told = WORKER in spec.inputs
    return tuple(
        CartItem(name, inputs={WORKER: name} if is_told else {}, needs={WORKER: name})
        for name in workers
    )


async def _readable(engine: Engine, request: TemplateRequest) -> CartTemplate:
    stored = await find_template(engine, request.name, project=request.project)
    # Thousands of items take seconds to read, and leases are renewed on this loop.
    return await asyncio.to_thread(read_cart, stored.document)


async def _request(
    engine: Engine, template: CartTemplate, request: TemplateRequest
) -> tuple[CartRequest, Iterable[CartItem]]:
    items = await items_of(engine, template, project=request.project)
    asked = CartRequest(
        template=replace(template, items=()),
        count=len(items),
        project=request.project,
        starts_at=request.starts_at,
        idempotency_key=request.idempotency_key,
    )
    # What is given now goes before what was written then.
    given = (replace(item, inputs={**item.inputs, **request.inputs}) for item in items)
    return asked, given
