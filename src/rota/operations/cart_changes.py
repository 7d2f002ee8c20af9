"""Changes of a cart that was submitted: approve, pause, edit, retry, cancel, roll back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rota.domain.carts.commands import Approver
from rota.domain.carts.definition import (
    Between,
    CartItem,
    CartRules,
    CartTemplate,
    OnBreach,
    Order,
    Share,
    parse_share,
)
from rota.domain.carts.facts import (
    FAILED_ITEM_STATES,
    FINAL_CART_STATES,
    FINAL_ITEM_STATES,
    CartState,
    ItemState,
    PauseReason,
)
from rota.domain.carts.intake import inputs_for
from rota.domain.errors import Conflict, Invalid, NotFound, Problem
from rota.domain.ids import JobId
from rota.domain.jobfile import parse_inputs, read_job
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM
from rota.domain.jobfile.carts import Reference, Referred
from rota.domain.jobfile.sections import Section
from rota.domain.jobfile.text import At, Report
from rota.domain.spec import JobSpec
from rota.domain.states import RunState
from rota.operations import carts
from rota.operations.carts import CartPlan, CartRequest, command, require_known, stream_items, view
from rota.operations.definitions import find_job
from rota.operations.engine import Engine
from rota.operations.files import require_inputs
from rota.ports.carts import (
    CancelCart,
    Cart,
    CartQuery,
    Commanded,
    EditCart,
    EditedItem,
    Item,
    ItemQuery,
    RetryItems,
    Selection,
)
from rota.ports.records import JobQuery, RunQuery

_MOST_CAUSES = 1_000  # that are looked through
_CAUSES_SHOWN = 10


async def cause_meant(engine: Engine, cart: Cart, text: str | None) -> str | None:
    """Find the one cause of this cart's failures that equals or contains the text; None: any."""
    if text is None:
        return None
    groups = await engine.store.failure_groups(cart.id, _MOST_CAUSES)
    causes = [group.cause for group in groups]
    if text in causes:
        return text
    near = [cause for cause in causes if text.casefold() in cause.casefold()]
    match near:
        case [only]:
            return only
        case []:
            raise NotFound(
                f'no item of {cart.id} failed for "{text}"',
                code="no_such_cause",
                hint=f"causes: {_shown(causes) or 'nothing failed'}",
            )
        case _:
            raise Invalid(
                f'"{text}" is in several causes',
                code="ambiguous_cause",
                hint=f"write one of them: {_shown(near)}",
            )


def _shown(causes: list[str]) -> str:
    return "; ".join(causes[:_CAUSES_SHOWN])


_PAGE = 2_000
_ITEMS_NAMED = 5


async def newer_versions(engine: Engine, cart: Cart, selection: Selection) -> dict[JobId, int]:
    """Return the current versions of these items' jobs, where an item has another one.

    Inputs were read by the version of then: `Conflict` if they do not fit the one of now. A job
    that is gone, or cannot be read, stays as it was.
    """
    store = engine.store
    pinned = set(await store.versions_of_items(cart.id, selection))
    ids = sorted({job for job, _ in pinned})
    jobs = await store.jobs(JobQuery(project=cart.project, ids=ids, limit=len(ids))) if ids else []
    current = {job.id: job.version for job in jobs}
    stale = {ref for ref in pinned if ref[0] in current and current[ref[0]] != ref[1]}
    if not stale:
        return {}
    newer = {(job, current[job]) for job, _ in stale}
    specs = await engine.specs.find(store, stale | newer)
    taken = {job: specs[job, version] for job, version in newer if (job, version) in specs}
    changed = {
        job: taken[job]
        for job, version in stale
        if job in taken and not _declare_the_same(specs.get((job, version)), taken[job])
    }
    if changed:
        await _require_fit(engine, cart, selection, changed)
    return {job: current[job] for job in taken}


def _declare_the_same(old: JobSpec | None, new: JobSpec) -> bool:
    return old is not None and old.inputs == new.inputs


