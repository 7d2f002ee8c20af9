"""`rota cart`: roll a job out over many items, and see how far it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.api.carts import Cart, CartItem, CartTemplate
from rota.cli import cart_steering, times
from rota.cli.cart_submitting import (
    AS_WRITTEN,
    NOW,
    CartOrFile,
    Choices,
    Submission,
    show_plan,
    submit_cart,
)
from rota.cli.cart_views import CARTS, ITEMS, plan_lines, write_cart
from rota.cli.cart_watching import watch_cart
from rota.cli.events import EVENTS
from rota.cli.failures import counted
from rota.cli.options import (
    DESTROYING,
    EVERYBODY,
    REMOTE,
    AtMost,
    Destroying,
    Duration,
    Format,
    Remote,
    Whose,
)
from rota.cli.printing import Column, ListView, print_list, print_one
from rota.cli.references import CartReference, Listing, ask, ask_list, find_cart
from rota.cli.terminal import Exit, Rehearsed, Terminal, inert
from rota.sdk.client import Client

app = App(name="cart", help="Submit, watch, pause, retry … carts: ordered rollouts.")
app.command(cart_steering.app, name="*")  # its commands become those of this app

_FAILED = ("FAILED", "TIMED_OUT")


@app.command
def submit(
    cart: CartOrFile, /, *, choices: Submission = NOW, options: Destroying = DESTROYING
) -> Exit:
    """Start a cart; shows its plan and asks first.

    The items of a file are read here and sent to the server; jobs of the file are not applied.
    """
    return submit_cart(cart, choices, options)


@app.command
def plan(cart: CartOrFile, /, *, choices: Choices = AS_WRITTEN, remote: Remote = REMOTE) -> Exit:
    """Show the waves of a cart, how many may fail, and how long it would take."""
    return show_plan(cart, choices, remote)


@app.command(name="list")
def list_(
    *,
    where: Annotated[
        str | None, Parameter(help="A filter, such as 'state:running name:upgrade-*'.")
    ] = None,
    active: Annotated[bool, Parameter(help="Only carts that are not over.")] = False,
    state: Annotated[str | None, Parameter(help="Only carts in this state.")] = None,
    whose: Whose = EVERYBODY,
    limit: AtMost = 20,
    remote: Remote = REMOTE,
) -> None:
    """List carts, newest first."""
    call = Client.list_carts(
        where=where, active=active or None, state=state, created_by=whose.creator
    )
    with remote.connect() as client:
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, CARTS)


@app.command
def show(
    cart: CartReference,
    /,
    *,
    failed: Annotated[
        bool, Parameter(help="Also, or as data only, the items that failed.")
    ] = False,
    limit: Annotated[
        int, Parameter(help="With --failed: how many at most.", validator=Number(gte=1))
    ] = 50,
    remote: Remote = REMOTE,
) -> None:
    """Show a cart: how far it is, what it waits for, and why items failed."""
    with remote.connect() as client:
        found = find_cart(client, cart).id
        answered = ask(client, Client.get_cart(found))
        call = Client.list_cart_items(found, state=_FAILED)
        items = ask_list(client, call, limit=limit) if failed else None
    if items is None or remote.format in (Format.TABLE, Format.WIDE):
        print_one(
            remote,
            answered,
            name=lambda cart: cart.id,
            page=lambda terminal, cart: write_cart(terminal, cart, times.now()),
        )
    if items is not None:
        _print_failed(remote, items)


def _print_failed(remote: Remote, items: Listing[CartItem]) -> None:
    if remote.format in (Format.TABLE, Format.WIDE) and items.items:
        remote.terminal().write()
    print_list(remote, items, replace(ITEMS, empty="no item failed"))


@app.command
def watch(
    cart: CartReference,
    /,
    *,
    timeout: Annotated[
        Duration | None, Parameter(help="Stop watching after this time (30s, 5m).")
    ] = None,
    remote: Remote = REMOTE,
) -> Exit:
    """Follow a cart until it ends or pauses; the exit code says how."""
    with remote.connect() as client:
        return watch_cart(client, find_cart(client, cart).id, remote, timeout=timeout)


@app.command
def items(
    cart: CartReference,
    /,
    *,
    state: Annotated[
        tuple[str, ...], Parameter(metavar="STATE", help="Only items in this state; repeatable.")
    ] = (),
    wave: Annotated[int | None, Parameter(help="Only items of this wave.")] = None,
    cause: Annotated[
        str | None, Parameter(help="Only items that failed for this cause, or a part of its text.")
    ] = None,
    limit: AtMost = 100,
    remote: Remote = REMOTE,
) -> None:
    """List the items of a cart in their order."""
    with remote.connect() as client:
        found = find_cart(client, cart)
        call = Client.list_cart_items(
            found.id,
            state=[each.upper() for each in state] or None,
            wave=wave,
            cause=cause,
        )
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, ITEMS)


@app.command
def events(cart: CartReference, /, *, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List what happened to a cart and who did it, oldest first."""
    with remote.connect() as client:
        call = Client.get_cart_events(find_cart(client, cart).id)
        listing = ask_list(client, call, limit=limit)
    print_list(remote, listing, EVENTS)


