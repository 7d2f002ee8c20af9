"""What older keys of the ring have sealed is wrapped anew, by one server, until nothing is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from rota.domain.access import Role
from rota.domain.identity import Person
from rota.domain.ids import ServerId
from rota.domain.key_ring import Key, KeyRing, new_key
from rota.operations.key_ring import key_uses
from rota.operations.principals import advice
from rota.ports.logins import ProviderFacts
from rota.ports.records import NewToken
from rota.server.scheduler.shards import HeldShards
from rota.server.scheduler.watches import Rewrapper
from testkit.clock import FakeClock
from tests.unit.server.scheduler.timeline import Timeline

pytestmark = pytest.mark.anyio

HOURS = timedelta(hours=12)
OLD, NEW, LOST = (replace(new_key(), id=name) for name in ("old", "new", "lost"))


def context(token: str) -> bytes:
    return f"refresh of {token}".encode()


class Vault:
    """Sessions with values that are sealed."""

    def __init__(self, timeline: Timeline, *keys: Key) -> None:
        self.ring = KeyRing(keys)
        self.timeline = timeline
        self.engine = replace(timeline.engine, key_ring=self.ring)
        self.clock = FakeClock(timeline.ticker)
        self.rewrapper = Rewrapper(self.engine, self.clock, timeline.shards)

    async def seal(self, count: int, *keys: Key, name: str = "t") -> None:
        ring, store = KeyRing(keys), self.engine.store
        person = Person("https://login.example.org", "u1", "ann")
        handle = await store.sign_in(person)
        for number in range(count):
            token = f"{name}_{number:03}"
            new = NewToken(
                token, handle, Role.ADMIN, f"digest of {token}", "session", handle, HOURS,
                principal=handle,
            )  # fmt: skip
            told = ProviderFacts(person, ring.seal(token.encode(), context(token)))
            await store.open_login(new, told, HOURS)

    async def opened(self) -> Counter[str]:
        """Sealed values that open with the ring, by their key."""
        seen: Counter[str] = Counter()
        for login in await self.engine.store.sealed_logins("none", "", 1_000):
            for value in login.values:
                key_id = value.sealed.split(":")[1]
                if key_id in self.ring.ids:
                    assert (
                        self.ring.open(value.sealed, context(login.token)) == login.token.encode()
                    )
                    seen[key_id] += 1
        return seen


async def test_what_an_older_key_has_sealed_is_wrapped_by_the_first(timeline: Timeline) -> None:
    vault = Vault(timeline, NEW, OLD)
    await vault.seal(3, OLD, name="old")
    await vault.seal(2, NEW, name="new")

    assert await vault.rewrapper.run_once() == 3

    assert await vault.opened() == {"new": 5}
    assert await vault.rewrapper.run_once() == 0


async def test_a_round_is_bounded_and_the_next_goes_on(timeline: Timeline) -> None:
    vault = Vault(timeline, NEW, OLD)
    await vault.seal(250, OLD)

    counts = [await vault.rewrapper.run_once() for _ in range(3)]

    assert counts == [200, 50, 0]
    assert await vault.opened() == {"new": 250}


async def test_only_the_leading_server_does_it(timeline: Timeline) -> None:
    vault = Vault(timeline, NEW, OLD)
    await vault.seal(1, OLD)
    no_shards = HeldShards(ServerId("s_2"), vault.clock)

    assert await Rewrapper(vault.engine, vault.clock, no_shards).run_once() == 0
    assert await vault.opened() == {"old": 1}


async def test_a_missing_key_is_named_and_keeps_nothing_else(timeline: Timeline) -> None:
    vault = Vault(timeline, NEW, OLD)
    await vault.seal(250, LOST, name="a")
    await vault.seal(3, OLD, name="b")

    with capture_logs() as logs:
        counts = [await vault.rewrapper.run_once() for _ in range(2)]

    assert counts == [0, 3]
    [told] = logs
    assert (told["event"], told["key"], told["values"]) == ("key_ring.unreadable", "lost", 250)
    assert await vault.opened() == {"new": 3}


async def test_it_looks_again_when_the_ring_is_renewed_and_every_few_minutes(
    timeline: Timeline,
) -> None:
    vault = Vault(timeline, OLD)
    await vault.seal(2, OLD)
    await vault.rewrapper.run_once()

    vault.ring.replace([NEW, OLD])
    renewed = await vault.rewrapper.run_once()
    await vault.seal(1, OLD, name="by_another_server")
    at_once = await vault.rewrapper.run_once()
    timeline.ticker.advance(timedelta(minutes=10))
    later = await vault.rewrapper.run_once()

    assert (renewed, at_once, later) == (2, 0, 1)


async def test_without_a_ring_nothing_is_done(timeline: Timeline) -> None:
    rewrapper = Rewrapper(timeline.engine, FakeClock(timeline.ticker), timeline.shards)

    assert await rewrapper.run_once() == 0


async def test_an_admin_is_told_how_much_is_left_under_which_key(timeline: Timeline) -> None:
    vault = Vault(timeline, NEW, OLD, replace(OLD, id="older"))
    await vault.seal(2, OLD, name="old")
    await vault.seal(1, LOST, name="lost")
    await vault.seal(3, NEW, name="new")

    told = [each for each in await advice(vault.engine) if each.subject == "key ring"]
    uses = {use.key_id: use.values for use in await key_uses(vault.engine)}

    assert uses == {"new": 3, "old": 2, "older": 0, "lost": 1}
    assert [(each.message, each.is_note) for each in told] == [
        ("2 values are still sealed with the key old, until all are wrapped anew", True),
        ("nothing is sealed with the key older any more: it can be taken out", True),
        ("the key lost is missing: 1 value is sealed with it and cannot be read", False),
    ]