async def _require_fit(
    engine: Engine, cart: Cart, selection: Selection, specs: Mapping[JobId, JobSpec]
) -> None:
    query = ItemQuery(
        cart.id,
        states=sorted(selection.states),
        cause=selection.cause,
        keys=None if selection.keys is None else list(selection.keys),
        limit=_PAGE,
    )
    first = selection.from_wave or 0
    while page := await engine.store.items(query):
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


# Which items of those that have ended a word means.
SELECTED: Mapping[str, frozenset[ItemState]] = {
    "failed": FAILED_ITEM_STATES,
    "failed+skipped": FINAL_ITEM_STATES - {ItemState.COMPLETED},  # all that did not complete
    "all": FINAL_ITEM_STATES,
}


@dataclass(frozen=True, slots=True)
class ItemChange:
    """A change of an item whose wave is not open yet."""

    key: str
    order: int | None = None  # None: as it was
    inputs: Mapping[str, Any] | None = None  # None: as they were
    skip: bool = False


@dataclass(frozen=True, slots=True)
class CartChange:
    """Requested changes of a cart; the words of `failures` and `between` are the job file's."""

    max_parallel: int | None = None  # None: as it was
    failures: Mapping[str, object] = field(default_factory=dict)  # what is left out stays
    between: Mapping[str, object] = field(default_factory=dict)
    items: Sequence[ItemChange] = ()


async def edit(engine: Engine, cart: Cart, change: CartChange, *, by: Approver) -> Commanded:
    """Change the cart as the caller saw it: `Conflict` if somebody else changed it meanwhile."""
    rules = _changed_rules(cart.rules, change)
    if change.between.get("check"):
        named = Reference(Referred.JOB, rules.between.check, "between.check")
        await require_known(engine, cart.project, [named])
    items = await _edited_items(engine, cart, change.items)
    return await command(engine, cart, EditCart(rules, items, cart.version, by), actor=by.name)


async def retry(engine: Engine, cart: Cart, selection: Selection, *, actor: str) -> Commanded:
    """Run items that have ended once more, by current job versions where their inputs fit these."""
    await _require_items(engine, cart, selection.keys or ())
    meant = replace(selection, cause=await cause_meant(engine, cart, selection.cause))
    versions = await newer_versions(engine, cart, meant)
    return await command(engine, cart, RetryItems(meant, versions), actor=actor)


async def _require_items(engine: Engine, cart: Cart, keys: Collection[str]) -> None:
    query = ItemQuery(cart.id, keys=list(keys), limit=max(1, len(keys)))
    found = {item.key for item in await engine.store.items(query)} if keys else set()
    for key in keys:
        if key not in found:
            raise _no_item(key)


def allowance(written: object) -> Share:
    """Parse how many may fail, as written: 5 or `3%`; `Invalid` says what is wrong with it."""
    report = Report()
    checked = _checked(FAILURES, {"allow": written}, At.root(report))
    report.raise_errors("the allowance")
    return parse_share(str(checked["allow"]))


def _changed_rules(rules: CartRules, change: CartChange) -> CartRules:
    report = Report()
    root = At.root(report)
    failures = _checked(FAILURES, change.failures, root.child("failures"))
    between = _checked(BETWEEN, change.between, root.child("between"))
    if change.max_parallel is not None:
        CART.by_name["max_parallel"].kind.check(change.max_parallel, root.child("max_parallel"))
    for place, item in enumerate(change.items):
        if item.order is not None:
            at = root.child("items").child(place).child("order")
            ITEM.by_name["order"].kind.check(item.order, at)
    report.raise_errors("the change")
    document = rules.to_document()
    document["failures"] |= failures
    document["failures"]["allow"] = str(document["failures"]["allow"])
    document["between"] |= between
    changed = CartRules.from_document(document)
    return replace(changed, max_parallel=change.max_parallel or rules.max_parallel)


def _checked(section: Section, given: Mapping[str, object], at: At) -> dict[str, Any]:
    checked = section.check(given, at)
    return checked if isinstance(checked, dict) else {}


