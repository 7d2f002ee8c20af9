"""A worker that has joined renews its credential over the stream, and connects anew with it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.ports.work import CREDENTIAL, Beat, BeatAnswer, Credential, Hello, Refused, Welcome
from rota.worker.attempts import Attempts
from rota.worker.session import WorkerSession
from rota.worker.spool import OutputSpool
from testkit.guards import NoGuard
from tests.unit.worker.test_stopping import Link, until

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
NEXT = Credential("the next", 90 * SECOND)


class ImpatientClock(SystemClock):
    """Does not wait for hours."""

    async def sleep(self, duration: timedelta) -> None:
        await super().sleep(min(duration, timedelta(milliseconds=5)))


class RenewingLink(Link):
    """Renews credentials, once it has refused to a few times."""

    def __init__(self, *, is_offered: bool = True, refusals: int = 0) -> None:
        super().__init__()
        self.takes_output = True
        self.connections: list[str] = []
        self.asked = 0
        self._is_offered = is_offered
        self._refusals = refusals

    async def register(self, hello: Hello) -> Welcome:
        self.connections.append(hello.resumes)
        requests = (CREDENTIAL,) if self._is_offered else ()
        return Welcome("w_1", lease_seconds=30, store_now=60 * SECOND, requests=requests)

    async def beat(self, beat: Beat) -> BeatAnswer:
        self.beaten.set()
        return BeatAnswer(alive=True, store_now=60 * SECOND)

    async def renew_credential(self) -> Credential:
        self.asked += 1
        if self.asked <= self._refusals:
            raise Refused("not now")
        return NEXT


class Kept:
    """A credential that is due at a time, in seconds of the store's clock."""

    def __init__(self, renew_at: int, *, failures: int = 0) -> None:
        self.renew_at = renew_at * SECOND
        self.kept: list[str] = []
        self._failures = failures

    def keep(self, credential: Credential, now: int) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError("no space left on device")
        self.kept.append(credential.token)
        self.renew_at = now + 3600 * SECOND


async def run(tmp_path: Path, link: RenewingLink, credential: Kept, connections: int) -> None:
    """Let a worker run until it has connected so often, and beaten."""
    spool = OutputSpool(tmp_path / "spool")
    spool.open()
    clock = ImpatientClock()

    async def connect() -> RenewingLink:
        return link

    session = WorkerSession(
        connect,
        Attempts(clock, spool),
        Hello("worker", "default", 1),
        NoGuard(),
        clock,
        credential=credential,
    )
    running = asyncio.ensure_future(session.run())
    await link.beaten.wait()
    await until(lambda: len(link.connections) >= connections)
    session.stop()
    await asyncio.wait_for(running, 10)


async def test_a_credential_that_is_due_is_renewed_and_shown_in_the_next_stream(
    tmp_path: Path,
) -> None:
    link, credential = RenewingLink(), Kept(renew_at=59)

    await run(tmp_path, link, credential, connections=2)

    assert credential.kept == ["the next"]
    assert link.connections == ["", "w_1"]
    assert link.asked == 1


async def test_what_was_not_given_or_not_kept_is_asked_for_again(tmp_path: Path) -> None:
    link, credential = RenewingLink(refusals=2), Kept(renew_at=59, failures=1)

    await run(tmp_path, link, credential, connections=2)

    assert link.asked == 4
    assert credential.kept == ["the next"]


@pytest.mark.parametrize(("renew_at", "is_offered"), [(3600, True), (59, False)])
async def test_what_is_not_due_or_not_offered_is_not_asked_for(
    tmp_path: Path, renew_at: int, is_offered: bool
) -> None:
    link, credential = RenewingLink(is_offered=is_offered), Kept(renew_at)

    await run(tmp_path, link, credential, connections=1)

    assert (link.asked, credential.kept, link.connections) == (0, [], [""])
