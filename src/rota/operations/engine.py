"""Engine: the ports of one deployment that operations are given, and what this process caches."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rota.domain.errors import Unavailable
from rota.domain.forecast.forecast import Forecast, Saturation, resource_of
from rota.domain.key_ring import KeyRing
from rota.domain.resources import Vector
from rota.domain.spec import DEFAULT_PROJECT
from rota.operations.specs import SpecCache
from rota.ports.blobs import Blobs
from rota.ports.external import Herald, NoHerald
from rota.ports.idle_workers import IdleWorkers, NobodyIdle
from rota.ports.provider import Provider
from rota.ports.queue import Queue
from rota.ports.store import Store

_KEPT_TIMES = 20  # as long as it took to make
_LONGEST_KEPT = 60.0  # seconds


@dataclass(slots=True)
class KeptForecast:
    """Cache of one forecast, renewed when it is old or does not look far enough.

    It is kept for a time that grows with what it cost: however many ask, and however many jobs
    there are, only a small part of a server's time goes into forecasts.
    """

    monotonic: Callable[[], float] = time.monotonic
    _latest: Forecast | None = None
    _ahead: timedelta = timedelta(0)
    _fresh_until: float = 0.0
    _slow_until: float = 0.0  # before that nobody in a hurry tries again
    _making: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get(
        self, ahead: timedelta, make: Callable[[timedelta], Awaitable[Forecast]]
    ) -> Forecast:
        async with self._making:
            if self._latest is not None and self._is_fresh(ahead):
                return self._latest
            began = self.monotonic()
            made = await make(ahead)
            ended = self.monotonic()
            fresh = min((ended - began) * _KEPT_TIMES, _LONGEST_KEPT)
            self._latest, self._ahead, self._fresh_until = made, ahead, ended + fresh
            asyncio.get_running_loop().call_later(fresh, self._forget, made)
            return made

    async def get_within(
        self,
        patience: timedelta,
        ahead: timedelta,
        make: Callable[[timedelta], Awaitable[Forecast]],
    ) -> Forecast | None:
        """Return a forecast within `patience`; None: it takes longer.

        After a timeout the thread goes on and its result is dropped: do not retry for a while.
        """
        if self.monotonic() < self._slow_until and not self._is_fresh(ahead):
            return None
        try:
            async with asyncio.timeout(patience.total_seconds()):
                return await self.get(ahead, make)
        except TimeoutError:
            self._slow_until = self.monotonic() + _LONGEST_KEPT
            return None

    @property
    def is_idle(self) -> bool:
        """Return whether it has no forecast, and nobody waits for one."""
        is_used = self._making.locked() or self.monotonic() < self._slow_until
        return self._latest is None and not is_used

    def _is_fresh(self, ahead: timedelta) -> bool:
        return self.monotonic() < self._fresh_until and ahead <= self._ahead

    def _forget(self, made: Forecast) -> None:
        """Drop a forecast that has expired: it is large."""
        if self._latest is made:
            self._latest = None


@dataclass(frozen=True, slots=True)
class _Shortage:
    resource: str
    begins_at: datetime
    ends_at: datetime


@dataclass(slots=True)
class ShortagesAhead:
    """Cache of the predicted shortages, small enough to keep until the next prediction."""

    _known: tuple[_Shortage, ...] = ()  # by their beginning

    def note(self, made_at: datetime, saturations: Iterable[Saturation]) -> None:
        """Replace the known saturations, which are in order."""
        self._known = tuple(_shortages(made_at, saturations))

    def seconds_ahead(self, now: datetime) -> dict[str, float]:
        """Return seconds until each resource runs out; 0 while it has."""
        found: dict[str, float] = {}
        for each in self._known:
            if each.ends_at > now:
                found.setdefault(each.resource, max((each.begins_at - now).total_seconds(), 0.0))
        return found


def _shortages(made_at: datetime, saturations: Iterable[Saturation]) -> Iterator[_Shortage]:
    for each in saturations:
        if resource := resource_of(each.what):
            begins_at, ends_at = (
                made_at + timedelta(seconds=at) for at in (each.begins_at, each.ends_at)
            )
            yield _Shortage(resource, begins_at, ends_at)


_CACHED_PIECES = 8  # of files, in the memory of a server
_INCOMING_AT_ONCE = 16  # files that come to a server at the same time, each with a piece in memory
_INCOMING_OF_ONE_PROJECT = 12


class OpenFiles:
    """Pieces of files that are read, and places for files that come: all that is in memory of them.

    Many files cost a server no more than a few.
    """

    def __init__(self) -> None:
        self._pieces: OrderedDict[str, bytes] = OrderedDict()
        self._reading: dict[str, asyncio.Lock] = {}
        self._incoming: Counter[str] = Counter()  # by project

    @contextmanager
    def place(self, project: str) -> Iterator[None]:
        """Take a place for a file that comes; `Unavailable` while all are taken.

        Whoever sends slowly keeps a place for long: no project has those of all others.
        """
        of_project = self._incoming[project]
        is_own = of_project >= _INCOMING_OF_ONE_PROJECT
        if is_own or self._incoming.total() >= _INCOMING_AT_ONCE:
            most = _INCOMING_OF_ONE_PROJECT if is_own else _INCOMING_AT_ONCE
            whose = " of a project" if is_own else ""
            raise Unavailable(
                f"this server takes in {most} files{whose} at a time, and as many are coming",
                code="too_many_uploads",
                hint="try again in a moment",
            )
        self._incoming[project] += 1
        try:
            yield
        finally:
            self._incoming[project] -= 1
            self._incoming += Counter()  # forgets projects that have none

    async def piece(self, blobs: Blobs, key: str) -> bytes:
        """Return a piece; whoever reads a file in small parts fetches each of its pieces once."""
        lock = self._reading.setdefault(key, asyncio.Lock())
        async with lock:
            if (found := self._pieces.get(key)) is None:
                found = self._pieces[key] = await blobs.get(key)
        if not lock.locked():
            self._reading.pop(key, None)
        if key in self._pieces:
            self._pieces.move_to_end(key)
        while len(self._pieces) > _CACHED_PIECES:
            self._pieces.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class Pools:
    """Settings about pools."""

    # The most that one run may ask of its worker, by pool; a pool that is missing takes any.
    largest: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Logins:
    """How people log in."""

    provider: Provider | None = None  # None: with a token or a link only
    lifetime: timedelta = timedelta(hours=12)  # of a browser's session, whatever happens
    idle: timedelta = timedelta(hours=2)  # after which it ends if nobody uses it


@dataclass(frozen=True, slots=True)
class Outside:
    """How other systems are told of runs, and where they report."""

    herald: Herald = field(default_factory=NoHerald)
    site: str = ""  # address of this installation; "": only paths are known

    def report_url(self, run: str, project: str) -> str:
        """Return where to report on a run."""
        query = "" if project == DEFAULT_PROJECT else f"?project={project}"
        return f"{self.site}/api/v1/runs/{run}{query}"


@dataclass(frozen=True, slots=True)
class ForecastCaches:
    """Caches of what this process knows of the time ahead."""

    forecast: KeptForecast = field(default_factory=KeptForecast)  # the latest that was asked for
    shortages: ShortagesAhead = field(default_factory=ShortagesAhead)  # of the latest prediction
    groups: dict[frozenset[str], KeptForecast] = field(default_factory=dict)  # by their projects

    def of_group(self, projects: frozenset[str]) -> KeptForecast:
        """Return the cache of the forecasts of these projects alone."""
        if projects not in self.groups:
            for idle in [key for key, kept in self.groups.items() if kept.is_idle]:
                del self.groups[idle]
            self.groups[projects] = KeptForecast(self.forecast.monotonic)
        return self.groups[projects]


@dataclass(frozen=True, slots=True)
class Engine:
    """Ports and caches of one deployment, as one process uses them."""

    store: Store
    queue: Queue
    blobs: Blobs
    idle_workers: IdleWorkers = field(default_factory=NobodyIdle)  # of this process
    specs: SpecCache = field(default_factory=SpecCache)  # of jobs, read from this store
    files: OpenFiles = field(default_factory=OpenFiles)
    pools: Pools = field(default_factory=Pools)
    ahead: ForecastCaches = field(default_factory=ForecastCaches)
    logins: Logins = field(default_factory=Logins)
    outside: Outside = field(default_factory=Outside)
    key_ring: KeyRing | None = None  # None: nothing can be sealed
