"""Watching a cart until it ends or pauses, on a terminal or in a log of a build."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TextIO

from rota.api.carts import CartDetail
from rota.cli import times
from rota.cli.asking import ask
from rota.cli.cart_views import actions, standing, verdict
from rota.cli.exits import Exit
from rota.cli.options import Display, Format
from rota.cli.printing import print_data
from rota.cli.terminal import (
    CLEAR_REST,
    TO_LINE_START,
    Terminal,
    bar,
    can_be_drawn_over,
    inert,
    width_of,
)
from rota.sdk.client import Client

_STEPS = 20  # lines at most that progress alone is worth where nothing can be drawn over


class ProgressDisplay:
    """Remembers what has been shown, so that only what is new is written."""

    def __init__(self, terminal: Terminal, stream: TextIO) -> None:
        self._terminal = terminal
        self._stream = stream
        self._is_live = can_be_drawn_over(stream)
        self._shown = ""
        self._told: tuple[object, ...] = ()

    def take(self, cart: CartDetail) -> None:
        """Show how far the cart is, if that is new."""
        line = progress_line(cart, times.now())
        if not self._is_live and self._is_worth_a_line(cart):
            self.write(line)
        if self._is_live and line != self._shown:
            self._draw(line)
        self._shown = line

    def end_line(self) -> None:
        """Leave the line that was drawn as it is."""
        if self._is_live and self._shown:
            self._stream.write("\n")
            self._stream.flush()
            self._shown = ""

    def write(self, line: str) -> None:
        self._stream.write(self._terminal.plain(line) + "\n")
        self._stream.flush()

    def _draw(self, line: str) -> None:
        text = self._terminal.plain(line)
        while self._terminal.width and width_of(text) >= self._terminal.width:
            text = text[:-1]
        self._stream.write(f"{TO_LINE_START}{text}{CLEAR_REST}")
        self._stream.flush()

    def _is_worth_a_line(self, cart: CartDetail) -> bool:
        share = cart.done * _STEPS // max(cart.items, 1)
        # Of very many small waves not each is worth a line.
        place = cart.place if _waves(cart) <= _STEPS else ""
        told = (cart.state, cart.reason, place, share)
        is_new, self._told = told != self._told, told
        return is_new


def progress_line(cart: CartDetail, present: datetime) -> str:
    """`group 4/13  ██░░…  106/1,000  ✔ 103  ✖ 3  ▶ 20  ETA 03:52 UTC`."""
    parts = [
        f"group {cart.place.replace(' of ', '/')}" if cart.place else "",
        bar(cart.done / max(cart.items, 1)),
        f"{cart.done:,}/{cart.items:,}",
        f"✔ {cart.completed:,}",
        f"✖ {cart.failed:,}",
        f"▶ {cart.open:,}",
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


def watch(client: Client, cart: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Show how far a cart is until a person has to decide or it ends; the exit code says how."""
    terminal = display.terminal()
    is_for_people = display.format in (Format.TABLE, Format.WIDE)
    progress = ProgressDisplay(terminal, terminal.out if is_for_people else terminal.err)
    seconds = None if timeout is None else timeout.total_seconds()
    settled: CartDetail | None = None
    try:
        for settled in client.follow_cart(cart, seconds):
            progress.take(settled)
    except KeyboardInterrupt:
        progress.end_line()
        terminal.tell(f"stopped watching; {cart} goes on · rota cart watch {cart}")
        return Exit.INTERRUPTED
    except TimeoutError:
        progress.end_line()
        terminal.tell(f"{cart} is still going · rota cart watch {cart}")
        return Exit.STILL_GOING
    assert settled is not None  # following hands out at least the cart that is settled
    progress.end_line()
    if not is_for_people:
        print_data(display, ask(client, Client.get_cart(cart)).data)
    _tell_end(terminal, progress, settled, client.address_of_cart(cart))
    return exit_of_cart(settled)


def exit_of_cart(cart: CartDetail) -> Exit:
    """Of one that has ended or is paused."""
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
