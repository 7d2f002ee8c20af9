"""Loops that advance carts, and that create carts from templates that are due."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from rota.domain.calendars import end_of_blackout
from rota.domain.carts.definition import CartTemplate
from rota.domain.carts.facts import FINAL_CART_STATES, CartState
from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.jobfile import read_cart
from rota.domain.schedule import DueRange, pass_over
from rota.operations.cart_templates import submit_due
from rota.operations.engine import Engine
from rota.operations.specs import cart_timetable
from rota.ports.carts import CartLook, CartQuery, DueTemplate, MissedCarts, Template
from rota.ports.queue import CARTS
from rota.server.scheduler.shards import HeldShards, at_each_wake, until_next
from rota.server.scheduler.timekeeper import Blackouts

_LONGEST_CLOSED = timedelta(seconds=10)  # by calendars, until they are looked at again


@dataclass(frozen=True, slots=True)
class CartKeeperConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 100  # carts in one look


class CartKeeper:
    """Advances the carts of this server's shards.

    Two keepers of one cart are harmless: each step is decided and done under the cart's lock.
    """

    name = "cart keeper"

    def __init__(
        self,
        engine: Engine,
        shards: HeldShards,
        config: CartKeeperConfig | None = None,
    ) -> None:
        self._engine = engine
        self._shards = shards
        self._config = config or CartKeeperConfig()
        self._blackouts = Blackouts(engine.store)
        self._pause = timedelta(0)

    async def run(self) -> None:
        await at_each_wake(self._engine.queue, CARTS, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Advance the carts that can go on; return how many were looked at."""
        self._pause = self._config.interval
        shards = list(self._shards.epochs)
        if not shards:
            return 0
        store, limit = self._engine.store, self._config.batch_size
        looked_at = await store.now()
        looks = await store.carts_to_advance(shards, limit)
        self._blackouts.begin_look()
        for look in looks:
            await self._advance(look)
        self._pause = await self._until_next(looked_at) if len(looks) < limit else timedelta(0)
        return len(looks)

    async def _advance(self, look: CartLook) -> None:
        closed_until = await self._closed_until(look)
        has_more = True
        while has_more:
            advanced = await self._engine.store.advance_cart(look.id, closed_until)
            has_more = advanced.has_more

    async def _closed_until(self, look: CartLook) -> datetime | None:
        """Return until when calendars keep the cart's waves closed; None: they do not.

        The result is used for a short time only: calendars may change, and carts are not notified.
        """
        if not look.calendars:
            return None
        now = await self._engine.store.now()
        await self._blackouts.look((look.project, name) for name in look.calendars)
        blackouts = self._blackouts.of(look.project, look.calendars)
        longest = now + _LONGEST_CLOSED
        if blackouts is None:
            return longest
        if not any(blackout.is_inside(now) for blackout in blackouts):
            return None
        return min(end_of_blackout(blackouts, now) or longest, longest)

    async def _until_next(self, looked_at: datetime) -> timedelta:
        store = self._engine.store
        next_at, now = await store.next_cart_look(), await store.now()
        return until_next(next_at, looked_at, now, self._config.interval)


log = structlog.get_logger()

_ACTOR = "scheduler"
_LATEST_START = timedelta(hours=6)  # a cart that could not begin in time does so until then
_LIVE = tuple(state for state in CartState if state not in FINAL_CART_STATES)
_MICROSECOND = timedelta(microseconds=1)
_PROBLEMS_TOLD = 3
_Version = tuple[str, str, int]  # of a template: its project, its name and the number


@dataclass(frozen=True, slots=True)
class DueTemplatesConfig:
    interval: timedelta = timedelta(seconds=1)  # how often the store is asked at least
    batch_size: int = 100  # templates in one look


@dataclass(frozen=True, slots=True)
class _Backlog:
    """Due times of a template up to now, and the next one after them."""

    readable: CartTemplate
    passed: DueRange
    earlier: DueRange | None  # all but the last; None: there is only one
    next_at: datetime | None


