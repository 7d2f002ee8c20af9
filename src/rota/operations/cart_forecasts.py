"""How long a cart will take, by what is known of its jobs, and what of it nobody can run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from rota.domain.carts.facts import CartFacts, ItemState, Pace, window
from rota.domain.carts.intake import ItemDemands, ItemJob
from rota.domain.errors import Invalid
from rota.domain.job import RunRules, rules_of
from rota.domain.shape import WORKER, shape_of, unmet
from rota.operations.engine import Engine
from rota.ports.carts import Cart, ItemQuery
from rota.ports.records import JobQuery, Session

_UNRUNNABLE_SHOWN = 20
NEXT_ITEMS = 100  # whose jobs are looked at where the cart itself names none
_UNFINISHED = (ItemState.PENDING, ItemState.OPEN)


@dataclass(frozen=True, slots=True)
class CartForecast:
    pace: Pace
    unrunnable: Sequence[str]  # jobs, or items, that no live worker can run, and why


async def forecast(
    engine: Engine,
    facts: CartFacts,
    jobs: Sequence[ItemJob],
    demands: ItemDemands | None = None,
) -> CartForecast:
    """Estimate how fast a cart of these jobs goes, by what is known now.

    `demands` are those of its items; without them, they are taken to need what their jobs need.
    """
    sessions = await engine.store.sessions(alive_only=True)
    slots, unrunnable = _capacity(sessions, jobs)
    if demands is not None and demands.have_needs:
        # Thousands of items may each be for a worker of its own, and leases are renewed here.
        slots, unrunnable = await asyncio.to_thread(_capacity_for, sessions, jobs, demands)
    pace = Pace(_expected(jobs), window(facts), slots, facts.rules.between.wait)
    return CartForecast(pace, unrunnable)


async def jobs_of(engine: Engine, cart: Cart) -> list[ItemJob]:
    """Return the jobs of a cart's next items, as far as they exist and can be read."""
    names = [cart.document.get("job", "")]
    if not names[0]:
        query = ItemQuery(cart.id, states=_UNFINISHED, limit=NEXT_ITEMS)
        names = sorted({item.job for item in await engine.store.items(query)})
    query_of_jobs = JobQuery(project=cart.project, names=names, limit=len(names))
    readable = []
    for job in await engine.store.jobs(query_of_jobs) if names else []:
        with suppress(Invalid):
            readable.append(ItemJob.of(job))
    return readable


def _expected(jobs: Iterable[ItemJob]) -> timedelta | None:
    """Estimate how long an item takes, by what is known of the jobs; the slowest counts."""
    known = [
        timedelta(seconds=each.job.expected_seconds)
        for each in jobs
        if each.job.expected_seconds is not None
    ]
    told = [each.spec.expect for each in jobs if each.spec.expect is not None]
    return max(known or told, default=None)


def _capacity(sessions: Sequence[Session], jobs: Sequence[ItemJob]) -> tuple[int | None, list[str]]:
    """Count slots of live workers that can run these jobs; also name jobs that none of them can."""
    slots, unrunnable = 0, []
    for each in jobs:
        rules = rules_of(each.spec)
        able = _able(sessions, rules, shape_of(rules))
        slots = max(slots, sum(session.slots for session in able))
        if not able:
            unrunnable.append(f"{each.job.name}: no live worker of pool {rules.pool} can run it")
    return slots or None, unrunnable


def _capacity_for(
    sessions: Sequence[Session], jobs: Sequence[ItemJob], demands: ItemDemands
) -> tuple[int | None, list[str]]:
    """Count slots of live workers that can run some item; also tell which items none can."""
    by_place: dict[tuple[str, str], list[Session]] = defaultdict(list)
    for session in sessions:
        by_place[session.pool, ""].append(session)
        by_place[session.pool, session.worker].append(session)
    rules = {each.job.name: rules_of(each.spec) for each in jobs}
    slots: dict[str, int] = {}  # by session
    unrunnable = []
    for (job, needs), count in demands.items.items():
        wanted = {**rules[job].needs, **dict(needs)}
        near = by_place[rules[job].pool, wanted.get(WORKER, "")]
        able = _able(near, rules[job], shape_of(rules[job], dict(needs)))
        slots |= {session.id: session.slots for session in able}
        if not able:
            asked = ", ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
            others = f" and {count - 1:,} more" if count > 1 else ""
            where = f"no live worker of pool {rules[job].pool} can run it"
            first = demands.first[job, needs]
            unrunnable.append(f"{first}{others}: {where}{f' (needs {asked})' if asked else ''}")
    return sum(slots.values()) or None, _shortened(unrunnable)


def _shortened(lines: list[str]) -> list[str]:
    left_out = len(lines) - _UNRUNNABLE_SHOWN
    if left_out <= 0:
        return lines
    return [*lines[:_UNRUNNABLE_SHOWN], f"and {left_out:,} more of such demands"]


def _able(sessions: Iterable[Session], rules: RunRules, shape: str) -> list[Session]:
    return [
        session
        for session in sessions
        if session.pool == rules.pool
        and not unmet(shape, session.all_labels, session.functions, offers=session.offered)
    ]
