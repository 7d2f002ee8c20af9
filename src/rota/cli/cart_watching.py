"""Watching of a cart until it ends or pauses, on a terminal or in a build's log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TextIO

from rota.api.carts import CartDetail, WatchedCart
from rota.cli import times
from rota.cli.cart_views import actions, standing, stranded_in_words, verdict
from rota.cli.options import Display, Format
from rota.cli.printing import print_data
from rota.cli.references import ask
from rota.cli.terminal import Exit, Screen, Terminal, bar, cut, inert, width_of
from rota.cli.watching import elapsed, progress_words, show_news
from rota.sdk.answers import RunningItem, TimeNews
from rota.sdk.client import Client
from rota.sdk.watching import CartNews

_STEPS = 20  # lines at most that progress alone is worth where nothing can be drawn over
_MOST_RUNNING = 10  # items that are shown
_WIDEST_KEY = 24  # cells


class ProgressDisplay:
    """Shows how a cart goes: drawn anew on a terminal, elsewhere a line with each step of it."""

    def __init__(self, terminal: Terminal, stream: TextIO) -> None:
        self._screen = Screen(terminal, stream)
        self._told: tuple[object, ...] = ()
        self._cart: CartDetail | None = None

    def take(self, news: CartNews) -> None:
        """Show the progress of the cart, if that is new, or the time that has passed."""
        if isinstance(news, TimeNews):
            self._draw(news.at)
            return
        self._cart = news
        if self._screen.is_live:
            self._draw(times.now())
        elif self._is_worth_a_line(news):
            self.write(progress_line(news, times.now()))
            for line in item_lines(news, times.now()):
                self.write(line)

    def end_line(self) -> None:
        """End what is drawn, and leave it as it is."""
        self._screen.keep()

    def write(self, line: str) -> None:
        self._screen.write(line)

    def _draw(self, present: datetime) -> None:
        if self._cart is not None and self._screen.is_live:
            lines = [progress_line(self._cart, present), *item_lines(self._cart, present)]
            self._screen.draw(lines)

    def settle(self) -> None:
        """Leave only the line of the cart, which nothing more happens to."""
        if self._cart is not None and self._screen.is_live:
            self._screen.draw([progress_line(self._cart, times.now())])
        self._screen.keep()

    def _is_worth_a_line(self, cart: CartDetail) -> bool:
        share = cart.done * _STEPS // max(cart.items, 1)
        # Of very many small waves not each is worth a line.
        place = cart.place if _waves(cart) <= _STEPS else ""
        stranded = tuple(item.key for item in cart.stranded)
        told = (cart.state, cart.reason, place, share, stranded)
        is_new, self._told = told != self._told, told
        return is_new


def item_lines(cart: CartDetail, present: datetime) -> list[str]:
    """Format the items that run, and those that wait for workers which are not there."""
    waiting = [f"  · {inert(stranded_in_words(item, present))}" for item in cart.stranded]
    return [*running_lines(cart, present), *waiting]


def running_lines(cart: CartDetail, present: datetime) -> list[str]:
    """Format items that run: `  ▶ db-007  Test  12 s  ███░░  45%  copying`."""
    items = cart.running[:_MOST_RUNNING] if isinstance(cart, WatchedCart) else ()
    names = [cut(inert(item.key), _WIDEST_KEY) for item in items]
    width = max(map(width_of, names), default=0)
    lines = [
        f"  ▶ {name}{' ' * (width - width_of(name))}  {_running(item, present)}".rstrip()
        for name, item in zip(names, items, strict=True)
    ]
    others = cart.open - cart.progress.waiting - len(items)
    return [*lines, f"    … and {others:,} more"] if lines and others > 0 else lines


def _running(item: RunningItem, present: datetime) -> str:
    note = item.note
    step = inert(note.step) if note and note.step else item.state.lower()
    since = note.step_started_at if note and note.step_started_at else item.started_at
    parts = [cut(step, _WIDEST_KEY), elapsed(since, present)]
    if item.progress is not None:
        parts.append(progress_words(item.progress))
    elif note is not None and note.last_line:
        parts.append(f"| {inert(note.last_line)}")
    return "  ".join(filter(None, parts))


def progress_line(cart: CartDetail, present: datetime) -> str:
    """Format `wave 4/13  ██░░…  106/1,000  ✔ 103  ✖ 3  ▶ 20  ETA 03:52 UTC`."""
    parts = [
        f"wave {cart.place.replace(' of ', '/')}" if cart.place else "",
        bar(cart.done / max(cart.items, 1)),
        f"{cart.done:,}/{cart.items:,}",
        f"✔ {cart.completed:,}",
        f"✖ {cart.failed:,}",
        f"▶ {cart.open - cart.progress.waiting:,}",
        f"{cart.progress.waiting:,} not started" if cart.progress.waiting else "",
        _ahead(cart, present),
    ]
    return "  ".join(part for part in parts if part)


def _ahead(cart: CartDetail, present: datetime) -> str:
    if cart.state != "RUNNING" or cart.reason:
        return inert(standing(cart))
    if cart.eta is None:
        return ""
    eta, zone = times.here(cart.eta), times.zone_mark(cart.eta)
    is_today = eta.date() == times.here(present).date()
    return f"ETA {eta:%H:%M} {zone}" if is_today else f"ETA {eta:%Y-%m-%d %H:%M} {zone}"


def _waves(cart: CartDetail) -> int:
    _, _, total = cart.place.partition(" of ")
    return int(total) if total.isdigit() else 0


def watch_cart(client: Client, cart: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Show a cart's progress until it ends or a person has to decide; return its exit code."""
    terminal = display.terminal()
    is_for_people = display.format in (Format.TABLE, Format.WIDE)
    is_data = display.format in (Format.JSON, Format.JSONL)
    progress = ProgressDisplay(terminal, terminal.out if is_for_people else terminal.err)
    seconds = None if timeout is None else timeout.total_seconds()
    news = client.follow_cart(cart, seconds)
    settled = show_news(news, progress, terminal, f"rota cart watch {cart}", is_data=is_data)
    if isinstance(settled, Exit):
        return settled
    assert isinstance(settled, CartDetail), "following hands out the settled cart as the last"
    progress.settle()
    if is_data:
        return exit_of_cart(settled)
    if not is_for_people:
        print_data(display, ask(client, Client.get_cart(cart)).data)
    _tell_end(terminal, progress, settled, client.address_of_cart(cart))
    return exit_of_cart(settled)


def exit_of_cart(cart: CartDetail) -> Exit:
    """Return the exit code of a cart that has ended or is paused."""
    if cart.state == "PAUSED":
        return Exit.CART_PAUSED
    if cart.failed_too_often:
        return Exit.RUN_FAILED
    return Exit.RUN_STOPPED if cart.was_stopped else Exit.DONE


def _tell_end(
    terminal: Terminal, progress: ProgressDisplay, cart: CartDetail, address: str
) -> None:
    progress.write(f"{verdict(terminal, cart)} · {address}")
    if cart.state == "PARTIAL" and not cart.has_failed:
        terminal.tell(f"{cart.failed:,} of {cart.items:,} items failed, within what is allowed")
    for action in actions(cart):
        terminal.tell(action)
