"""Makes carts of templates whose time has come."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from rota.domain.carts.states import FINAL_CART_STATES, CartState
from rota.domain.errors import Conflict, Invalid, NotFound
from rota.domain.jobfile import read_cart
from rota.domain.schedule import DueRange, pass_over
from rota.operations.backends import Backends
from rota.operations.cart_templates import submit_due
from rota.operations.timetables import cart_timetable
from rota.ports.carts import CartQuery, DueTemplate, MissedCarts, Template

log = structlog.get_logger()

_ACTOR = "scheduler"
_LATEST_START = timedelta(hours=6)  # a cart that could not begin in time does so until then
_LIVE = tuple(state for state in CartState if state not in FINAL_CART_STATES)
_MICROSECOND = timedelta(microseconds=1)
_PROBLEMS_TOLD = 3


@dataclass(frozen=True, slots=True)
class _Backlog:
    """The due times of a template until now, and the one after them."""

    passed: DueRange
    earlier: DueRange | None  # all but the last; None: there is only one
    next_at: datetime | None


class DueTemplates:
    """Answers the due times of templates: one cart for the latest, a word about the others.

    Each is answered once, whichever server does it: the answer moves the schedule on in the
    transaction that lets the cart live.
    """

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def answer(self, shards: Collection[int], limit: int) -> int:
        """Those of these shards that are due now; returns how many templates were answered."""
        due = await self._backends.store.due_templates(shards, limit)
        return sum([await self._answer(template) for template in due])

    async def _answer(self, template: Template) -> bool:
        now = await self._backends.store.now()
        try:
            backlog = await asyncio.to_thread(_backlog, template, now)
        except Invalid as error:
            log.error(
                "cart.unreadable",
                project=template.project,
                cart=template.name,
                error="; ".join(map(str, error.problems)) or str(error),
                effect="it does not start by itself",
            )
            return False
        if now - backlog.passed.last > _LATEST_START:
            await self._miss(template, backlog.passed, backlog.next_at, "downtime")
            return True
        if backlog.earlier is not None:
            await self._miss(template, backlog.earlier, backlog.passed.last, "downtime")
        await self._start(template, backlog)
        return True

    async def _start(self, template: Template, backlog: _Backlog) -> None:
        latest = backlog.passed.last
        due = _due(template, latest, backlog.next_at)
        only = DueRange(latest, latest, 1)
        if await self._is_live(template):
            await self._miss(template, only, backlog.next_at, "overlap")
            return
        try:
            await submit_due(self._backends, template, due, actor=_ACTOR)
        except (Conflict, Invalid, NotFound) as error:
            # If another server was faster, its answer stands: the due time has moved on.
            cause = "overlap" if error.code == "cart_is_live" else "refused"
            await self._miss(template, only, backlog.next_at, cause, _told(error))

    async def _is_live(self, template: Template) -> bool:
        """Whether to store the items at all."""
        query = CartQuery(template.project, name_like=template.name, states=_LIVE, limit=1)
        return bool(await self._backends.store.carts(query))

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
        await self._backends.store.pass_template(due, told)


def _backlog(template: Template, now: datetime) -> _Backlog:
    assert template.next_at is not None, "it is due"
    table = cart_timetable(template.project, read_cart(template.document), template.anchor)
    if table is None:
        return _Backlog(DueRange(template.next_at, template.next_at, 1), None, None)
    over = pass_over(table, template.next_at, now)
    passed = over.passed or DueRange(template.next_at, template.next_at, 1)
    if passed.count == 1:
        return _Backlog(passed, None, over.next_at)
    before = table.last_at_or_before(passed.last - _MICROSECOND) or passed.first
    earlier = DueRange(passed.first, max(before, passed.first), passed.count - 1)
    return _Backlog(passed, earlier, over.next_at)


def _due(template: Template, due_at: datetime, next_at: datetime | None) -> DueTemplate:
    return DueTemplate(template.project, template.name, template.version, due_at, next_at)


def _told(error: Conflict | Invalid | NotFound) -> str:
    problems = error.problems[:_PROBLEMS_TOLD] if isinstance(error, Invalid) else ()
    return "; ".join([error.message, *(problem.message for problem in problems)])
