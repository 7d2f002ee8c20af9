"""Reports of the system that does the work of runs of type `external`.

    with ExternalRun.announced(message) as run:  # the body of the announcement
        run.update("processing", progress=0.4)
        run.update("completed", outputs={"build": 7})

It needs nothing but what the announcement has. Whoever is an operator has `client.external(run)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from rota.api.runs import Reported
from rota.sdk.errors import Invalid
from rota.sdk.exchange import Call, patch, path_of
from rota.sdk.verbs import Verb

if TYPE_CHECKING:
    from rota.sdk.client import AsyncClient, Client

State: TypeAlias = Literal["processing", "completed", "failed", "cancelled"]
_RUNS = "/api/v1/runs/"


def report_run(
    run: str,
    state: str,
    *,
    number: int | None = None,
    attempt: int | None = None,
    message: str = "",
    progress: float | Mapping[str, float] | None = None,
    outputs: Mapping[str, Any] | None = None,
    output: str = "",
) -> Call[Reported]:
    """Report how a run of type `external` stands: processing, completed, failed or cancelled.

    `progress` is from 0 to 1, or `{"done": 3, "total": 8}`; `output` is text for its log. The same
    `number` again is the same report; an older one raises `Conflict`.
    """
    given = {
        "number": number,
        "attempt": attempt,
        "message": message or None,
        "progress": progress,
        "outputs": outputs,
        "output": output or None,
    }
    said = {name: value for name, value in given.items() if value is not None}
    return patch(Reported, path_of("runs", run), {"state": state, **said})


class ExternalVerbs:
    report_run = Verb(report_run)


class _Numbers:
    """Numbers of reports, which grow also if the program that reports is restarted."""

    def __init__(self) -> None:
        self._last = 0

    def next(self, now: float) -> int:
        """Return the next one; `now` is in seconds."""
        self._last = max(self._last + 1, int(now * 1_000_000))
        return self._last


class ExternalRun:
    """Run that this program does, or knows the state of."""

    def __init__(self, client: Client, run: str, *, is_counted: bool = False) -> None:
        self.id = run
        self._client = client
        self._numbers = _Numbers() if is_counted else None

    @classmethod
    def announced(cls, message: Mapping[str, Any]) -> ExternalRun:
        """Return the run of an announcement, given as its body was, with a client of its own."""
        from rota.sdk.client import Client

        place = _Place(message)
        client = Client(place.server, place.token, project=place.project)
        return cls(client, place.run, is_counted=True)

    def update(
        self,
        state: State,
        *,
        message: str = "",
        progress: float | Mapping[str, float] | None = None,
        outputs: Mapping[str, Any] | None = None,
        output: str = "",
    ) -> Reported:
        """Report how it stands; `Conflict` if it has ended, or another attempt has begun."""
        return self._client.report_run(
            self.id,
            state,
            number=_number(self._numbers, self._client),
            message=message,
            progress=progress,
            outputs=outputs,
            output=output,
        )

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> ExternalRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncExternalRun:
    """`ExternalRun` for an event loop."""

    def __init__(self, client: AsyncClient, run: str, *, is_counted: bool = False) -> None:
        self.id = run
        self._client = client
        self._numbers = _Numbers() if is_counted else None

    @classmethod
    def announced(cls, message: Mapping[str, Any]) -> AsyncExternalRun:
        """Return the run of an announcement, given as its body was, with a client of its own."""
        from rota.sdk.client import AsyncClient

        place = _Place(message)
        client = AsyncClient(place.server, place.token, project=place.project)
        return cls(client, place.run, is_counted=True)

    async def update(
        self,
        state: State,
        *,
        message: str = "",
        progress: float | Mapping[str, float] | None = None,
        outputs: Mapping[str, Any] | None = None,
        output: str = "",
    ) -> Reported:
        """Report how it stands; `Conflict` if it has ended, or another attempt has begun."""
        return await self._client.report_run(
            self.id,
            state,
            number=_number(self._numbers, self._client),
            message=message,
            progress=progress,
            outputs=outputs,
            output=output,
        )

    async def close(self) -> None:
        await self._client.close()

    async def __aenter__(self) -> AsyncExternalRun:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _number(numbers: _Numbers | None, client: Client | AsyncClient) -> int | None:
    return None if numbers is None else numbers.next(client.now().timestamp())


class _Place:
    """Where an announcement says that reports go."""

    def __init__(self, message: Mapping[str, Any]) -> None:
        try:
            url, token = message["report"]["url"], message["report"]["token"]
            parts = urlsplit(url)
            before, _, run = parts.path.rpartition(_RUNS)
            if not (parts.scheme and parts.netloc and run and _RUNS in parts.path):
                raise ValueError(url)
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(
                "this is no announcement of a run: it has no report with url and token",
                hint="give the body of the announcement, decoded from JSON",
            ) from error
        self.server = f"{parts.scheme}://{parts.netloc}{before}"
        self.run = unquote(run)
        self.token = str(token)
        self.project = parse_qs(parts.query).get("project", [None])[0]
