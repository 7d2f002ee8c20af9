"""Watching: all that happens to a run or a cart, as it happens, whichever server has its worker.

One look reads how it stands, and tells what is new since the look before, in the order in which it
happened. Between looks the watcher is woken by whoever has news: nobody asks again and again. As
hints may be lost, there is a look every few seconds all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from typing import Any

from rota.domain.carts.facts import FINAL_CART_STATES, CartState, ItemState
from rota.domain.run import Attempt, Note, Run, StepReport
from rota.domain.states import LEASED_STATES
from rota.domain.watching import Place, StepCourse, ToldStep
from rota.operations.carts import CartView, find_cart, view
from rota.operations.engine import Engine
from rota.operations.output import OutputReader, OutputWindow
from rota.operations.runs import find_run, is_settled
from rota.operations.why import see_run
from rota.ports.carts import Cart, ItemQuery
from rota.ports.queue import CARTS, EVENTS, WATCHED, Listener
from rota.ports.queue import output as output_topic
from rota.ports.records import RunQuery

MOST_LINES = 1_000  # that a look tells, unless fewer are wanted

_SLOW_POLL = timedelta(seconds=5)
_TICK = timedelta(seconds=1)  # how often the time is told
_LEAST_PAUSE = 0.2  # seconds between looks: hints come close together
_HELD_BACK = timedelta(seconds=2)  # how long the end of a step waits for its last lines
_LATE_OUTPUT = timedelta(seconds=5)  # and that of an attempt, for those still on its worker


@dataclass(frozen=True, slots=True)
class RunChanged:
    """The run stands in another way, or this is the first look."""

    run: Run


@dataclass(frozen=True, slots=True)
class StepChanged:
    attempt: int
    number: int
    step: StepReport


@dataclass(frozen=True, slots=True)
class ProgressMade:
    attempt: int
    progress: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LinesPrinted:
    attempt: int
    window: OutputWindow
    skipped: int  # lines before these that are passed over


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A second has passed, whatever else happened."""

    at: datetime  # by the store's clock, about


@dataclass(frozen=True, slots=True)
class RunSettled:
    """Nothing more happens by itself: the last news."""

    run: Run


News = (
    RunChanged | StepChanged | ProgressMade | LinesPrinted | AttemptEnded | TimePassed | RunSettled
)


@dataclass(frozen=True, slots=True)
class Told:
    """News, and the place from which a watcher who was told this goes on."""

    news: News
    place: Place


async def watch_run(
    engine: Engine, run: Run, place: Place | None = None, lines: int = MOST_LINES
) -> AsyncGenerator[Told, None]:
    """Tell what happens to a run, from a place on, until it is settled.

    Without a place it begins with the latest attempt, and how those before it ended. Of output that
    came since the last look, at most so many lines are told, the newest. The time is told every
    second.
    """
    watch = _RunWatch(engine, run, place, lines)
    pulse = await _Pulse.of(engine)
    # Events of all runs wake those who wait for a worker; the rest hears of its own run only.
    any_news = engine.queue.listen(output_topic(run.id), EVENTS)
    own_news = engine.queue.listen(output_topic(run.id))
    try:
        while True:
            engine.queue.announce(WATCHED, run.id)
            looked_at = pulse.seconds()
            async with aclosing(watch.look(looked_at)) as told:
                async for each in told:
                    yield each
            if watch.is_over:
                return
            # Here as well: news may come so fast that no wait lasts for a second.
            if (at := pulse.tick()) is not None:
                yield Told(TimePassed(at), watch.place)
            if not watch.wants_to_wait:
                continue
            listener = own_news if watch.is_going else any_news
            ticks = pulse.wait(listener, looked_at, watch.longest_pause)
            async with aclosing(ticks):
                async for at in ticks:
                    yield Told(TimePassed(at), watch.place)
    finally:
        own_news.close()
        any_news.close()


