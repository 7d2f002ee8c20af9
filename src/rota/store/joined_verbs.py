"""The part of the store port that many call at the same time: they are served together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeAlias, TypeVar

from rota.domain.errors import Conflict
from rota.domain.ids import instant
from rota.domain.job import Job
from rota.domain.run import Run
from rota.ports.records import (
    Idempotency,
    JobQuery,
    NewRun,
    RunQuery,
    Submitted,
    SubmittedRun,
    Token,
)
from rota.store.driving import Driver, Urgency
from rota.store.joining import AnswerAll, Joining
from rota.store.script import Script
from rota.store.scripts import glancing, reading, submitting, tokens
from rota.store.scripts.memory import Memory
from rota.store.scripts.rules import RulesBook

T = TypeVar("T")
U = TypeVar("U")
FoundToken: TypeAlias = tuple[Token, str, datetime]  # its kind, and when it was looked for
_SMALL = 10  # runs or jobs in one look
_MOST = 100  # calls that are served together


class JoinedVerbs:
    """Parts of `rota.ports.store.Store`."""

    def __init__(self, driver: Driver, book: RulesBook, memory: Memory) -> None:
        self._driver = driver
        self._book = book
        self._memory = memory
        self._submissions = Joining(self._submit_all, _MOST)
        self._jobs_by_id = Joining(self._look_together(glancing.jobs_by_id), _MOST)
        self._jobs_by_name = Joining(self._look_together(glancing.jobs_by_name), _MOST)
        self._runs_by_id = Joining(self._look_together(glancing.runs_by_id), _MOST)
        self._served_pools = Joining(self._look_together(glancing.served_pools), _MOST)
        self._found_tokens = Joining(self._find_token, _MOST)
        self._clock = Joining(self._look_at_clock, _MOST)

    async def submit(
        self, runs: Sequence[NewRun], idempotency: Idempotency | None = None
    ) -> Submitted:
        requests = [submitting.Request(runs, idempotency)]
        [answer] = await self._driver.write(
            lambda now: submitting.submit(now, requests, self._book, self._memory), Urgency.API
        )
        if isinstance(answer, Conflict):
            raise answer
        return answer

    async def submit_one(self, run: NewRun, idempotency: Idempotency | None = None) -> SubmittedRun:
        """With others of the same job, who would have to wait for the same gate anyway."""
        request = submitting.Request([run], idempotency)
        return await self._submissions.ask(run.job_id, request)

    async def jobs(self, query: JobQuery) -> list[Job]:
        if _is_small(query.ids):
            return await self._jobs_by_id.ask(query.project, query)
        if query.ids is None and _is_small(query.names):
            return await self._jobs_by_name.ask(query.project, query)
        return await self._driver.read(lambda _: reading.jobs(query))

    async def runs(self, query: RunQuery) -> list[Run]:
        if _is_small(query.ids):
            return await self._runs_by_id.ask(query.project, query)
        return await self._driver.read(lambda _: reading.runs(query))

    async def served_pools(self) -> frozenset[str]:
        return await self._served_pools.ask(None, None)

    async def now(self) -> datetime:
        return await self._clock.ask(None, None)

    async def close(self) -> None:
        """Whoever still waits hears that the store is closed."""
        await self._driver.close()
        await asyncio.gather(
            self._submissions.close(),
            self._jobs_by_id.close(),
            self._jobs_by_name.close(),
            self._runs_by_id.close(),
            self._served_pools.close(),
            self._found_tokens.close(),
            self._clock.close(),
        )

    async def _token(self, digest: str) -> FoundToken | None:
        return await self._found_tokens.ask(digest, digest)

    async def _submit_all(
        self, requests: Sequence[submitting.Request]
    ) -> list[SubmittedRun | Conflict]:
        book, memory = self._book, self._memory
        return await self._driver.write(
            lambda now: submitting.submit_and_show(now, requests, book, memory), Urgency.API
        )

    def _look_together(self, look: Callable[[Sequence[T]], Script[Sequence[U]]]) -> AnswerAll[T, U]:
        return lambda queries: self._driver.read(lambda _: look(queries))

    async def _find_token(self, digests: Sequence[str]) -> list[FoundToken | None]:
        """Once for all who show the same secret."""
        digest = digests[0]
        found = await self._driver.read(lambda now: tokens.find(now, digest), Urgency.GLANCE)
        return [found] * len(digests)

    async def _look_at_clock(self, callers: Sequence[None]) -> list[datetime]:
        def script(now: int) -> Script[datetime]:
            yield from ()
            return instant(now)

        return [await self._driver.read(script, Urgency.GLANCE)] * len(callers)


def _is_small(wanted: Sequence[str] | None) -> bool:
    """What is large would keep others waiting; what no store can hold would fail theirs."""
    return wanted is not None and len(wanted) <= _SMALL and all(map(str.isprintable, wanted))
