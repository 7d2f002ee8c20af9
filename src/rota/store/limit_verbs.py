"""The part of the store port that is about shared keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from rota.domain.keys import Declaration, Key, KeyKind
from rota.ports.limits import Declared, KeyUse, ProjectCounts
from rota.ports.records import Released, Wakes
from rota.store.driving import Driver, Urgency
from rota.store.scripts.keys import declaring, forgetting, quotas, rekeying, releasing
from rota.store.scripts.memory import Memory
from rota.store.scripts.rules import RulesBook

_REKEYED = 1_000  # runs in one transaction


class LimitVerbs:
    """Implements `rota.ports.limits.LimitStore`."""

    _driver: Driver
    _book: RulesBook
    _memory: Memory
    _key_place = releasing.Place()  # where the next look goes on

    async def declarations(
        self, project: str | None = None, kind: KeyKind | None = None
    ) -> list[Declared]:
        return await self._driver.read(lambda _: declaring.declarations(project, kind))

    async def save_declarations(self, new: Sequence[Declaration], *, actor: str) -> Wakes:
        return await self._driver.write(lambda now: declaring.save(now, new, actor), Urgency.API)

    async def delete_declaration(
        self, kind: KeyKind, project: str, name: str, *, actor: str
    ) -> tuple[bool, Wakes]:
        return await self._driver.write(
            lambda now: declaring.delete(now, kind, project, name, actor), Urgency.API
        )

    async def key_uses(self, keys: Collection[Key]) -> Mapping[Key, KeyUse]:
        return await self._driver.read(lambda now: declaring.key_uses(now, keys))

    async def project_counts(self, project: str) -> ProjectCounts:
        return await self._driver.read(lambda _: quotas.counts(project))

    async def release_keys(self, limit: int) -> Released:
        """Looks at all there is, a piece at a time, until something is found to do."""
        while True:
            released = await self._release_keys(limit, self._key_place)
            if self._key_place.is_rekeying:
                await self._rekey_runs()
            if released.count or self._key_place.is_start:
                return released

    async def _release_keys(self, limit: int, place: releasing.Place) -> Released:
        released, self._key_place = await self._driver.write(
            lambda now: releasing.release(now, limit, place, self._memory), Urgency.CLAIM
        )
        return released

    async def _rekey_runs(self) -> None:
        """Let runs take the keys that were declared after them, all there are, some at a time."""
        while await self._driver.write(lambda _: rekeying.rekey(_REKEYED, self._book), Urgency.API):
            pass

    async def forget_keys(self, limit: int) -> int:
        """Looks at all of them, so many at a time."""
        forgotten, place = await self._forget_keys("", limit)
        while place:
            more, place = await self._forget_keys(place, limit)
            forgotten += more
        return forgotten

    async def _forget_keys(self, after: Key, limit: int) -> tuple[int, Key]:
        return await self._driver.write(
            lambda now: forgetting.forget(now, after, limit), Urgency.API
        )

    async def next_key_at(self) -> datetime | None:
        looked_at = self._key_place.at
        return await self._driver.read(lambda _: declaring.next_key_at(looked_at), Urgency.CLAIM)