TEMPLATES: ListView[CartTemplate] = ListView(
    columns=(
        Column("NAME", lambda template: template.name),
        Column("NEXT", lambda template: times.moment(template.next_at, times.now())),
        Column("DOES", lambda template: template.words or "cannot be read by this server"),
        Column("SET", lambda template: template.set_name, only_wide=True),
        Column("BY", lambda template: template.updated_by, only_wide=True),
    ),
    name=lambda template: template.name,
    empty="no carts are defined; define those of a job file with: rota apply FILE",
)


@app.command
def templates(*, limit: AtMost = 100, remote: Remote = REMOTE) -> None:
    """List the carts that were applied, which rota cart submit starts by name."""
    with remote.connect() as client:
        listing = ask_list(client, Client.list_cart_templates(), limit=limit)
    print_list(remote, listing, TEMPLATES)


@app.command
def delete(
    cart: Annotated[str, Parameter(name="NAME", help="A cart that was applied.")],
    /,
    *,
    destroying: Destroying = DESTROYING,
) -> None:
    """Delete the definition of a cart; what was submitted goes on."""
    terminal = destroying.terminal()
    with destroying.connect() as client:
        found = client.get_cart_template(cart)
        if destroying.dry_run:
            destroying.rehearse(f"would delete the definition of cart {found.name}")
        question = f"delete the definition of cart {inert(found.name)}?"
        terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
        client.delete_cart_template(found.name, if_match=found.etag or None)
    terminal.tell(f"deleted the definition of cart {inert(found.name)}")


@app.command
def rollback(cart: CartReference, /, *, destroying: Destroying = DESTROYING) -> None:
    """Undo what a stopped cart has done, by its rollback job, the last wave first."""
    terminal = destroying.terminal()
    with destroying.connect() as client:
        found = find_cart(client, cart)
        plan = client.plan_rollback(found.id)
        for line in plan_lines(plan):
            terminal.tell(line)
        if found.state == "PAUSED":
            terminal.tell(f"{found.id} is paused; this cancels it")
        if destroying.dry_run:
            raise Rehearsed(changes=plan.items > 0)
        question = f"roll back {counted(plan.items, 'item')} of {found.id} ({inert(found.name)})?"
        terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
        undoing = ask(client, Client.rollback_cart(found.id))
    print_one(destroying, undoing, name=lambda cart: cart.id, page=_write_undoing)


def _write_undoing(terminal: Terminal, cart: Cart) -> None:
    items = counted(cart.items, "item")
    terminal.write(f"cart {cart.id} {cart.state.lower()} · {inert(cart.name)} · {items}")
    terminal.tell(f"rota cart watch {cart.id}")
