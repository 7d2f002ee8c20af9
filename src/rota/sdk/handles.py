"""A run that was submitted, in the hands of whoever submitted it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from rota.sdk.answers import Batch, LogLine, LogWindow, Run, RunDetail
from rota.sdk.errors import RunNotCompleted

T = TypeVar("T")

Inputs = Mapping[str, object]


class RunClient(Protocol):
    """What jobs and handles need of a client."""

    def now(self) -> datetime: ...

    def address_of(self, run: str) -> str: ...

    def trigger(
        self,
        job: str,
        inputs: Inputs | None = None,
        *,
        at: datetime | str | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> Run: ...

    def trigger_many(
        self, job: str, inputs: Sequence[Inputs], *, key: str | None = None
    ) -> Batch: ...

    def wait(self, run: str, timeout_seconds: float | None = None) -> RunDetail: ...

    def cancel_run(self, run: str) -> Run: ...

    def follow_log(self, run: str) -> Iterator[LogWindow | Run]: ...


class AsyncRunClient(Protocol):
    """The same for an event loop."""

    def now(self) -> datetime: ...

    def address_of(self, run: str) -> str: ...

    def trigger(
        self,
        job: str,
        inputs: Inputs | None = None,
        *,
        at: datetime | str | None = None,
        priority: int | None = None,
        key: str | None = None,
    ) -> Awaitable[Run]: ...

    def wait(self, run: str, timeout_seconds: float | None = None) -> Awaitable[RunDetail]: ...

    def cancel_run(self, run: str) -> Awaitable[Run]: ...

    def follow_log(self, run: str) -> AsyncIterator[LogWindow | Run]: ...


@dataclass(frozen=True, slots=True)
class RunResult(Generic[T]):
    """A run that has ended."""

    run: RunDetail
    read_output: Callable[[Any], T]

    @property
    def state(self) -> str:
        return self.run.state

    @property
    def output(self) -> T:
        """What the function returned; `RunNotCompleted` if it did not get so far."""
        if self.run.state != "COMPLETED":
            raise RunNotCompleted(self.run)
        return self.read_output(self.run.outputs)


@dataclass(frozen=True, slots=True)
class RunHandle(Generic[T]):
    id: str
    client: RunClient
    read_output: Callable[[Any], T]

    @property
    def url(self) -> str:
        return self.client.address_of(self.id)

    def wait(self, timeout: float | None = None) -> RunResult[T]:
        """The run once it has ended; a TimeoutError after so many seconds leaves it going."""
        return RunResult(self.client.wait(self.id, timeout), self.read_output)

    def cancel(self) -> None:
        self.client.cancel_run(self.id)

    def logs(self) -> Iterator[LogLine]:
        """Output as it comes, until the run has ended."""
        for part in self.client.follow_log(self.id):
            if isinstance(part, LogWindow):
                yield from part.lines


@dataclass(frozen=True, slots=True)
class AsyncRunHandle(Generic[T]):
    id: str
    client: AsyncRunClient
    read_output: Callable[[Any], T]

    @property
    def url(self) -> str:
        return self.client.address_of(self.id)

    async def wait(self, timeout: float | None = None) -> RunResult[T]:
        """The run once it has ended; a TimeoutError after so many seconds leaves it going."""
        return RunResult(await self.client.wait(self.id, timeout), self.read_output)

    async def cancel(self) -> None:
        await self.client.cancel_run(self.id)

    async def logs(self) -> AsyncIterator[LogLine]:
        """Output as it comes, until the run has ended."""
        async for part in self.client.follow_log(self.id):
            if isinstance(part, LogWindow):
                for line in part.lines:
                    yield line
