"""How a worker reaches the cluster: in the same machine or across a network, the same verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rota.domain.errors import RotaError, codes_of
from rota.ports.work import (
    Beat,
    BeatAnswer,
    Hello,
    Order,
    Outcome,
    OutputChunk,
    Progress,
    ReportAnswer,
    Start,
    StartAnswer,
    Welcome,
)


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who a worker's credential says it is."""

    name: str
    pool: str | None  # the only one it may serve; None: any


class WorkerLink(Protocol):
    """One worker's connection. A broken connection is `Unavailable`; the worker connects anew.

    Requests are answered in any order; each waits at most a few seconds.
    """

    async def register(self, hello: Hello) -> Welcome: ...

    async def beat(self, beat: Beat) -> BeatAnswer: ...

    async def start(self, starts: Sequence[Start]) -> StartAnswer:
        """Make PROCESSING durable: before executing where delivery is at_most_once."""
        ...

    async def report(self, outcomes: Sequence[Outcome]) -> ReportAnswer: ...

    async def output(self, chunks: Sequence[OutputChunk]) -> ReportAnswer: ...

    async def progress(self, items: Sequence[Progress]) -> None:
        """A hint: may be lost."""
        ...

    async def receive(self) -> Order:
        """What the server sends next."""
        ...

    async def leave(self) -> None:
        """Say goodbye: the worker holds nothing any more."""
        ...

    async def close(self) -> None: ...


class WorkerDesk(Protocol):
    """The server's side of the same conversation, one method a verb."""

    async def register(self, hello: Hello) -> Welcome: ...

    async def beat(self, session: str, beat: Beat) -> BeatAnswer: ...

    async def start(self, session: str, starts: Sequence[Start]) -> StartAnswer: ...

    async def report(self, session: str, outcomes: Sequence[Outcome]) -> ReportAnswer: ...

    async def output(self, session: str, chunks: Sequence[OutputChunk]) -> ReportAnswer: ...

    async def progress(self, session: str, items: Sequence[Progress]) -> None: ...

    async def next_order(self, session: str, stream: int) -> Order:
        """What that connection of the session is sent next. `NotFound` once there is a newer."""
        ...

    async def leave(self, session: str) -> None: ...

    async def disconnected(self, session: str, stream: int) -> None:
        """That connection is gone; a newer one of the session is not touched."""
        ...


MAX_MESSAGE = 32 * 1024 * 1024  # bytes; a larger one ends the call

# Names of gRPC's status codes. A code that is not here has the status of its error's class.
RPC_STATUS: Mapping[str, str] = {
    "malformed": "INVALID_ARGUMENT",
    "bad_cursor": "INVALID_ARGUMENT",
    "unauthenticated": "UNAUTHENTICATED",
    "bad_credentials": "UNAUTHENTICATED",
    "denied": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "session_not_found": "ABORTED",  # by a newer stream of the same worker
    "conflict": "FAILED_PRECONDITION",
    "etag_mismatch": "ABORTED",
    "too_large": "RESOURCE_EXHAUSTED",
    "invalid": "INVALID_ARGUMENT",
    "internal": "INTERNAL",
    "unavailable": "UNAVAILABLE",
}


def rpc_status_of(error: RotaError) -> str:
    """The status of an error's own code, else that of its class."""
    codes = (code for code in codes_of(error) if code in RPC_STATUS)
    return RPC_STATUS[next(codes, "internal")]


def bearer_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The secret of `authorization: Bearer SECRET`; "" if there is none."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, secret = value.partition(" ")
            return secret.strip() if scheme.lower() == "bearer" else ""
    return ""
