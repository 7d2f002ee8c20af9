"""Values that the store takes and returns about forecasts and the order of service."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from rota.domain.carts.definition import CartRules
from rota.domain.carts.facts import CartState
from rota.domain.forecast.forecast import Outcome
from rota.domain.gates import ClosableJob
from rota.domain.ids import CartId, JobId, RunId, SessionId
from rota.domain.job import RunRules
from rota.domain.keys import Demands, Key
from rota.domain.order import Chain, QueuedChain
from rota.domain.policy import Bounds
from rota.domain.run import Trigger
from rota.domain.states import RunState


@dataclass(frozen=True, slots=True)
class ComingJob:
    """Job that starts by itself in the time ahead, or that others follow."""

    id: JobId
    project: str
    name: str
    version: int
    created_by: str
    document: Mapping[str, Any]
    rules: RunRules
    anchor: datetime
    next_at: datetime | None
    held_from: datetime | None  # where pause or disable caught its schedule
    paused_until: datetime | None  # when the pause ends by itself
    waits: bool  # its next due time depends on the end of its latest run
    created_at: datetime
    answered_to: datetime | None  # its latest due time that has an answer; None: none has
    bounds: Bounds | None = None  # what its project may ask for; None: anything


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is not final, as far as a forecast needs it."""

    id: RunId
    project: str
    job_id: JobId
    job: str
    state: RunState
    trigger: Trigger
    created_at: datetime
    due_at: datetime
    previous_due: datetime | None  # the due time before; None: there was none, or it is not by time
    release_at: datetime
    eligible_at: datetime | None
    began_at: datetime | None  # when its worker took it; None: none has
    session: SessionId | None  # None: no worker has it, or it is UNKNOWN
    blocked_on: str
    pool: str
    priority: int
    share: str
    shape: str
    expected: float  # seconds
    timeout: float | None
    deadline_at: datetime | None
    cart: CartId | None
    created_by: str  # who asked for it, or made the job that did
    keys: Mapping[str, int] = field(default_factory=dict)
    closable: ClosableJob | None = None  # of its job; None: deleted, and no gate closes it


@dataclass(frozen=True, slots=True)
class OpenCart:
    """A cart that goes on by itself, with the items that have no run yet."""

    id: CartId
    rules: CartRules
    state: CartState
    created_by: str
    starts_at: datetime | None  # None: it has started, or starts at once
    look_at: datetime | None  # when it may go on by itself; None: not by time alone
    open: int  # items whose run is not final
    job_id: JobId  # of an item of the next wave
    job_rules: RunRules
    waves: tuple[int, ...]  # items without a run, by wave


@dataclass(frozen=True, slots=True)
class TokensLeft:
    """Level of the bucket of a rate limit, and when it had that."""

    level: float
    at: datetime


@dataclass(frozen=True, slots=True)
class PredictedStart:
    run: RunId
    start_at: datetime


@dataclass(frozen=True, slots=True)
class PoolGroup:
    """Projects that share pools with one another, and with nobody else."""

    projects: frozenset[str]
    pools: frozenset[str]  # all that their jobs name; each was given to some of them


class ForecastStore(Protocol):
    """Part of `rota.ports.store.Store`. Reads take no locks; a forecast decides nothing.

    With `projects`, of which none is `default`, only what is theirs is read.
    """

    async def pool_group(self, project: str) -> PoolGroup | None:
        """Return the projects whose runs can keep workers from those of this one.

        None: it may be any, as it uses a pool that is for all, or none.
        """
        ...

    async def coming_jobs(
        self, before: datetime, limit: int, projects: Collection[str] | None = None
    ) -> list[ComingJob]:
        """List jobs that come by themselves before then, the next ones first."""
        ...

    async def open_runs(self, limit: int, projects: Collection[str] | None = None) -> list[OpenRun]:
        """List runs that are not final, the oldest first."""
        ...

    async def open_carts(
        self, limit: int, projects: Collection[str] | None = None
    ) -> list[OpenCart]:
        """List live carts, the oldest first; at most so many waves in all."""
        ...

    async def latest_durations(
        self, jobs: Collection[JobId], runs: int
    ) -> dict[JobId, list[float]]:
        """Return seconds that the latest completed runs of each job took; at most so many a job."""
        ...

    async def tokens_left(self, limit: int) -> dict[Key, TokensLeft]:
        """Return the tokens of the rate limits that were used last."""
        ...

    async def completions(
        self, limit: int, projects: Collection[str] | None = None
    ) -> dict[tuple[str, str], datetime]:
        """Return when followed jobs last completed, the latest first; by project and name."""
        ...

    async def save_predictions(self, starts: Sequence[PredictedStart]) -> None:
        """Store predictions; the first one of a run stays."""
        ...

    async def forget_predictions(self, before: datetime) -> None: ...

    async def predicted_starts(
        self, since: datetime, limit: int, projects: Collection[str] | None = None
    ) -> list[Outcome]:
        """List predictions since then of runs that have started, the newest first."""
        ...


@dataclass(frozen=True, slots=True)
class ShareWeight:
    """Weight of a share against others: 1 where nobody set one."""

    share: str  # a project, a user in it (project/user), or the key that jobs name
    weight: float
    updated_by: str
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ChainState:
    """State of a chain as the order of service sees it."""

    share: str
    priority: int
    tag: float  # F
    weight: float  # as it counts among the active chains of the pool
    is_active: bool


@dataclass(frozen=True, slots=True)
class Reserved:
    """Worker that is kept free for the best-ranked run that does not fit anywhere now."""

    run: RunId  # "": of a project that the caller does not see
    worker: str
    until: datetime  # it is prolonged while that run is the best
    project: str = ""  # of the run


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a waiting run, and all that decides who goes before it."""

    share: str
    shape: str
    cost: float  # what its chain will be charged for it, in pool-seconds, before weights
    chain: Chain  # its own, active or not
    chains: tuple[QueuedChain, ...]  # of its pool, those with runs
    in_chain: int  # runs that go before it in its own chain
    older: int  # queued runs of its pool that are older
    used: float  # the part of the pool that live attempts of its share take
    keys: Demands = field(default_factory=dict)
    blocked_on: str = ""  # the first key that it waits for; "": none
    before: int = 0  # runs that wait for the same and go before it
    reservation: Reserved | None = None  # of its pool


class ChainStore(Protocol):
    """Part of `rota.ports.store.Store`."""

    async def share_weights(self) -> list[ShareWeight]: ...

    async def set_share_weight(self, share: str, weight: float, *, actor: str) -> None: ...

    async def chains_of_pool(self, pool: str) -> list[ChainState]:
        """List the chains of a pool, as the next claim will see them."""
        ...

    async def place_of(self, run: RunId) -> Place | None:
        """Return the place of a run; None: it does not wait."""
        ...