class DueTemplates:
    """Answers due times of templates: one cart for the latest, a record of the missed others.

    Each is answered once, whichever server does it: the answer moves the schedule on in the
    transaction that activates the cart. That may take long, so active carts have a loop of their
    own.
    """

    name = "due templates"

    def __init__(
        self, engine: Engine, shards: HeldShards, config: DueTemplatesConfig | None = None
    ) -> None:
        self._engine = engine
        self._shards = shards
        self._config = config or DueTemplatesConfig()
        self._pause = timedelta(0)
        self._unreadable: set[_Version] = set()  # that are due, and were logged

    async def run(self) -> None:
        await at_each_wake(self._engine.queue, CARTS, self.run_once, lambda: self._pause)

    async def run_once(self) -> int:
        """Answer what is due in this server's shards; return how many templates that were."""
        self._pause = self._config.interval
        shards = list(self._shards.epochs)
        if not shards:
            return 0
        # What cannot be read stays due, and is not to crowd out the others.
        limit = self._config.batch_size + len(self._unreadable)
        looked_at = await self._engine.store.now()
        due = await self._engine.store.due_templates(shards, limit)
        self._unreadable &= {_version(template) for template in due}
        new = [template for template in due if _version(template) not in self._unreadable]
        answered = sum([await self._answer(template) for template in new])
        self._pause = await self._until_next(looked_at) if len(due) < limit else timedelta(0)
        return answered

    async def _until_next(self, looked_at: datetime) -> timedelta:
        store = self._engine.store
        next_at, now = await store.next_template_due(), await store.now()
        return until_next(next_at, looked_at, now, self._config.interval)

    async def _answer(self, template: Template) -> bool:
        now = await self._engine.store.now()
        try:
            backlog = await asyncio.to_thread(_backlog, template, now)
        except Invalid as error:
            self._tell_unreadable(template, error)
            return False
        if now - backlog.passed.last > _LATEST_START:
            await self._miss(template, backlog.passed, backlog.next_at, "downtime")
            return True
        if backlog.earlier is not None:
            await self._miss(template, backlog.earlier, backlog.passed.last, "downtime")
        await self._start(template, backlog)
        return True

    def _tell_unreadable(self, template: Template, error: Invalid) -> None:
        self._unreadable.add(_version(template))
        log.error(
            "cart.unreadable",
            project=template.project,
            cart=template.name,
            error="; ".join(map(str, error.problems)) or str(error),
            effect="it does not start by itself",
        )

    async def _start(self, template: Template, backlog: _Backlog) -> None:
        latest = backlog.passed.last
        due = _due(template, latest, backlog.next_at)
        only = DueRange(latest, latest, 1)
        if await self._is_live(template):
            await self._miss(template, only, backlog.next_at, "overlap")
            return
        try:
            await submit_due(self._engine, backlog.readable, due, actor=_ACTOR)
        except (Conflict, Invalid, NotFound) as error:
            # If another server was faster, its answer stands: the due time has moved on.
            cause = "overlap" if error.code == "cart_is_live" else "refused"
            await self._miss(template, only, backlog.next_at, cause, _told(error))

    async def _is_live(self, template: Template) -> bool:
        """Return whether a cart of the template is live; then no items need be stored at all."""
        query = CartQuery(template.project, name=template.name, states=_LIVE, limit=1)
        return bool(await self._engine.store.carts(query))

    async def _miss(
        self,
        template: Template,
        missed: DueRange,
        next_at: datetime | None,
        cause: str,
        message: str = "",
    ) -> None:
        due = _due(template, missed.first, next_at)
        told = MissedCarts(cause, missed.last, missed.count, message if cause == "refused" else "")
        await self._engine.store.pass_template(due, told)


def _backlog(template: Template, now: datetime) -> _Backlog:
    assert template.next_at is not None, "it is due"
    readable = read_cart(template.document)
    table = cart_timetable(template.project, readable, template.anchor)
    if table is None:
        only = DueRange(template.next_at, template.next_at, 1)
        return _Backlog(readable, only, None, None)
    over = pass_over(table, template.next_at, now)
    passed = over.passed or DueRange(template.next_at, template.next_at, 1)
    if passed.count == 1:
        return _Backlog(readable, passed, None, over.next_at)
    before = table.last_at_or_before(passed.last - _MICROSECOND) or passed.first
    earlier = DueRange(passed.first, max(before, passed.first), passed.count - 1)
    return _Backlog(readable, passed, earlier, over.next_at)


def _version(template: Template) -> _Version:
    return template.project, template.name, template.version


def _due(template: Template, due_at: datetime, next_at: datetime | None) -> DueTemplate:
    return DueTemplate(template.project, template.name, template.version, due_at, next_at)


def _told(error: Conflict | Invalid | NotFound) -> str:
    problems = error.problems[:_PROBLEMS_TOLD] if isinstance(error, Invalid) else ()
    return "; ".join([error.message, *(problem.message for problem in problems)])
