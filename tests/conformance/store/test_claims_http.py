"""Slots of jobs of type http: beside those of a worker, and not of them."""

from __future__ import annotations

from typing import Any

import pytest

from rota.domain.ids import SessionId
from rota.domain.resources import HTTP_SLOTS, UNIT
from rota.ports.work import Offer
from testkit.builders import Scene

pytestmark = pytest.mark.anyio


class TestHttpSlots:
    """Jobs of type http take none of the slots, and what they take others do not need."""

    OFFERS = (Offer("type", "http"),)

    async def worker(self, scene: Scene, slots: int = 1, http_slots: int = 2) -> SessionId:
        resources = {HTTP_SLOTS: http_slots * UNIT}
        return await scene.worker(slots=slots, resources=resources, offers=self.OFFERS)

    async def jobs(self, scene: Scene, plain: int, http: int) -> None:
        sorts: tuple[tuple[int, dict[str, Any]], ...] = (
            (plain, {"name": "plain"}),
            (http, {"name": "http", "kind": "http"}),
        )
        for count, fields in sorts:
            if count:
                await scene.trigger(await scene.job(**fields), count)

    async def test_both_are_filled(self, scene: Scene) -> None:
        worker = await self.worker(scene)
        await self.jobs(scene, plain=3, http=4)

        given = await scene.claim(worker, 10)
        more = await scene.claim(worker, 10)

        assert len(given) == 3
        assert more == []

    async def test_many_of_them_leave_the_slots_free(self, scene: Scene) -> None:
        worker = await self.worker(scene, slots=2, http_slots=3)
        await self.jobs(scene, plain=0, http=5)
        assert len(await scene.claim(worker, 10)) == 3

        await self.jobs(scene, plain=3, http=0)

        assert len(await scene.claim(worker, 10)) == 2

    async def test_a_worker_without_them_gets_none(self, scene: Scene) -> None:
        worker = await scene.worker(slots=5)
        await self.jobs(scene, plain=1, http=3)

        assert len(await scene.claim(worker, 10)) == 1