async def _edited_items(
    engine: Engine, cart: Cart, changes: Sequence[ItemChange]
) -> list[EditedItem]:
    found = await _named(engine, cart, changes)
    specs = await engine.specs.find(
        engine.store, {(item.job_id, item.job_version) for item in found.values()}
    )
    edited: list[EditedItem] = []
    problems: list[Problem] = []
    for place, change in enumerate(changes):
        item = found[change.key]
        inputs: Mapping[str, Any] | None = None
        try:
            if change.inputs is not None:
                inputs = _fitted(specs.get((item.job_id, item.job_version)), change.inputs)
        except Invalid as error:
            where = f"items[{place}] ({change.key})"
            wrong = [problem.message for problem in error.problems] or [error.message]
            problems += [Problem(message, where) for message in wrong]
        edited.append(EditedItem(change.key, change.order, inputs, change.skip))
    if problems:
        raise Invalid("inputs of items do not fit their jobs", problems)
    await require_inputs(engine, cart.project, [each.inputs for each in edited if each.inputs])
    return edited


def _fitted(spec: JobSpec | None, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    if spec is None:
        raise Invalid("the definition of its job cannot be read by this version of Rota")
    return parse_inputs(spec, inputs)


async def _named(engine: Engine, cart: Cart, changes: Sequence[ItemChange]) -> Mapping[str, Item]:
    """Find the items by their keys; each must exist, be named once, and may still be changed."""
    keys = [change.key for change in changes]
    for key, count in Counter(keys).items():
        if count > 1:
            raise Invalid(f'the item "{key}" is there {count} times', code="duplicate_key")
    query = ItemQuery(cart.id, keys=keys, limit=max(1, len(keys)))
    found = {item.key: item for item in await engine.store.items(query)} if keys else {}
    for key in keys:
        if key not in found:
            raise _no_item(key)
        item = found[key]
        if item.wave > cart.wave and item.state in FINAL_ITEM_STATES:
            raise Conflict(
                f'the item "{key}" is {item.state} already',
                code="item_ended",
                hint="retry it first: then it can be changed until its wave opens",
            )
    return found


def _no_item(key: str) -> NotFound:
    return NotFound(f'the cart has no item "{key}"', code="item_not_found")


_SUFFIX = "-rollback"
_MAX_NAME = 128
_ROLLBACK_PAGE = 10_000
_LOOKED_AT = 100  # carts of the name, newest first
_GOING_ON = (RunState.CLAIMED, RunState.PROCESSING, RunState.UNKNOWN)
_STOPPED = (CartState.CANCELLED, CartState.FAILED)


async def rollback(engine: Engine, cart: Cart, *, actor: str) -> Cart:
    """Run the cart's rollback job for every item that was started, the last wave first.

    Each item has the key and those inputs of before that the rollback job declares. As many are in
    flight and may fail as before; the new cart has no gates, takes no heed of calendars, and is
    paused when too many fail. A cart that is paused is cancelled by this: resumed, it would do
    again what is being undone. What was undone is not undone again, unless it was done again.
    """
    cart = await carts.find_cart(engine, cart.id, project=cart.project)
    request, items = await _request(engine, cart)
    if cart.state is CartState.PAUSED:
        await carts.plan(engine, request, stream_items(items))  # what is refused stays paused
        cancel = CancelCart(expected_version=cart.version)
        cart = (await carts.command(engine, cart, cancel, actor=actor)).cart
    request = replace(request, undoes=_undone_state(cart))
    return await carts.submit(engine, request, stream_items(items), actor=actor)


async def plan_rollback(engine: Engine, cart: Cart) -> CartPlan:
    """Return what `rollback` would do; write nothing."""
    request, items = await _request(engine, cart)
    return await carts.plan(engine, request, stream_items(items))


async def _request(engine: Engine, cart: Cart) -> tuple[CartRequest, Sequence[CartItem]]:
    job = str(cart.document.get("rollback", ""))
    await _require_undoable(engine, cart, job)
    name = cart.name[: _MAX_NAME - len(_SUFFIX)] + _SUFFIX
    await _refuse_second(engine, cart, name)
    spec = read_job((await find_job(engine, job, project=cart.project)).document)
    touched = [item async for item in _started_items(engine, cart)]
    if not touched:
        raise Conflict(
            f"nothing of the cart {cart.id} was started: there is nothing to undo",
            code="nothing_to_roll_back",
        )
    items = _reversed(touched, spec)
    template = CartTemplate(
        name=name,
        rules=_rules(cart.rules),
        items=(),
        job=job,
        description=f"rollback of {cart.id}",
        labels=cart.document.get("labels", {}),
        priority=cart.document.get("priority"),
    )
    return CartRequest(template, len(items), cart.project), items


async def _require_undoable(engine: Engine, cart: Cart, job: str) -> None:
    if not job:
        raise Conflict(
            f"the cart {cart.id} has no rollback job",
            code="no_rollback",
            hint="write rollback: JOB into its template before it is submitted",
        )
    if not await _is_stopped(engine, cart):
        is_over = cart.state in FINAL_CART_STATES
        raise Conflict(
            f"the cart {cart.id} is {cart.state}: only what was cancelled, or stopped by its "
            "failures, is rolled back",
            code="cart_not_stopped",
            hint=f"submit a cart of the job {job}" if is_over else f"rota cart cancel {cart.id}",
        )
    await _require_at_rest(engine, cart)


async def _require_at_rest(engine: Engine, cart: Cart) -> None:
    """Raise unless nothing of the cart still runs; waiting items are cancelled by the rollback."""
    query = RunQuery(cart.project, cart=cart.id, states=_GOING_ON, limit=_ROLLBACK_PAGE)
    if cart.open and (going_on := len(await engine.store.runs(query))):
        runs = "1 run" if going_on == 1 else f"{going_on:,} runs"
        raise Conflict(
            f"{runs} of the cart {cart.id} did not end yet",
            code="cart_is_running",
            hint=f"wait for that, or: rota cart cancel {cart.id}",
        )


async def _is_stopped(engine: Engine, cart: Cart) -> bool:
    """Return whether the cart was cancelled, or more of it failed than may."""
    if cart.state is CartState.PARTIAL:
        return (await view(engine, cart)).is_breached
    is_breached = cart.state is CartState.PAUSED and cart.reason == PauseReason.FAILURES
    return is_breached or cart.state in _STOPPED or cart.ending in _STOPPED


async def _refuse_second(engine: Engine, cart: Cart, name: str) -> None:
    """Raise `Conflict` if nothing of the cart was started since it was rolled back."""
    query = CartQuery(cart.project, name=name, limit=_LOOKED_AT)
    for made in await engine.store.carts(query):
        if made.document.get("undoes") == _undone_state(cart):
            raise Conflict(
                f"the cart {cart.id} is rolled back by {made.id}, which is {made.state}; nothing "
                "of it was started since",
                code="already_rolled_back",
                hint=_next_command(made),
                facts={"cart": made.id},
            )


def _undone_state(cart: Cart) -> str:
    """Return the state that a rollback undoes: the version grows with all that reruns items."""
    return f"{cart.id}@{cart.version}"


def _next_command(undoing: Cart) -> str:
    """Return a hint on what to do rather than roll back twice."""
    if undoing.state not in FINAL_CART_STATES:
        return f"rota cart watch {undoing.id}"
    if undoing.state is CartState.COMPLETED:
        return f"to do that once more: rota cart retry {undoing.id} --from-wave 1"
    return f"what did not complete: rota cart retry {undoing.id} --skipped"


def _rules(rules: CartRules) -> CartRules:
    return replace(
        rules,
        order=Order.EXPLICIT,
        group_sizes=(),
        failures=replace(rules.failures, then=OnBreach.PAUSE),
        between=Between(),
        calendars=(),
    )


async def _started_items(engine: Engine, cart: Cart) -> AsyncIterator[Item]:
    """Yield the items that were started, whatever became of them since."""
    query = ItemQuery(cart.id, only_attempted=True, limit=_ROLLBACK_PAGE)
    while page := await engine.store.items(query):
        for item in page:
            yield item
        query = replace(query, after=page[-1].number)


def _reversed(touched: Sequence[Item], undo: JobSpec) -> list[CartItem]:
    last = max(item.wave for item in touched)
    return [
        CartItem(
            item.key, last - item.wave + 1, inputs_for(undo, item.inputs or {}), needs=item.needs
        )
        for item in touched
    ]
