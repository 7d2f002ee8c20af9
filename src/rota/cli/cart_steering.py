"""Verbs of `rota cart` that change a submitted cart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rota.api.carts import Cart, CartDetail, CommandedCart
from rota.cli.cart_views import actions, standing
from rota.cli.failures import counted
from rota.cli.options import DESTROYING, WRITING, Destroying, Writing
from rota.cli.printing import print_one
from rota.cli.references import CartReference, ask, ask_list, find_cart
from rota.cli.terminal import MANY, CommandFailed, Exit, Terminal, inert
from rota.sdk.carts import Select
from rota.sdk.client import Client
from rota.sdk.exchange import Call

app = App()  # a part of `rota cart`

_Page = Callable[[Terminal, CommandedCart], None]
_FAILED = ("FAILED", "TIMED_OUT")


@app.command
def pause(cart: CartReference, /, *, writing: Writing = WRITING) -> None:
    """Start nothing more of a cart; what is running goes on to its end."""
    with writing.connect() as client:
        found = find_cart(client, cart)
        call = Client.pause_cart(found.id)
        _rehearse_call(writing, client, call, "pause")
        _steer(writing, client, call)


@app.command
def resume(
    cart: CartReference,
    /,
    *,
    allow: Annotated[
        str | None, Parameter(metavar="N|P%", help="Let so many items fail from now on.")
    ] = None,
    writing: Writing = WRITING,
) -> None:
    """Let a paused cart go on."""
    with writing.connect() as client:
        found = find_cart(client, cart)
        how = "" if allow is None else f", so that {allow} may fail"
        share = None if allow is None else _share(allow)
        call = Client.resume_cart(found.id, allow=share)
        _rehearse_call(writing, client, call, "resume", how)
        _steer(writing, client, call)


@app.command
def approve(
    cart: CartReference,
    /,
    *,
    wave: Annotated[
        int | None,
        Parameter(metavar="K", validator=Number(gte=1), help="Only if this is the wave to come."),
    ] = None,
    writing: Writing = WRITING,
) -> None:
    """Let the next wave of a cart begin; somebody else than its submitter has to."""
    with writing.connect() as client:
        found = find_cart(client, cart)
        if wave is None and found.gate is not None:
            wave = found.gate.wave
        name = "the next wave" if wave is None else f"wave {wave}"
        call = Client.approve_cart(found.id, wave=wave)
        _rehearse_call(writing, client, call, f"approve {name} of")
        _steer(writing, client, call, partial(_write_approved, wave=name))


@app.command
def cancel(
    cart: CartReference,
    /,
    *,
    let_running_finish: Annotated[
        bool, Parameter(help="Let what is running go on to its end.")
    ] = False,
    destroying: Destroying = DESTROYING,
) -> None:
    """End a cart early; items that never started are skipped."""
    with destroying.connect() as client:
        found = find_cart(client, cart)
        left = found.pending + found.open
        running = "goes on to its end" if let_running_finish else "is stopped"
        how = f": {counted(left, 'item')} not ended, what runs {running}"
        call = Client.cancel_cart(found.id, running="finish" if let_running_finish else "stop")
        _rehearse_call(destroying, client, call, "cancel", how)
        if left > MANY:
            question = f"cancel {found.id} with {left:,} items that have not ended?"
            destroying.terminal().confirm(
                question, yes=destroying.yes, otherwise="add --yes to do it"
            )
        _steer(destroying, client, call)


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of items; all conditions must hold."""

    failed: Annotated[bool, Parameter(help="Items that failed or timed out.")] = False
    skipped: Annotated[
        bool,
        Parameter(help="All that did not complete: also cancelled and never started ones."),
    ] = False
    from_wave: Annotated[
        int | None,
        Parameter(metavar="K", validator=Number(gte=1), help="Items of this wave and later ones."),
    ] = None
    item: Annotated[
        tuple[str, ...], Parameter(metavar="KEY", help="Items with these keys; repeatable.")
    ] = ()
    cause: Annotated[
        str | None, Parameter(help="Items that failed for this cause, or a part of its text.")
    ] = None

    @property
    def select(self) -> Select:
        """Return the selection; chosen items and waves are of any state, unless one is given."""
        if self.skipped:
            return "failed+skipped"
        if self.failed or self.cause is not None:
            return "failed"
        if self.from_wave is None and not self.item:
            hint = "--failed, --skipped, --from-wave K, --item KEY or --cause TEXT"
            raise CommandFailed("say which items are to run again", code=Exit.USAGE, hint=hint)
        return "all"

    @property
    def in_words(self) -> str:
        parts = [] if self.select == "all" else [self.select.replace("+", ", cancelled, ")]
        parts += [f"from wave {self.from_wave}"] if self.from_wave is not None else []
        parts += [f"key {key}" for key in self.item]
        return ", ".join([*parts, *([f"cause {self.cause}"] if self.cause is not None else [])])


_NOTHING = Selection()


@app.command
def retry(
    cart: CartReference, /, *, selection: Selection = _NOTHING, destroying: Destroying = DESTROYING
) -> None:
    """Run items of a cart that have ended once more, in their waves."""
    select = selection.select
    with destroying.connect() as client:
        found = find_cart(client, cart)
        items = _count_at_most(client, found, selection)
        most = f"up to {counted(items, 'item')}" if items <= MANY else f"more than {MANY} items"
        what = f"retry {most} ({selection.in_words}) of"
        _rehearse(destroying, found, what, changes=items > 0)
        if items > MANY:
            question = f"run {most} of {found.id} once more?"
            destroying.terminal().confirm(
                question, yes=destroying.yes, otherwise="add --yes to do it"
            )
        call = Client.retry_cart(
            found.id,
            select,
            from_wave=selection.from_wave,
            keys=selection.item or None,
            cause=selection.cause,
        )
        _steer(destroying, client, call, _write_retried)


