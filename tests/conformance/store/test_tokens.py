from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from rota.domain.errors import Conflict
from rota.ports.records import NewToken, Role
from rota.store.store import SqlStore
from testkit.builders import MINUTE, Scene

pytestmark = pytest.mark.anyio


def token(name: str = "ci", *, kind: str = "api", lifetime: timedelta | None = None) -> NewToken:
    return NewToken(f"t_{name}", name, Role.EDITOR, f"digest of {name}", kind, "admin", lifetime)


async def test_a_token_is_found_by_its_digest(scene: Scene) -> None:
    await scene.store.add_token(token())

    found = await scene.store.token_by_digest("digest of ci")

    assert found is not None
    assert (found[0].name, found[0].role, found[1]) == ("ci", Role.EDITOR, "api")
    assert await scene.store.token_by_digest("ci") is None


async def test_a_token_expires_by_the_store_s_clock(scene: Scene) -> None:
    await scene.store.add_token(token(lifetime=MINUTE))
    scene.advance(MINUTE - timedelta(microseconds=1))
    in_time = await scene.store.token_by_digest("digest of ci")

    scene.advance(timedelta(microseconds=1))

    assert in_time is not None
    assert await scene.store.token_by_digest("digest of ci") is None


async def test_a_revoked_token_is_worth_nothing(scene: Scene) -> None:
    await scene.store.add_token(token())

    revoked = [await scene.store.revoke_token("t_ci", actor="admin") for _ in range(2)]

    assert revoked == [True, False]
    assert await scene.store.token_by_digest("digest of ci") is None
    assert not await scene.store.revoke_token("t_nope", actor="admin")


async def test_the_clock_is_not_asked_twice_for_a_token(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.store.add_token(token())
    monkeypatch.delattr(SqlStore, "now")

    found = await scene.store.token_by_digest("digest of ci")

    assert found is not None


async def test_a_login_works_once(scene: Scene) -> None:
    await scene.store.add_token(token("link", kind="login", lifetime=MINUTE))

    uses = [
        await scene.store.token_by_digest("digest of link", uses_up_login=True) for _ in range(2)
    ]

    assert uses[0] is not None
    assert uses[1] is None


async def test_only_a_login_can_be_used_up(scene: Scene) -> None:
    await scene.store.add_token(token())

    assert await scene.store.token_by_digest("digest of ci", uses_up_login=True) is None
    assert await scene.store.token_by_digest("digest of ci") is not None


async def test_the_last_use_is_known_to_the_minute(scene: Scene) -> None:
    await scene.store.add_token(token())
    first_use = scene.clock.instant
    for _ in range(2):
        await scene.store.token_by_digest("digest of ci")
        scene.advance(MINUTE / 2)

    [shown] = await scene.store.tokens()

    assert shown.last_used_at == first_use


async def test_only_api_tokens_are_listed(scene: Scene) -> None:
    await scene.store.add_token(token())
    await scene.store.add_token(token("browser", kind="session", lifetime=MINUTE))

    assert [shown.name for shown in await scene.store.tokens()] == ["ci"]


async def test_a_token_that_exists_is_a_conflict(scene: Scene) -> None:
    await scene.store.add_token(token())

    with pytest.raises(Conflict):
        await scene.store.add_token(token())


async def test_a_session_ends_with_the_token_that_opened_it(scene: Scene) -> None:
    await scene.store.add_token(token("opener", lifetime=2 * MINUTE))
    session = replace(token("session", kind="session", lifetime=10 * MINUTE), parent="t_opener")
    await scene.store.add_token(session)
    while_valid = await scene.store.token_by_digest("digest of session")

    await scene.store.revoke_token("t_opener", actor="admin")

    assert while_valid is not None
    assert await scene.store.token_by_digest("digest of session") is None


async def test_a_session_expires_with_the_token_that_opened_it(scene: Scene) -> None:
    await scene.store.add_token(token("opener", lifetime=MINUTE))
    session = replace(token("session", kind="session", lifetime=10 * MINUTE), parent="t_opener")
    await scene.store.add_token(session)

    scene.advance(MINUTE)

    assert await scene.store.token_by_digest("digest of session") is None


async def test_a_worker_s_token_has_its_pool_and_a_list_of_its_own(scene: Scene) -> None:
    await scene.store.add_token(token("ci"))
    await scene.store.add_token(replace(token("node", kind="worker"), pool="gpu"))

    found = await scene.store.token_by_digest("digest of node")

    assert found is not None
    assert (found[0].pool, found[1]) == ("gpu", "worker")
    assert [each.name for each in await scene.store.tokens("worker")] == ["node"]
    assert [each.name for each in await scene.store.tokens()] == ["ci"]
