from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from rota.domain.errors import Unavailable
from rota.domain.ids import SessionId
from rota.store.sessions import Reaped, Reaping, Silent

pytestmark = pytest.mark.anyio

ONE, OTHER, BAD = (SessionId(f"w_{name}") for name in ("one", "other", "bad"))


class Sessions:
    """A store of which some sessions cannot end."""

    def __init__(self, *bad: SessionId) -> None:
        self.bad = set(bad)
        self.asked: list[set[SessionId]] = []
        self.is_reachable = True

    async def reap(self, silent: Silent) -> Reaped:
        self.asked.append(set(silent))
        if not self.is_reachable:
            raise Unavailable("the store cannot be used")
        if self.bad & silent.keys():
            raise ValueError("what is this?")
        return frozenset(silent)

    async def check(self) -> None:
        if not self.is_reachable:
            raise Unavailable("the store cannot be used")


async def test_sessions_end_together() -> None:
    sessions = Sessions()

    gone = await Reaping(sessions.reap, sessions.check).reap({ONE: 1, OTHER: None})

    assert gone == {ONE, OTHER}
    assert sessions.asked == [{ONE, OTHER}]


async def test_where_nobody_is_silent_nothing_is_asked() -> None:
    sessions = Sessions()

    await Reaping(sessions.reap, sessions.check).reap({})

    assert sessions.asked == []


async def test_one_that_cannot_end_holds_up_no_other() -> None:
    sessions = Sessions(BAD)

    gone = await Reaping(sessions.reap, sessions.check).reap({ONE: 1, BAD: 1, OTHER: 1})

    assert gone == {ONE, OTHER}


async def test_it_is_told_once() -> None:
    sessions = Sessions(BAD)
    reaping = Reaping(sessions.reap, sessions.check)

    with capture_logs() as logs:
        for _ in range(3):
            await reaping.reap({ONE: 1, BAD: 1})

    assert [(entry["event"], entry["session"]) for entry in logs] == [("session.cannot_end", BAD)]


async def test_an_outage_is_nobody_s_fault() -> None:
    sessions = Sessions()
    sessions.is_reachable = False

    with pytest.raises(Unavailable):
        await Reaping(sessions.reap, sessions.check).reap({ONE: 1, OTHER: 1})

    assert len(sessions.asked) == 1
