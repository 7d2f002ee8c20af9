"""How long carts take: by their jobs, their rules, and the workers that are there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.carts.budget import window
from rota.domain.carts.facts import CartFacts
from rota.domain.carts.intake import ItemJob
from rota.domain.carts.progress import Pace
from rota.domain.carts.states import ItemState
from rota.domain.errors import Invalid
from rota.domain.job import rules_of
from rota.domain.shape import shape_of, unmet
from rota.operations.backends import Backends
from rota.ports.carts import Cart, ItemQuery
from rota.ports.records import JobQuery

_NEXT_ITEMS = 100  # whose jobs are looked at where the cart itself names none
_UNFINISHED = (ItemState.PENDING, ItemState.OPEN)


@dataclass(frozen=True, slots=True)
class Forecast:
    pace: Pace
    unrunnable: Sequence[str]  # jobs that no live worker can run, and why


async def forecast(backends: Backends, facts: CartFacts, jobs: Sequence[ItemJob]) -> Forecast:
    """How fast a cart of these jobs goes, by what is known now."""
    slots, unrunnable = await _capacity(backends, jobs)
    pace = Pace(_expected(jobs), window(facts), slots, facts.rules.between.wait)
    return Forecast(pace, unrunnable)


async def jobs_of(backends: Backends, cart: Cart) -> list[ItemJob]:
    """Those of a cart's next items, as far as they are there and can be read."""
    names = [cart.document.get("job", "")]
    if not names[0]:
        query = ItemQuery(cart.id, states=_UNFINISHED, limit=_NEXT_ITEMS)
        names = sorted({item.job for item in await backends.store.items(query)})
    query_of_jobs = JobQuery(project=cart.project, names=names, limit=len(names))
    readable = []
    for job in await backends.store.jobs(query_of_jobs) if names else []:
        with suppress(Invalid):
            readable.append(ItemJob.of(job))
    return readable


def _expected(jobs: Iterable[ItemJob]) -> timedelta | None:
    """How long an item takes, by what is known of the jobs; the slowest counts."""
    known = [
        timedelta(seconds=each.job.expected_seconds)
        for each in jobs
        if each.job.expected_seconds is not None
    ]
    told = [each.spec.expect for each in jobs if each.spec.expect is not None]
    return max(known or told, default=None)


async def _capacity(backends: Backends, jobs: Sequence[ItemJob]) -> tuple[int | None, list[str]]:
    """Slots of the live workers that can run these jobs, and jobs that none of them can."""
    sessions = await backends.store.sessions(alive_only=True)
    slots, unrunnable = 0, []
    for each in jobs:
        rules = rules_of(each.spec)
        able = [
            session
            for session in sessions
            if session.pool == rules.pool
            and not unmet(shape_of(rules), session.labels, session.functions)
        ]
        slots = max(slots, sum(session.slots for session in able))
        if not able:
            unrunnable.append(f"{each.job.name}: no live worker of pool {rules.pool} can run it")
    return slots or None, unrunnable
