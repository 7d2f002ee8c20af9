"""The verbs of `rota cart` for carts as files define them, and for undoing one."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from rota.cli import times
from rota.cli.asking import ask, ask_list
from rota.cli.cart_views import plan_lines
from rota.cli.failures import counted
from rota.cli.inert import inert
from rota.cli.options import DESTROYING, REMOTE, Destroying, Limit, Remote
from rota.cli.printing import ListView, print_list, print_one
from rota.cli.references import CartReference, find_cart
from rota.cli.table import Column
from rota.cli.terminal import Terminal
from rota.sdk import cart_template_calls
from rota.sdk.cart_answers import Cart
from rota.sdk.cart_template_answers import CartTemplate

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


def templates(*, limit: Limit = 100, remote: Remote = REMOTE) -> None:
    """List the carts that were applied, which rota cart submit starts by name."""
    with remote.connect() as client:
        listing = ask_list(client, cart_template_calls.list_cart_templates(), limit=limit)
    print_list(remote, listing, TEMPLATES)


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
            terminal.tell(inert(f"would delete the definition of cart {found.name}"))
            return
        question = f"delete the definition of cart {inert(found.name)}?"
        terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
        client.delete_cart_template(found.name, if_match=found.etag or None)
    terminal.tell(f"deleted the definition of cart {inert(found.name)}")


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
            return
        question = f"roll back {counted(plan.items, 'item')} of {found.id} ({inert(found.name)})?"
        terminal.confirm(question, yes=destroying.yes, otherwise="add --yes to do it")
        undoing = ask(client, cart_template_calls.rollback_cart(found.id))
    print_one(destroying, undoing, name=lambda cart: cart.id, page=_write_undoing)


def _write_undoing(terminal: Terminal, cart: Cart) -> None:
    items = counted(cart.items, "item")
    terminal.write(f"cart {cart.id} {cart.state.lower()} · {inert(cart.name)} · {items}")
    terminal.tell(f"rota cart watch {cart.id}")


VERBS = (templates, delete, rollback)