class _Pulse:
    """The store's time, asked for once, and the pauses between looks."""

    def __init__(self, now: datetime) -> None:
        self._loop = asyncio.get_running_loop()
        self._now, self._asked_at = now, self._loop.time()
        self._told_at = -inf

    @classmethod
    async def of(cls, engine: Engine) -> _Pulse:
        return cls(await engine.store.now())

    def seconds(self) -> float:
        return self._loop.time()

    def now(self) -> datetime:
        return self._now + timedelta(seconds=self.seconds() - self._asked_at)

    def tick(self) -> datetime | None:
        """Return the time, unless it was told less than a second ago."""
        if self.seconds() - self._told_at < _TICK.total_seconds():
            return None
        self._told_at = self.seconds()
        return self.now()

    async def wait(
        self, listener: Listener, looked_at: float, longest: timedelta, least: float = _LEAST_PAUSE
    ) -> AsyncGenerator[datetime, None]:
        """Wait for news, or a while; between two looks in any case. Yield the time meanwhile."""
        end = looked_at + longest.total_seconds()
        while (left := end - self.seconds()) > 0:
            if await listener.wait(min(_TICK, timedelta(seconds=left))):
                break
            if (at := self.tick()) is not None:
                yield at
        rest = looked_at + least - self.seconds()
        if rest > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await asyncio.Event().wait()


class _RunWatch:
    """State of a watch of a run: what its watcher was told."""

    def __init__(self, engine: Engine, run: Run, place: Place | None, lines: int) -> None:
        self.is_over = False
        self.is_going = False  # a worker has the run
        self.has_more = False  # to tell at once
        self._engine = engine
        self._id, self._project = run.id, run.project
        self._lines = lines
        self._shown: Run | None = None
        self._is_new = place is None  # nothing was told to whoever watches
        self._begin(place or Place(max(run.attempt, 1)))

    def _begin(self, place: Place) -> None:
        """Go on at a place, perhaps in another attempt."""
        self.place = place
        self._course = StepCourse(place.step)
        self._reader = OutputReader(self._engine, self._id, place.attempt)
        self._progress: Mapping[str, Any] | None = None
        self._silent_since: float | None = None  # while output is missing

    @property
    def wants_to_wait(self) -> bool:
        return not self.is_over and not self.has_more

    @property
    def longest_pause(self) -> timedelta:
        """Return when to look again at the latest."""
        return _SLOW_POLL if self._silent_since is None else _HELD_BACK

    async def look(self, now: float) -> AsyncGenerator[Told, None]:
        """Tell what is new; `now` is in seconds that only grow."""
        run = await find_run(self._engine, self._id, project=self._project)
        seen = await see_run(self._engine, run)
        if self._is_new:
            for earlier in await self._engine.store.attempts(self._id):
                if earlier.number < self.place.attempt:
                    yield Told(AttemptEnded(earlier), Place(earlier.number + 1))
        self._is_new = False
        if self._shown is None or replace(self._shown, progress=seen.progress) != seen:
            yield self._told(RunChanged(seen))
        self._shown = seen
        self.is_going, self.has_more = run.state in LEASED_STATES, False
        while self.place.attempt <= run.attempt and not self.has_more:
            number = self.place.attempt
            async with aclosing(self._look_at_attempt(run, now)) as told:
                async for each in told:
                    yield each
            if self.place.attempt == number:
                break
        if self.place.attempt > run.attempt and await is_settled(self._engine, run):
            self.is_over = True
            yield self._told(RunSettled(seen))

    def _told(self, news: News) -> Told:
        return Told(news, self.place)

    async def _look_at_attempt(self, run: Run, now: float) -> AsyncGenerator[Told, None]:
        """Tell what is new of the attempt at the place; move on if it has ended."""
        notes = await self._engine.store.notes([self._id]) if self.is_going else {}
        note = notes.get(self._id)
        if note is not None and note.attempt == self.place.attempt:
            self._course.learn_note(note.first_step, note.steps)
        # After the note: what it says was printed may be here by now.
        window = await self._reader.read(self.place.line, self._lines)
        ended = await self._ended(window, now)
        if ended is not None:
            self._course.learn_end(ended.steps)
        for each in self._tell_lines(window):
            yield each
        if window.next_line < window.total_lines:
            self.has_more = True
            return
        for each in self._tell_rest(run, window, now, has_ended=ended is not None):
            yield each
        if ended is not None:
            number = self.place.attempt
            self._begin(Place(number + 1))
            self.has_more = self.is_going and number == run.attempt  # the run was read before
            yield self._told(AttemptEnded(ended))

    async def _ended(self, window: OutputWindow, now: float) -> Attempt | None:
        """Return the attempt once it has ended and its output is here; None: not yet.

        What is still on its worker is waited for while more of it comes.
        """
        is_late = bool(window.pending_bytes) and not window.lines
        if not window.is_complete and not (is_late and self._is_silent(now, _LATE_OUTPUT)):
            return None
        attempts = await self._engine.store.attempts(self._id)
        return next(each for each in attempts if each.number == self.place.attempt)

    def _is_silent(self, now: float, patience: timedelta) -> bool:
        """Return whether output has been missing for so long."""
        if self._silent_since is None:
            self._silent_since = now
        return now - self._silent_since >= patience.total_seconds()

    def _tell_lines(self, window: OutputWindow) -> Iterator[Told]:
        """Tell lines, and steps between them."""
        lines, at = window.lines, 0
        if lines:
            self._silent_since = None
        while at < len(lines):
            first = lines[at]
            yield from self._tell_steps(self._course.before(first.number, first.record.step))
            stop = self._course.next_change(first.number)
            end = at + 1
            while (
                end < len(lines)
                and lines[end].number < stop
                and lines[end].record.step == first.record.step
            ):
                end += 1
            skipped = first.number - self.place.line
            part = replace(window, lines=lines[at:end], next_line=lines[end - 1].number + 1)
            self.place = replace(self.place, line=part.next_line)
            yield self._told(LinesPrinted(self.place.attempt, part, skipped))
            at = end

    def _tell_rest(
        self, run: Run, window: OutputWindow, now: float, *, has_ended: bool
    ) -> Iterator[Told]:
        """Tell what goes after the lines: steps that printed all they will, and progress."""
        yield from self._tell_steps(self._course.up_to(None if has_ended else self.place.line))
        if not self._course.has_untold:
            self._silent_since = None if not window.pending_bytes else self._silent_since
        elif self._is_silent(now, _HELD_BACK):
            yield from self._tell_steps(self._course.up_to(None))
        progress = run.progress if run.attempt == self.place.attempt else None
        if progress is not None and progress != self._progress:
            self._progress = progress
            yield self._told(ProgressMade(run.attempt, progress))

    def _tell_steps(self, steps: Iterable[ToldStep]) -> Iterator[Told]:
        for each in steps:
            self.place = replace(self.place, step=self._course.told)
            yield self._told(StepChanged(self.place.attempt, each.number, each.step))


