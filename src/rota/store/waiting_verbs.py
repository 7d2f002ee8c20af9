"""The part of the store port that is about runs which wait."""

from __future__ import annotations

from collections.abc import Collection

from rota.domain.errors import HeldTooLong
from rota.domain.ids import RunId
from rota.ports.records import Released, Wakes
from rota.store.driving import Driver, Urgency
from rota.store.scripts import fitting, following_jobs, steering
from rota.store.scripts.gates import HoldGates, hold_free_gates, hold_gates
from rota.store.scripts.rules import RulesBook

_NOTHING = Released(0, Wakes())


class WaitingVerbs:
    """Implements `rota.ports.store.WaitingStore`."""

    _driver: Driver
    _book: RulesBook

    async def hold_run(self, run: RunId, *, actor: str) -> Wakes:
        return await self._driver.write(lambda now: steering.hold(now, run, actor), Urgency.API)

    async def let_go(self, run: RunId, *, actor: str) -> Wakes:
        return await self._driver.write(
            lambda now: steering.let_go(now, run, actor, self._book), Urgency.API
        )

    async def set_priority(self, run: RunId, priority: int, *, actor: str) -> Wakes:
        return await self._driver.write(
            lambda now: steering.set_priority(now, run, priority, actor), Urgency.API
        )

    async def follow_ends(self, limit: int) -> Released:
        if not await self._driver.read(lambda _: following_jobs.any_ends(), Urgency.CLAIM):
            return _NOTHING
        try:
            return await self._follow(limit, hold_gates)
        except HeldTooLong:
            return await self._follow(limit, hold_free_gates)

    async def _follow(self, limit: int, hold: HoldGates) -> Released:
        return await self._driver.write(
            lambda now: following_jobs.follow(now, limit, self._book, hold), Urgency.CLAIM
        )

    async def followers(
        self, project: str, upstreams: Collection[str]
    ) -> dict[str, tuple[str, ...]]:
        return await self._driver.read(lambda _: following_jobs.followers(project, upstreams))

    async def release_fitting(self, limit: int) -> Released:
        if not await self._driver.read(lambda _: fitting.any_unfit(), Urgency.CLAIM):
            return _NOTHING
        return await self._driver.write(
            lambda now: fitting.release_fitting(now, limit, self._book), Urgency.CLAIM
        )