def _count_at_most(client: Client, cart: CartDetail, selection: Selection) -> int:
    """Count the items to run again, at most; of very many, more than `MANY`."""
    if selection.item:
        return len(selection.item)
    if selection.cause is not None:
        call = Client.list_cart_items(cart.id, state=_FAILED, cause=selection.cause)
        return len(ask_list(client, call, limit=MANY + 1).items)
    match selection.select:
        case "failed":
            return cart.failed
        case "failed+skipped":
            return cart.failed + cart.interrupted
        case _:
            return cart.done


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a cart."""

    max_parallel: Annotated[
        int | None,
        Parameter(metavar="N", validator=Number(gte=1), help="How many items at a time."),
    ] = None
    allow: Annotated[str | None, Parameter(metavar="N|P%", help="How many items may fail.")] = None
    skip: Annotated[
        tuple[str, ...],
        Parameter(metavar="KEY", help="Leave out an item whose wave is not open; repeatable."),
    ] = ()
    order: Annotated[
        tuple[str, ...],
        Parameter(metavar="KEY=N", help="Move such an item to another wave; repeatable."),
    ] = ()

    def items(self) -> list[dict[str, Any]]:
        skipped = [{"key": key, "skip": True} for key in self.skip]
        return [*skipped, *({"key": key, "order": n} for key, n in map(_moved, self.order))]

    @property
    def in_words(self) -> str:
        given = {"max-parallel": self.max_parallel, "allow": self.allow}
        parts = [f"{name} {value}" for name, value in given.items() if value is not None]
        parts += [f"skip {key}" for key in self.skip]
        return ", ".join([*parts, *(f"order {text}" for text in self.order)])


_AS_IT_IS = Changes()


@app.command
def edit(
    cart: CartReference, /, *, changes: Changes = _AS_IT_IS, writing: Writing = WRITING
) -> None:
    """Change a cart's limits, and items of waves that are not open yet."""
    if changes == _AS_IT_IS:
        hint = "--max-parallel N, --allow N|P%, --skip KEY or --order KEY=N"
        raise CommandFailed("say what is to be different", code=Exit.USAGE, hint=hint)
    with writing.connect() as client:
        found = find_cart(client, cart)
        _rehearse(writing, found, f"change ({changes.in_words})")
        call = Client.edit_cart(
            found.id,
            max_parallel=changes.max_parallel,
            failures=None if changes.allow is None else {"allow": _share(changes.allow)},
            items=changes.items() or None,
            if_match=str(found.version),
        )
        _steer(writing, client, call, _write_edited)


def _rehearse(
    writing: Writing, cart: Cart, what: str, how: str = "", *, changes: bool = True
) -> None:
    """With `--dry-run`, end the command here with what it would do."""
    if writing.dry_run:
        would = f"would {what} {cart.id} ({cart.name}), {cart.state.lower()} now{how}"
        writing.rehearse(would, changes=changes)


def _rehearse_call(
    writing: Writing, client: Client, call: Call[CommandedCart], what: str, how: str = ""
) -> None:
    """With `--dry-run`, ask the server what this call would do, and end the command here."""
    if not writing.dry_run:
        return
    cart = client.send(call.with_query(plan=True))
    if not cart.changed:
        writing.rehearse(f"nothing to do: {cart.id} is {standing(cart)} already", changes=False)
    _rehearse(writing, cart, what, how)


def _write_state(terminal: Terminal, cart: CommandedCart) -> None:
    terminal.tell(f"{cart.id} is {inert(standing(cart))}{' now' if cart.changed else ' already'}")
    for action in actions(cart):
        terminal.tell(action)


def _write_approved(terminal: Terminal, cart: CommandedCart, wave: str) -> None:
    terminal.tell(f"{wave} approved by {inert(cart.approved_by)} · rota cart watch {cart.id}")


def _steer(
    writing: Writing, client: Client, call: Call[CommandedCart], page: _Page = _write_state
) -> None:
    print_one(writing, ask(client, call), name=lambda cart: cart.id, page=page)


def _write_retried(terminal: Terminal, cart: CommandedCart) -> None:
    waves = "its wave" if cart.affected == 1 else "their waves"
    terminal.tell(f"{counted(cart.affected, 'item')} queued in {waves}")
    if cart.state == "PAUSED":
        terminal.tell(f"nothing starts while it is paused · rota cart resume {cart.id}")
    else:
        terminal.tell(f"rota cart watch {cart.id}")


def _write_edited(terminal: Terminal, cart: CommandedCart) -> None:
    items = f", {counted(cart.affected, 'item')} changed" if cart.affected else ""
    terminal.tell(f"{cart.id} is changed{items}" if cart.changed else f"{cart.id} was so already")


def _share(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _moved(text: str) -> tuple[str, int]:
    key, _, number = text.rpartition("=")
    if not key or not number.isdecimal():
        raise CommandFailed(
            f'--order "{text}" is not KEY=N', code=Exit.USAGE, hint="--order db-002=20"
        )
    return key, int(number)