_SHOWN_ITEMS = 10  # of a cart, that run
_LOOKED_AT_ITEMS = 200  # open ones, of which most may wait
_CART_POLL = timedelta(seconds=2)  # steps of its items wake nobody
_CART_PAUSE = 0.5  # seconds at least: items may end by the hundred


@dataclass(frozen=True, slots=True)
class RunningItem:
    """An item of a cart that a worker has."""

    key: str
    run: Run
    note: Note | None


@dataclass(frozen=True, slots=True)
class CartStands:
    """A cart as it stands, with some of the items that run."""

    view: CartView
    running: tuple[RunningItem, ...]

    @property
    def is_settled(self) -> bool:
        """Return whether nothing more happens by itself."""
        state = self.view.cart.state
        return state in FINAL_CART_STATES or state is CartState.PAUSED


async def watch_cart(engine: Engine, cart: Cart) -> AsyncGenerator[CartStands | TimePassed, None]:
    """Tell how a cart stands whenever that has changed, until it has ended or is paused."""
    pulse, shown = await _Pulse.of(engine), None
    listener = engine.queue.listen(CARTS)
    try:
        while True:
            looked_at = pulse.seconds()
            stands = await _cart_stands(engine, cart)
            if stands != shown:
                yield stands
            if stands.is_settled:
                return
            shown = stands
            if (at := pulse.tick()) is not None:
                yield TimePassed(at)
            ticks = pulse.wait(listener, looked_at, _CART_POLL, _CART_PAUSE)
            async with aclosing(ticks):
                async for at in ticks:
                    yield TimePassed(at)
    finally:
        listener.close()


async def _cart_stands(engine: Engine, cart: Cart) -> CartStands:
    found = await find_cart(engine, cart.id, project=cart.project)
    wanted = ItemQuery(cart.id, states=[ItemState.OPEN], limit=_LOOKED_AT_ITEMS)
    items = await engine.store.items(wanted) if found.open else []
    going = {item.run: item.key for item in items if item.run_state in LEASED_STATES and item.run}
    ids = list(going)[:_SHOWN_ITEMS]
    runs = await engine.store.runs(RunQuery(project=cart.project, ids=ids)) if ids else []
    notes = await engine.store.notes(ids) if ids else {}
    running = [RunningItem(going[run.id], run, notes.get(run.id)) for run in runs]
    running.sort(key=lambda item: ids.index(item.run.id))
    return CartStands(await view(engine, found), tuple(running))
