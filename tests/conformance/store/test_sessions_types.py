"""Types of plug-ins that workers have offered: kept once told, whoever is there now."""

from __future__ import annotations

import pytest

from rota.ports.work import JobTypeNote, Offer
from rota.store import sessions
from rota.store.script import Many
from testkit.builders import LEASE, MINUTE, Scene, hello

pytestmark = pytest.mark.anyio

TICKET = JobTypeNote("ticket", 1, '{"type": "object"}')
OFFER = Offer("type", "ticket")


async def test_a_type_is_known_once_a_worker_has_offered_it(scene: Scene) -> None:
    new = hello("w1", offers=(OFFER,), job_types=(TICKET, JobTypeNote("build")))
    session = await scene.store.register(new, LEASE)
    await scene.store.end_session(session.id)

    build, ticket = await scene.store.job_types()

    assert (build.name, build.api_version, build.schema, build.worker) == ("build", 0, {}, "w1")
    assert (ticket.name, ticket.api_version, ticket.schema) == ("ticket", 1, {"type": "object"})
    assert ticket.offered_at == scene.clock.instant


async def test_what_is_told_last_holds(scene: Scene) -> None:
    session = await scene.store.register(hello("w1", job_types=(TICKET,)), LEASE)
    later = scene.advance(MINUTE / 10)
    newer = JobTypeNote("ticket", 1, '{"type": "object", "required": ["queue"]}')

    await scene.store.resume(hello("w1", resumes=session.id, job_types=(newer,)), "s_2")

    [known] = await scene.store.job_types()
    assert (known.schema["required"], known.offered_at) == (["queue"], later)


async def test_what_is_known_is_not_written_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.store.register(hello("w1", job_types=(TICKET,)), LEASE)
    written: list[str] = []

    def noted(name: str, *arguments: object, **options: object) -> Many:
        written.append(name)
        return Many(name, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sessions, "Many", noted)
    await scene.store.register(hello("w2", job_types=(TICKET,)), LEASE)

    [known] = await scene.store.job_types()
    assert (known.worker, written) == ("w1", [])
