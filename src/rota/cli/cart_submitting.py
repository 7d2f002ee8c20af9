"""Handing in a cart: the plan first, then somebody's consent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from cyclopts import Parameter

from rota.cli import times
from rota.cli.cart_sources import CartSource, Wanted, find_source
from rota.cli.cart_views import plan_lines, write_planned
from rota.cli.cart_watching import watch
from rota.cli.durations import Duration
from rota.cli.exits import CommandFailed, Exit
from rota.cli.failures import counted
from rota.cli.inert import inert
from rota.cli.instants import Instant
from rota.cli.options import Destroying, Format, Remote
from rota.cli.printing import print_one
from rota.cli.terminal import MANY, Terminal
from rota.sdk.cart_answers import Cart, CartPlan
from rota.sdk.client import Client

CartOrFile = Annotated[
    str,
    Parameter(
        name="NAME|FILE",
        help="A cart that was applied, or a job file that has one; - is standard input.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Choices:
    """Which cart, with what, and when."""

    set: Annotated[
        tuple[str, ...],
        Parameter(metavar="NAME=VALUE", help="An input for every item, over its own; repeatable."),
    ] = ()
    cart: Annotated[
        str | None, Parameter(metavar="NAME", help="Which of several carts in the file.")
    ] = None
    at: Annotated[Instant | None, Parameter(help="Start not now but at this time.")] = None

    def wanted(self, cart: str, key: str | None = None) -> Wanted:
        inputs = dict(_pair(text) for text in self.set)
        return Wanted(cart, self.cart, inputs, self.at, key)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Submission(Choices):
    """And how to stay for it."""

    key: Annotated[
        str | None,
        Parameter(metavar="KEY", help="Idempotency key: the same key again gives the same cart."),
    ] = None
    watch: Annotated[
        bool, Parameter(name=["--watch", "-w"], help="Follow the cart until it ends or pauses.")
    ] = False
    timeout: Annotated[
        Duration | None, Parameter(help="With --watch: stop watching after this time (30s, 5m).")
    ] = None


AS_WRITTEN = Choices()
NOW = Submission()


def show_plan(cart: str, choices: Choices, remote: Remote) -> Exit:
    """Say what submitting would do."""
    source = find_source(choices.wanted(cart), remote.project)
    with replace(remote, project=source.project).connect() as client:
        planned = source.plan(client)
    print_one(remote, planned, name=lambda plan: plan.name, page=write_planned)
    return Exit.DONE


def submit_cart(cart: str, choices: Submission, options: Destroying) -> Exit:
    """Plan, ask, submit and, where asked, watch."""
    source = find_source(choices.wanted(cart, choices.key), options.project)
    terminal = options.terminal()
    with replace(options, project=source.project).connect() as client:
        if source.note:
            terminal.tell(source.note)
        if options.dry_run:
            _tell_plan(terminal, source.plan(client).value)
            return Exit.DONE
        was_asked = _has_consent(terminal, client, source, options)
        submitted = source.submit(client)
        if choices.watch or (was_asked and _is_watched(choices, options)):
            terminal.tell(f"cart {submitted.value.id}")
            return watch(client, submitted.value.id, options, timeout=choices.timeout)
        page = partial(_write_submitted, server=client.server.url)
    print_one(options, submitted, name=lambda cart: cart.id, page=page)
    return Exit.DONE


def _is_watched(choices: Submission, options: Destroying) -> bool:
    """Whether somebody who has just said yes is shown what comes of it."""
    return choices.at is None and options.format in (Format.TABLE, Format.WIDE)


def _has_consent(
    terminal: Terminal, client: Client, source: CartSource, options: Destroying
) -> bool:
    """Whether a person was asked; a failure if one is needed and there is none."""
    plan = source.plan(client).value
    _tell_plan(terminal, plan)
    if options.yes or (not terminal.has_person and plan.items <= MANY):
        return False
    at = source.wanted.at
    question = "start now?" if at is None else f"start at {inert(at)}?"
    if not terminal.has_person:
        question = f"start {counted(plan.items, 'item')} of cart {inert(plan.name)}?"
    terminal.confirm(question, yes=False, otherwise="look with rota cart plan, then add --yes")
    return True


def _tell_plan(terminal: Terminal, plan: CartPlan) -> None:
    for line in plan_lines(plan):
        terminal.tell(line)


def _write_submitted(terminal: Terminal, cart: Cart, server: str) -> None:
    items = counted(cart.items, "item")
    terminal.write(f"cart {cart.id} {cart.state.lower()} · {inert(cart.name)} · {items}")
    if cart.starts_at is not None:
        terminal.tell(f"starts {times.moment(cart.starts_at, times.now())}")
    terminal.tell(f"rota cart watch {cart.id} · {server}{cart.url}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandFailed(
            f'--set "{text}" is not NAME=VALUE', code=Exit.USAGE, hint="--set version=16.3"
        )
    return name, value
