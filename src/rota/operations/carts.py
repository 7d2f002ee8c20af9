"""Carts as people and programs use them: submit, plan, list, and show the progress of each."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rota.domain.access import ProjectSet, Role
from rota.domain.calendars import end_of_blackout
from rota.domain.carts import commands
from rota.domain.carts.commands import in_words
from rota.domain.carts.definition import CartItem, CartRules, CartTemplate, OnBreach, Share
from rota.domain.carts.facts import (
    FAILED_ITEM_STATES,
    FINAL_CART_STATES,
    FINAL_ITEM_STATES,
    CartFacts,
    CartState,
    ItemState,
    PauseReason,
    WaitReason,
    eta,
    failures_of,
    is_breached,
    limit,
)
from rota.domain.carts.intake import ItemJob, ItemReader, NewItem, waves_in_words
from rota.domain.errors import Conflict, Invalid, NotFound, Problem, did_you_mean, quoted
from rota.domain.ids import CartId, RunId, is_cart_beginning, new_cart_id
from rota.domain.job import Job
from rota.domain.jobfile import read_job
from rota.domain.jobfile.carts import Reference, Referred, unknown_references
from rota.domain.states import RunState
from rota.operations.calendars import blackouts_of
from rota.operations.cart_forecasts import NEXT_ITEMS, forecast, jobs_of
from rota.operations.definitions import find_job, require_runnable
from rota.operations.engine import Engine
from rota.operations.files import require_inputs
from rota.operations.projects import refuse_priority
from rota.ports.carts import (
    ApproveCart,
    CancelCart,
    Cart,
    CartQuery,
    Command,
    Commanded,
    DueTemplate,
    FailureGroup,
    ItemQuery,
    NewCart,
    Overview,
    PauseCart,
    ResumeCart,
    Steering,
)
from rota.ports.records import Idempotency, JobQuery

_CHECK = "between.check"


def references_of(rules: CartRules, rollback: str = "") -> Iterator[Reference]:
    """Yield the names that a cart refers to: its check job, its rollback job, its calendars."""
    if rules.between.check:
        yield Reference(Referred.JOB, rules.between.check, _CHECK)
    if rollback:
        yield Reference(Referred.JOB, rollback, "rollback")
    for name in rules.calendars:
        yield Reference(Referred.CALENDAR, name, "calendars")


async def require_known(engine: Engine, project: str, references: Sequence[Reference]) -> None:
    """Raise `Invalid` with each name that the project does not have, or that cannot be used so."""
    jobs = [each.name for each in references if each.kind is Referred.JOB]
    calendars = [each.name for each in references if each.kind is Referred.CALENDAR]
    store = engine.store
    found = await store.jobs(JobQuery(project=project, names=jobs)) if jobs else []
    stored = await store.calendars(project, calendars) if calendars else []
    known = {
        Referred.JOB: {job.name for job in found},
        Referred.CALENDAR: {each.calendar.name for each in stored},
    }
    if problems := unknown_references(references, known):
        raise Invalid("the cart names what is not there", problems)
    checks = {each.name for each in references if each.path == _CHECK}
    if problems := [it for job in found if job.name in checks for it in _required_inputs(job)]:
        raise Invalid("the check between waves cannot be run", problems)


def _required_inputs(check: Job) -> Iterator[Problem]:
    """Report inputs that a check job requires: a check is about no single item and gets none."""
    for name, declared in read_job(check.document).inputs.items():
        if declared.default is None:
            message = f"job {check.name} needs the input {quoted(name)}, and a check is given none"
            yield Problem(message, _CHECK, hint="give that input a default")


_CHUNK = 2_000  # items in one transaction
_LATE = timedelta(minutes=1)  # that a request may be on its way
_AMBIGUOUS_SHOWN = 5
_COMPARED = 200  # of the newest carts, to find the one that was meant
WAVES_LOOKED_AT = 1_000  # to tell how long a cart will take


@dataclass(frozen=True, slots=True)
class CartRequest:
    """Request to submit a cart; its items come one after another."""

    template: CartTemplate  # without its items
    count: int  # how many there will be
    project: str = "default"
    starts_at: datetime | None = None  # None: at once
    idempotency_key: str = ""  # "": every request is a new one
    due: DueTemplate | None = None  # the due time of its template that it answers; None: none
    undoes: str = ""  # which cart it rolls back, and as of which version; "": none


@dataclass(frozen=True, slots=True)
class CartPlan:
    """Preview of a cart."""

    name: str
    items: int
    waves: str  # their sizes, in words
    wave_count: int
    limit: int  # so many may fail; of the first wave if the scope is a wave
    rules: CartRules
    eta: timedelta | None  # None: nothing is known of its jobs' durations
    unrunnable: Sequence[str]  # jobs that no live worker can run, and why
    starts_at: datetime | None  # None: at once


async def stream_items(items: Iterable[CartItem]) -> AsyncGenerator[CartItem, None]:
    """Yield items that are known already, in the form of those that are streamed."""
    for item in items:
        yield item


async def submit(
    engine: Engine, request: CartRequest, items: AsyncIterator[CartItem], *, actor: str
) -> Cart:
    """Check and store all items, then submit the cart.

    Nothing is left of one that is refused, and nothing starts before all of it is stored.
    """
    await _require_coming(engine, request.starts_at)
    await _require_known(engine, request)
    cart = new_cart_id()
    reader = await _reader(engine, request)
    try:
        async for chunk in _chunks(items):
            first = reader.seen
            new = await _read(engine, reader, chunk, request.project)
            if not first:
                await engine.store.create_cart(_new_cart(cart, request, reader.rules(), actor))
            if not reader.bad:
                await engine.store.add_items(cart, first, new)
        reader.finish()
        new_cart = _new_cart(cart, request, reader.rules(), actor)
        idempotency = _idempotency(request.idempotency_key, new_cart, reader.digest())
        submitted = await engine.store.submit_cart(cart, idempotency, request.due)
    except BaseException:  # a caller that is cancelled leaves no half of a cart either
        await engine.store.discard_cart(cart)
        raise
    return await find_cart(engine, submitted, project=request.project)


async def plan(engine: Engine, request: CartRequest, items: AsyncIterator[CartItem]) -> CartPlan:
    """Return what `submit` would do, without doing it; refuse what it would refuse."""
    await _require_coming(engine, request.starts_at)
    await _require_known(engine, request)
    reader = await _reader(engine, request)
    async for chunk in _chunks(items):
        await _read(engine, reader, chunk, request.project)
    reader.finish()
    rules = reader.rules()
    waves = [reader.waves[number] for number in sorted(reader.waves)]
    facts = CartFacts(rules, CartState.PLANNED, reader.seen, items_in_wave=waves[0])
    coming = await forecast(engine, facts, list(reader.jobs.values()), reader.demands)
    return CartPlan(
        name=request.template.name,
        items=reader.seen,
        waves=waves_in_words(waves),
        wave_count=len(waves),
        limit=limit(facts),
        rules=rules,
        eta=eta(coming.pace, waves),
        unrunnable=coming.unrunnable,
        starts_at=request.starts_at,
    )


async def _require_coming(engine: Engine, starts_at: datetime | None) -> None:
    """Refuse a start time that has passed: everything would start now, which is a mistake."""
    if starts_at is None or starts_at >= await engine.store.now() - _LATE:
        return
    problem = Problem(
        f"{starts_at.isoformat()} has passed", "starts_at", hint="leave it out to start at once"
    )
    raise Invalid("the cart was to start in the past", [problem], code="starts_in_the_past")


async def _require_known(engine: Engine, request: CartRequest) -> None:
    template = request.template
    await refuse_priority(engine, request.project, template.priority)
    named = references_of(template.rules, template.rollback)
    await require_known(engine, request.project, list(named))


async def _reader(engine: Engine, request: CartRequest) -> ItemReader:
    template, undo = request.template, None
    if template.rollback:
        job = await find_job(engine, template.rollback, project=request.project)
        undo = read_job(job.document)
    return ItemReader(template, request.count, undo)


async def _chunks(items: AsyncIterator[CartItem]) -> AsyncIterator[list[CartItem]]:
    chunk: list[CartItem] = []
    async for item in items:
        chunk.append(item)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def _read(
    engine: Engine, reader: ItemReader, chunk: list[CartItem], project: str
) -> list[NewItem]:
    names = reader.unknown_jobs(chunk)
    if names:
        query = JobQuery(project=project, names=sorted(names), limit=len(names))
        for job in await engine.store.jobs(query):
            await require_runnable(engine, job)
            reader.jobs[job.name] = ItemJob.of(job)
    # Thousands of inputs take a while to check, and leases are renewed on this loop.
    new = await asyncio.to_thread(reader.read_all, chunk)
    await require_inputs(engine, project, [item.inputs for item in new if item.inputs])
    return new


def _new_cart(cart: CartId, request: CartRequest, rules: CartRules, actor: str) -> NewCart:
    template = request.template
    return NewCart(
        id=cart,
        project=request.project,
        name=template.name,
        rules=rules,
        items=request.count,
        created_by=actor,
        document={
            "job": template.job,
            "title": template.title,
            "description": template.description,
            "labels": dict(template.labels),
            "rollback": template.rollback,
            "priority": template.priority,
            **({"undoes": request.undoes} if request.undoes else {}),
        },
        starts_at=request.starts_at,
    )


def _idempotency(key: str, cart: NewCart, items: str) -> Idempotency | None:
    """Return the key with a digest of the whole request; `items` is the digest of the items."""
    if not key:
        return None
    body = [cart.name, cart.rules.to_document(), cart.document, str(cart.starts_at), items]
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return Idempotency(f"{cart.project}/{cart.created_by}/{key}", digest)


async def find_cart(engine: Engine, cart: str, *, project: ProjectSet = "default") -> Cart:
    """Find a cart by its id, a prefix of the id, or its name (the newest of that name).

    In several projects at once, a part of the id is not enough.
    """
    store = engine.store
    found = await store.carts(CartQuery(project=project, ids=[cart]))
    if not found and is_cart_beginning(cart) and isinstance(project, str):
        found = await store.carts(CartQuery(project, id_prefix=cart, limit=_AMBIGUOUS_SHOWN))
    if not found:
        found = await store.carts(CartQuery(project, name=cart, limit=1))
    if not found:
        hint = await _instead_of(engine, cart, project) if isinstance(project, str) else ""
        raise NotFound(f"no cart {cart!r}", code="cart_not_found", hint=hint)
    if len(found) > 1:
        shown = ", ".join(each.id for each in found)
        raise Conflict(
            f"{cart!r} is the beginning of several carts: {shown}",
            code="ambiguous_id",
            hint="type more of the id",
        )
    return found[0]


async def _instead_of(engine: Engine, name: str, project: str) -> str:
    """Return a hint for a cart that is not there: one that is, or how to submit it."""
    defined = [template.name for template in await engine.store.templates(project)]
    if name in defined:
        return f"it was never started; rota cart submit {name}"
    carts = await engine.store.carts(CartQuery(project, limit=_COMPARED))
    near = did_you_mean(name, [each.name for each in carts])
    return near or "rota cart list shows them"


async def command(engine: Engine, cart: Cart, what: Command, *, actor: str) -> Commanded:
    """Apply a command: pause, resume, cancel, approve, retry or edit; raise if it is refused."""
    return await engine.store.command_cart(cart.id, what, actor=actor)


async def rehearse(engine: Engine, cart: Cart, what: Steering) -> Commanded:
    """Return whether a command would change the cart; raise as it would; write nothing."""
    overview = await engine.store.overview(cart, 1)
    facts = replace(_facts(cart, overview, None), pending_wave=overview.next_wave)
    changes = True
    match what:
        case PauseCart():
            changes = commands.pause(facts)
        case ResumeCart(allow):
            commands.resume(facts if allow is None else _with_allowance(facts, allow))
            await _refuse_gone_jobs(engine, cart)
        case CancelCart():
            changes = commands.cancel(facts)
        case ApproveCart(by, wave):
            commands.approve(facts, by, cart.created_by, wave)
    return Commanded(cart, changes)


def _with_allowance(facts: CartFacts, allow: Share) -> CartFacts:
    failures = replace(facts.rules.failures, allow=allow)
    return replace(facts, rules=replace(facts.rules, failures=failures))


async def _refuse_gone_jobs(engine: Engine, cart: Cart) -> None:
    query = ItemQuery(cart.id, states=[ItemState.PENDING], limit=NEXT_ITEMS)
    items = await engine.store.items(query)
    names = sorted({item.job for item in items})
    if names:
        jobs = JobQuery(project=cart.project, names=names, limit=len(names))
        there = {job.id for job in await engine.store.jobs(jobs)}
        for item in items:
            if item.job_id not in there:
                raise commands.job_deleted(cart.id, item.job)


def approver(name: str, role: Role) -> commands.Approver:
    """Return the approver of this name and role; a role includes those before it."""
    roles = list(Role)
    return commands.Approver(name, {each.value for each in roles[: roles.index(role) + 1]})


async def time_left(
    engine: Engine, cart: Cart, facts: CartFacts, overview: Overview
) -> timedelta | None:
    """Estimate how long the cart will still take, by what is known now; None: unknown.

    Waves beyond those that were looked at are taken to be like these.
    """
    looked_at = sum(overview.left)
    if not looked_at:
        return timedelta(0)
    jobs = await jobs_of(engine, cart)
    known = eta((await forecast(engine, facts, jobs)).pace, overview.left)
    if known is None:
        return None
    items = overview.items
    all_left = items.get(ItemState.PENDING, 0) + items.get(ItemState.OPEN, 0)
    return known * (all_left / looked_at)


_GROUPS_SHOWN = 10
_STANDING = FINAL_CART_STATES | {CartState.PAUSED}  # nothing more happens by itself


@dataclass(frozen=True, slots=True)
class CartGate:
    """Gate before the next wave, or before the next items."""

    wave: int | None  # its number
    waits_for: WaitReason
    until: datetime | None  # None: not by time alone
    check_run: RunId | None
    approve_role: str | None


@dataclass(frozen=True, slots=True)
class CartView:
    cart: Cart
    overview: Overview
    facts: CartFacts
    failure_groups: Sequence[FailureGroup]  # the most frequent
    eta: datetime | None  # when it will have ended; None: nobody knows, or it stands still

    @property
    def by_state(self) -> Mapping[ItemState, int]:
        """Number of items in each state."""
        return {state: self.overview.items.get(state, 0) for state in ItemState}

    @property
    def open_runs(self) -> Mapping[RunState, int]:
        """Number of open items by the state of their run, as people see it."""
        found = self.overview.open_runs
        return {state: found[state] for state in RunState if found.get(state)}

    @property
    def done(self) -> int:
        """Items that have ended, however they did."""
        return sum(self.by_state[state] for state in FINAL_ITEM_STATES)

    @property
    def failures(self) -> int:
        """Number of failed items in the present scope: the cart, or the current wave."""
        return failures_of(self.facts)

    @property
    def limit(self) -> int:
        """Number of items in the present scope that may fail."""
        return limit(self.facts)

    @property
    def is_breached(self) -> bool:
        """Return whether too many failed, now or in an earlier wave that did not stop it."""
        goes_on = self.cart.rules.failures.then is OnBreach.CONTINUE
        was_breached = goes_on and self.cart.breach_wave is not None
        return was_breached or is_breached(self.facts)

    @property
    def place(self) -> str:
        """Position of the current wave among all: `4 of 13`; "" before the first."""
        place = self.overview.place
        return f"{place} of {self.overview.waves}" if place else ""

    @property
    def gate(self) -> CartGate | None:
        """Gate that it waits for; None: none. A check that did not complete is still one."""
        cart = self.cart
        if cart.state is not CartState.WAITING and cart.reason != PauseReason.CHECK:
            return None
        reason = WaitReason(cart.reason)
        return CartGate(
            wave=self.overview.next_wave,
            waits_for=reason,
            until=self._until(reason),
            check_run=cart.check_run if reason is WaitReason.CHECK else None,
            approve_role=cart.rules.between.approve if reason is WaitReason.APPROVAL else None,
        )

    def _until(self, reason: WaitReason) -> datetime | None:
        match reason:
            case WaitReason.QUOTA:
                return None
            case WaitReason.WINDOW:
                return self.facts.closed_until
            case _:
                return self.cart.look_at

    @property
    def why(self) -> str:
        """Sentence that says what the cart is doing."""
        return in_words(self.facts)


def _facts(cart: Cart, overview: Overview, closed_until: datetime | None) -> CartFacts:
    """Build the facts of a cart, as far as its view needs them."""
    in_wave = overview.in_wave
    return CartFacts(
        rules=cart.rules,
        state=cart.state,
        items=cart.items,
        reason=cart.reason,
        ending=cart.ending,
        unknown=overview.unknown,
        failed=sum(overview.items.get(state, 0) for state in FAILED_ITEM_STATES),
        items_in_wave=sum(in_wave.values()),
        failed_in_wave=sum(in_wave.get(state, 0) for state in FAILED_ITEM_STATES),
        closed_until=closed_until,
    )


async def view(engine: Engine, cart: Cart) -> CartView:
    """Return a cart with all that its page shows."""
    overview = await engine.store.overview(cart, WAVES_LOOKED_AT)
    facts = _facts(cart, overview, await _closed_until(engine, cart))
    groups = await engine.store.failure_groups(cart.id, _GROUPS_SHOWN)
    return CartView(cart, overview, facts, groups, await _eta(engine, cart, facts, overview))


async def _closed_until(engine: Engine, cart: Cart) -> datetime | None:
    """Return the end of the blackout that it waits for; None: there is none, or it is unknown."""
    if cart.reason != WaitReason.WINDOW:
        return None
    now = await engine.store.now()
    with suppress(Invalid):
        blackouts = await blackouts_of(engine, cart.project, cart.rules.calendars)
        return end_of_blackout(blackouts, now)
    return None


async def _eta(engine: Engine, cart: Cart, facts: CartFacts, overview: Overview) -> datetime | None:
    if cart.state in _STANDING or _is_up_to_somebody(cart, overview) or overview.stranded:
        return None  # nobody knows when a worker comes back either
    left = await time_left(engine, cart, facts, overview)
    if left is None:
        return None
    now = await engine.store.now()
    return max(now, _held_until(cart, facts) or now) + left


def _held_until(cart: Cart, facts: CartFacts) -> datetime | None:
    """Return when it begins or resumes, if a time decides that; None: at once, or unknown."""
    if cart.state is CartState.PLANNED:
        return cart.starts_at
    match cart.reason:
        case WaitReason.SOAK:
            return cart.look_at
        case WaitReason.WINDOW:
            return facts.closed_until
        case _:
            return None


def _is_up_to_somebody(cart: Cart, overview: Overview) -> bool:
    """Return whether a person has to approve a wave before the cart can end."""
    if not cart.rules.between.approve:
        return False
    awaited = cart.state is CartState.WAITING and not cart.approved_by
    return awaited or len(overview.left) > 1
