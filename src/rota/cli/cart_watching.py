"""Watching a cart until it ends or pauses, on a terminal or in a log of a build."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from rota.cli.asking import ask
from rota.cli.cart_progress import ProgressDisplay
from rota.cli.cart_views import actions, verdict
from rota.cli.exits import Exit
from rota.cli.options import Display, Format
from rota.cli.printing import print_data
from rota.cli.terminal import Terminal
from rota.sdk import cart_calls
from rota.sdk.cart_answers import CartDetail
from rota.sdk.client import Client
from rota.sdk.following import AWAY, Outage, Pauses


def watch(client: Client, cart: str, display: Display, *, timeout: timedelta | None) -> Exit:
    """Show how far a cart is until a person has to decide or it ends; the exit code says how."""
    terminal = display.terminal()
    is_for_people = display.format in (Format.TABLE, Format.WIDE)
    progress = ProgressDisplay(terminal, terminal.out if is_for_people else terminal.err)
    try:
        settled = _follow(client, cart, progress, timeout)
    except KeyboardInterrupt:
        progress.end_line()
        terminal.tell(f"stopped watching; {cart} goes on · rota cart watch {cart}")
        return Exit.INTERRUPTED
    progress.end_line()
    if settled is None:
        terminal.tell(f"{cart} is still going · rota cart watch {cart}")
        return Exit.STILL_GOING
    if not is_for_people:
        print_data(display, ask(client, cart_calls.get_cart(cart)).data)
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


def _follow(
    client: Client, cart: str, progress: ProgressDisplay, timeout: timedelta | None
) -> CartDetail | None:
    """The cart once it is settled; None if the time was up first.

    Asks less and less often, also while it goes on: carts are long, and their watchers many.
    """
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    pauses, outage = Pauses(), Outage()
    while True:
        try:
            found = client.get_cart(cart)
            outage.end()
            progress.take(found)
            if found.is_settled:
                return found
        except AWAY as error:
            outage.bear(error)
        seconds = pauses.next_seconds()
        if end is not None:
            seconds = min(seconds, end - time.monotonic())
            if seconds <= 0:
                return None
        _pause(seconds)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
