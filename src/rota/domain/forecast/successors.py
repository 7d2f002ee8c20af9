"""Runs that come because others end: intervals from completion, `after`, and carts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rota.domain.forecast.ahead import JobAhead, RunAhead
from rota.domain.forecast.due_lines import DueLine, LineProgress
from rota.domain.gates import after_key
from rota.domain.ids import CartId, JobId


@dataclass(frozen=True, slots=True)
class CartAhead:
    """What a cart still has to do."""

    id: CartId
    job: JobAhead  # of its items
    waves: Sequence[int]  # items that have no run yet, by wave, from the current one on
    window: int  # how many may be in flight
    wait: float = 0.0  # seconds between two waves
    open: int = 0  # items that have a run which is not final


@dataclass(frozen=True, slots=True)
class Sequels:
    """What is known beforehand about runs that follow others."""

    again: Mapping[JobId, Callable[[float], float | None]] = field(default_factory=dict)
    followers: Mapping[JobId, Sequence[JobAhead]] = field(default_factory=dict)
    lines: Mapping[JobId, DueLine] = field(
        default_factory=dict
    )  # of jobs with due times of their own
    carts: Sequence[CartAhead] = ()

    @property
    def are_any(self) -> bool:
        return bool(self.again or self.followers or self.lines or self.carts)


class Following:
    """Implements `Successors`; remembers how far carts are, and who still waits."""

    def __init__(self, sequels: Sequels) -> None:
        self._sequels = sequels
        self._lines = {job: LineProgress(line) for job, line in sequels.lines.items()}
        self._followed: dict[str, list[LineProgress]] = defaultdict(list)
        for job, line in sequels.lines.items():
            for upstream in line.upstreams:
                self._followed[upstream].append(self._lines[job])
        self._carts = {cart.id: _CartProgress(cart) for cart in sequels.carts}

    def follow(self, run: RunAhead) -> Sequence[RunAhead]:
        job = run.job
        found = [*self._after(run)]
        if job.cart is not None:
            found += self._carts[job.cart].follow(run) if job.cart in self._carts else ()
        elif (again := self._sequels.again.get(job.id)) and (due := again(run.end_at)) is not None:
            found += self._again(run, due)
        return found

    def left(self) -> Sequence[RunAhead]:
        return [run for line in self._lines.values() for run in line.left()]

    def _after(self, run: RunAhead) -> Iterator[RunAhead]:
        """Runs of the jobs that come after its own."""
        job, end = run.job, run.end_at
        yield from (_made(follower, end) for follower in self._sequels.followers.get(job.id, ()))
        upstream = after_key(job.project, job.name)
        for line in self._followed.get(upstream, ()):
            yield from line.complete(upstream, end)

    def _again(self, run: RunAhead, at: float) -> Iterable[RunAhead]:
        """The next one of its job."""
        following, line = _made(run.job, at), self._lines.get(run.job.id)
        return [following] if line is None else line.expect(following, since=run.due_at)


def first_items(cart: CartAhead, at: float) -> list[RunAhead]:
    """The items with which a cart goes on that has nothing open."""
    return [_made(cart.job, at) for _ in range(min(cart.window, cart.waves[0]))]


class _CartProgress:
    """The items of a cart: wave after wave, in each as many at once as may be."""

    def __init__(self, cart: CartAhead) -> None:
        self._cart = cart
        self._wave = 0
        self._released = cart.open or min(cart.window, cart.waves[0])  # and not started yet
        self._left = cart.waves[0] - (0 if cart.open else self._released)
        self._last_end = 0.0

    def follow(self, run: RunAhead) -> list[RunAhead]:
        """An item has started: the next one of its wave comes when it ends."""
        self._last_end = max(self._last_end, run.end_at)
        self._released -= 1
        if self._left > 0:
            self._left -= 1
            self._released += 1
            return [_made(self._cart.job, run.end_at)]
        return [] if self._released else self._next_wave()

    def _next_wave(self) -> list[RunAhead]:
        """All items of the wave have started, so that its end is known."""
        self._wave += 1
        if self._wave >= len(self._cart.waves):
            return []
        count = self._cart.waves[self._wave]
        self._released = min(self._cart.window, count)
        self._left = count - self._released
        opens_at = self._last_end + self._cart.wait
        return [_made(self._cart.job, opens_at) for _ in range(self._released)]


def _made(job: JobAhead, at: float) -> RunAhead:
    return RunAhead(job, at, at, job.durations.usual)
