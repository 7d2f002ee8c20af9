"""What people do to carts, judged under the cart's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.adapters.store.rows import cart_from, to_json
from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.carts.advancing import hold_runs, pause
from rota.adapters.store.scripts.carts.book import Book, facts_of, open_book
from rota.adapters.store.scripts.carts.loading import refuse_second
from rota.adapters.store.scripts.effects import Effects, record
from rota.adapters.store.scripts.queueing import ask_to_stop
from rota.domain.carts import commands
from rota.domain.carts.states import CANCELLING, CartState, ItemState, PauseReason
from rota.domain.errors import Conflict, NotFound
from rota.domain.gates import cart_key
from rota.domain.ids import CartId
from rota.domain.states import RunState
from rota.ports.carts import (
    ApproveCart,
    CancelCart,
    Command,
    Commanded,
    EditCart,
    EditedItem,
    PauseCart,
    ResumeCart,
    RetryItems,
    Selection,
)

_MOST_NAMED = 100  # items beside one event


def command(now: int, cart: CartId, what: Command, actor: str) -> Script[Commanded]:
    """Do what was asked for, or raise why not."""
    book = yield from open_book(cart)
    effects = Effects(carts=True)
    concerned = yield from _obey(now, book, what, effects, actor)
    if concerned is not None:
        book.version += 1
    yield book.save()
    wakes = yield from effects.conclude()
    [row] = yield query("carts_to_change", ids=[cart])
    return Commanded(cart_from(row), wakes, concerned is not None, concerned or 0)


def _obey(now: int, book: Book, what: Command, effects: Effects, actor: str) -> Script[int | None]:
    """How many items it concerned; None: it was so already."""
    match what:
        case PauseCart():
            return (yield from _pause(now, book, effects, actor))
        case ResumeCart():
            return (yield from _resume(now, book, what, effects, actor))
        case CancelCart():
            return (yield from _cancel(now, book, what, effects, actor))
        case ApproveCart():
            return (yield from _approve(now, book, what, actor))
        case RetryItems(selection):
            return (yield from _retry(now, book, selection, actor))
        case EditCart():
            return (yield from _edit(now, book, what, actor))


def _pause(now: int, book: Book, effects: Effects, actor: str) -> Script[int | None]:
    if not commands.pause((yield from facts_of(book))):
        return None
    yield from pause(now, book, PauseReason.PERSON, effects, actor=actor)
    return 0


def _resume(
    now: int, book: Book, what: ResumeCart, effects: Effects, actor: str
) -> Script[int | None]:
    if what.allow is not None:
        failures = replace(book.rules.failures, allow=what.allow)
        book.rules = replace(book.rules, failures=failures)
        book.breach_wave = None
    facts = yield from facts_of(book)
    state = commands.resume(facts)
    if facts.check is not None and facts.check.state is not RunState.COMPLETED:
        book.check_run = None
    book.state, book.reason, book.look_at = state, "", now
    released = yield query("let_runs_of_cart_go", key=cart_key(book.id), now=now)
    effects.times |= bool(released)
    told = {} if what.allow is None else {"allow": str(what.allow)}
    yield record("cart.resumed", now, [book.id], actor=actor, **told)
    return 0


def _cancel(
    now: int, book: Book, what: CancelCart, effects: Effects, actor: str
) -> Script[int | None]:
    is_new = commands.cancel((yield from facts_of(book)))
    if is_new:
        book.ending, book.state, book.reason = CartState.CANCELLED, CartState.RUNNING, CANCELLING
        book.look_at = now
        yield from hold_runs(now, book, effects)  # nothing begins after the answer
        yield record("cart.cancelled", now, [book.id], actor=actor)
    if what.stops_running:
        rows = yield query("running_runs_of_cart", cart=book.id)
        yield from ask_to_stop(now, rows, effects, actor)
    return 0 if is_new else None


def _approve(now: int, book: Book, what: ApproveCart, actor: str) -> Script[int | None]:
    commands.approve((yield from facts_of(book)), what.by, book.created_by)
    book.approved_by, book.look_at = actor, now
    yield record("cart.approved", now, [book.id], actor=actor, wave=book.wave)
    return 0


def _retry(now: int, book: Book, selection: Selection, actor: str) -> Script[int | None]:
    rows = yield query(
        "items_to_retry",
        cart=book.id,
        states=[state.value for state in selection.states],
        from_wave=selection.from_wave or 0,
        any_key=int(selection.keys is None),
        keys=list(selection.keys or ()),
        cause=selection.cause,
    )
    facts = yield from facts_of(book)
    state = commands.retry(facts, len(rows))
    if facts.is_final:
        yield from refuse_second(book.project, book.name)
        book.current_wave, book.ended_at = 0, None
    yield Many("retry_item", [(row["job_id"], book.id, row["number"]) for row in rows])
    for row in rows:
        book.count(ItemState(row["state"]), -1)
    book.state, book.look_at, book.breach_wave = state, now, None
    book.reason = "" if facts.is_final else book.reason
    yield record("cart.retried", now, [book.id], actor=actor, items=len(rows))
    return len(rows)


def _edit(now: int, book: Book, what: EditCart, actor: str) -> Script[int | None]:
    if what.expected_version not in (None, book.version):
        raise Conflict(
            "the cart was changed meanwhile", code="changed_meanwhile", hint="look again"
        )
    facts = yield from facts_of(book)
    commands.edit(facts, facts.wave + 1)
    keys = [item.key for item in what.items]
    rows = yield query("items_by_key", cart=book.id, keys=keys)
    found = {row["key"]: row for row in rows}
    for item in what.items:
        if item.key not in found:
            raise NotFound(f'the cart has no item "{item.key}"', code="item_not_found")
        commands.edit(facts, found[item.key]["wave"])
        if found[item.key]["state"] != ItemState.PENDING:
            raise Conflict(f'the item "{item.key}" has ended', code="item_ended")
        if item.wave is not None:
            commands.edit(facts, item.wave)
    yield from _change_items(book, what.items, found)
    book.rules, book.look_at = what.rules, now
    rules = what.rules.to_document()
    yield record("cart.edited", now, [book.id], actor=actor, items=keys[:_MOST_NAMED], rules=rules)
    return len(what.items)


def _change_items(
    book: Book, items: Sequence[EditedItem], found: Mapping[str, Row]
) -> Script[None]:
    values = [_edited(book.id, item, found[item.key]) for item in items]
    yield Many("edit_item", values)
    book.count(ItemState.SKIPPED, sum(item.is_skipped for item in items))


def _edited(cart: CartId, item: EditedItem, row: Row) -> tuple[object, ...]:
    """Values for `edit_item`, in its order."""
    return (
        row["wave"] if item.wave is None else item.wave,
        row["inputs"] if item.inputs is None else to_json(item.inputs),
        ItemState.SKIPPED if item.is_skipped else ItemState.PENDING,
        cart,
        row["number"],
    )
