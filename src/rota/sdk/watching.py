"""Watching a run or a cart: all that happens to it, as it happens, from one stream.

Nothing is asked again and again. Where the stream breaks off, it goes on at any server with what
was not told yet; where none can be had, the run or cart is asked for once in a while, so that its
end is told in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias, TypeVar

from rota.api.carts import CartDetail, WatchedCart
from rota.api.output import LinesNews
from rota.api.runs import Attempt, ProgressNews, Run, RunDetail, StepNews, TimeNews
from rota.sdk.carts import get_cart
from rota.sdk.errors import NotFound
from rota.sdk.events import ServerEvent
from rota.sdk.exchange import Call, get, live, path_of, read_as
from rota.sdk.following import AWAY, Deadline, Outage, Pauses, Settling
from rota.sdk.runs import get_run
from rota.sdk.verbs import Flow, Following, Hand, Pause, ask, next_event

N = TypeVar("N")
N_co = TypeVar("N_co", covariant=True)
E = TypeVar("E", bound=Settling)

# A run tells that it stands in another way. The last one is a `RunDetail`, of which others come
# only where no stream gets through.
RunNews: TypeAlias = Run | StepNews | ProgressNews | LinesNews | Attempt | TimeNews | RunDetail
CartNews: TypeAlias = CartDetail | TimeNews


def follow_run(
    run: str, timeout_seconds: float | None = None, *, lines: int | None = None
) -> Flow[RunNews, RunDetail]:
    """Yield all that happens to a run, from its latest attempt on, until it is settled.

    That is: the run whenever it stands in another way; each step that begins or ends; progress; the
    newest lines of its output, at most so many at once; each attempt that ended; the server's time
    every second; and at the end the run with its attempts. It goes on by itself where the
    connection broke off. A `TimeoutError` leaves the run going.
    """
    watch = _RunWatch(run, lines)
    return (yield from _follow(watch, get_run(run), Deadline(timeout_seconds)))


def follow_cart(cart: str, timeout_seconds: float | None = None) -> Flow[CartNews, CartDetail]:
    """Yield the cart whenever it stands in another way, and the server's time every second.

    It is a `WatchedCart`, with some of its items that run. The last one has ended, or is paused. It
    goes on by itself where the connection broke off. A `TimeoutError` leaves the cart going.
    """
    watch = _CartWatch(cart)
    return (yield from _follow(watch, get_cart(cart), Deadline(timeout_seconds)))


def _follow(watch: _Watch[N, E], look: Call[E], deadline: Deadline) -> Flow[N | E, E]:
    pauses, outage = Pauses(), Outage()
    while True:
        has_told = False
        try:
            # Whatever has no streams, such as a proxy, answers that there is nothing.
            with suppress(NotFound):
                stream = watch.stream()
                while (event := (yield from next_event(stream))) is not None:
                    has_told = True
                    outage.end()
                    pauses.restart()
                    for news in watch.take(event):
                        yield Hand(news)
                    if watch.end is not None:
                        return watch.end
                    deadline.check(watch.standing)
        except AWAY as error:
            outage.bear(error)
        if not has_told:
            try:
                found = yield from ask(look)
            except AWAY as error:
                outage.bear(error)
            else:
                outage.end()
                watch.state = found.state
                yield Hand(found)
                if found.is_settled:
                    return found
        deadline.check(watch.standing)
        yield Pause(max(deadline.cut(pauses.next_seconds()), 0))


class WatchingVerbs:
    follow_cart = Following(follow_cart)
    follow_run = Following(follow_run)


class _Watch(Protocol[N_co, E]):
    """State of a watch: what was told of a thing, and where to go on."""

    end: E | None  # it when nothing more was to come
    state: str

    @property
    def standing(self) -> str: ...

    def stream(self) -> Call[bytes]: ...

    def take(self, event: ServerEvent) -> Sequence[N_co]:
        """Return the news of an event, unless it was told before the stream broke off."""
        ...


class _RunWatch:
    def __init__(self, run: str, lines: int | None) -> None:
        self.end: RunDetail | None = None
        self.state = "going"
        self._run = run
        self._lines = lines
        self._place = ""
        self._latest: Run | None = None
        self._steps: set[tuple[int, int, str]] = set()  # attempt, number, result

    @property
    def standing(self) -> str:
        return f"run {self._run} is still {self.state}"

    def stream(self) -> Call[bytes]:
        path = path_of("runs", self._run, "stream")
        return live(get(bytes, path, lines=self._lines), self._place)

    def take(self, event: ServerEvent) -> Sequence[RunNews]:
        self._place = event.id or self._place
        match event.name:
            case "run":
                return self._take_run(read_as(Run, event.data))
            case "step":
                return self._take_step(read_as(StepNews, event.data))
            case "progress":
                return [read_as(ProgressNews, event.data)]
            case "lines":
                return [read_as(LinesNews, event.data)]
            case "attempt":
                return [read_as(Attempt, event.data)]
            case "time":
                return [read_as(TimeNews, event.data)]
            case "end":
                self.end = read_as(RunDetail, event.data)
                return [self.end]
            case _:
                return []  # what a newer server tells besides

    def _take_run(self, run: Run) -> Sequence[RunNews]:
        is_new, self._latest, self.state = run != self._latest, run, run.state
        return [run] if is_new else []

    def _take_step(self, news: StepNews) -> Sequence[RunNews]:
        told = (news.attempt, news.number, news.step.result)
        is_new = told not in self._steps
        self._steps.add(told)
        return [news] if is_new else []


class _CartWatch:
    def __init__(self, cart: str) -> None:
        self.end: CartDetail | None = None
        self.state = "going"
        self._cart = cart

    @property
    def standing(self) -> str:
        return f"cart {self._cart} is still {self.state}"

    def stream(self) -> Call[bytes]:
        return live(get(bytes, path_of("carts", self._cart, "stream")))

    def take(self, event: ServerEvent) -> Sequence[CartNews]:
        match event.name:
            case "time":
                return [read_as(TimeNews, event.data)]
            case "cart" | "end":
                seen = read_as(WatchedCart, event.data)
                self.state = seen.state
                self.end = seen if event.name == "end" else None
                return [seen]
            case _:
                return []  # what a newer server tells besides
