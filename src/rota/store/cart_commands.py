"""Commands of people to carts: they fill and submit them, and steer those that are live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.domain.carts import commands
from rota.domain.carts.facts import CANCELLING, CartFacts, CartState, ItemState, PauseReason
from rota.domain.carts.intake import NewItem
from rota.domain.errors import Conflict, NotFound, StaleTransition
from rota.domain.gates import cart_key
from rota.domain.ids import CartId, RunId, shard_of
from rota.domain.shape import WORKER
from rota.domain.states import WAITING_STATES, Cause, RunState
from rota.ports.carts import (
    ApproveCart,
    CancelCart,
    Command,
    Commanded,
    DueTemplate,
    EditCart,
    EditedItem,
    NewCart,
    PauseCart,
    ResumeCart,
    RetryItems,
)
from rota.ports.records import Idempotency
from rota.store.cart_views import moved, selected
from rota.store.carts import (
    LockedCart,
    block_runs,
    close_gate,
    count_wave,
    facts_of,
    locked_cart,
    pause,
)
from rota.store.gates import lock_gates_of
from rota.store.releases import release_jobs
from rota.store.rows import cart_from, optional_micros, to_json
from rota.store.script import Many, Row, Script, lock, query
from rota.store.submissions import first_answer
from rota.store.tx import Tx
from rota.store.waits import EndOfWait, ask_to_stop, end_waiting

_MOST_NAMED = 100  # items beside one event
_CHUNK = 2_000  # rows in one transaction


def command(tx: Tx, cart: CartId, command: Command, *, actor: str) -> Script[Commanded]:
    """Do what was asked for, or raise why not."""
    locked = yield from locked_cart(tx, cart)
    tx.effects.carts = True
    concerned = yield from _obey(tx, locked, command, actor)
    if concerned is not None:
        locked.version += 1
    yield locked.save()
    [row] = yield query("carts_to_change", ids=[cart])
    return Commanded(cart_from(row), concerned is not None, concerned or 0)


def _obey(tx: Tx, locked: LockedCart, what: Command, actor: str) -> Script[int | None]:
    """How many items it concerned; None: it was so already."""
    match what:
        case PauseCart():
            return (yield from _pause(tx, locked, actor))
        case ResumeCart():
            return (yield from _resume(tx, locked, what, actor))
        case CancelCart():
            return (yield from _cancel(tx, locked, what, actor))
        case ApproveCart():
            return (yield from _approve(tx, locked, what, actor))
        case RetryItems():
            return (yield from _retry(tx, locked, what, actor))
        case EditCart():
            return (yield from _edit(tx, locked, what, actor))


def _pause(tx: Tx, locked: LockedCart, actor: str) -> Script[int | None]:
    if not commands.pause((yield from facts_of(locked))):
        return None
    yield from pause(tx, locked, PauseReason.PERSON, actor=actor)
    return 0


def _resume(tx: Tx, locked: LockedCart, what: ResumeCart, actor: str) -> Script[int | None]:
    if what.allow is not None:
        failures = replace(locked.rules.failures, allow=what.allow)
        locked.rules = replace(locked.rules, failures=failures)
        locked.breach_wave = None
    facts = yield from facts_of(locked)
    state = commands.resume(facts)
    yield from _refuse_gone_jobs(locked)
    if commands.is_check_void(facts):
        locked.check_run = None
    locked.state, locked.reason, locked.look_at = state, "", tx.now
    released = yield query("let_runs_of_cart_go", key=cart_key(locked.id), now=tx.now)
    tx.effects.times |= bool(released)
    told = {} if what.allow is None else {"allow": str(what.allow)}
    tx.record_in(locked.project, "cart.resumed", [locked.id], actor=actor, **told)
    return 0


def _refuse_gone_jobs(locked: LockedCart) -> Script[None]:
    for row in (yield query("gone_jobs_of_items", cart=locked.id)):
        raise commands.job_deleted(locked.id, row["name"])


def _cancel(tx: Tx, locked: LockedCart, what: CancelCart, actor: str) -> Script[int | None]:
    _refuse_changed(locked, what.expected_version)
    is_new = commands.cancel((yield from facts_of(locked)))
    if is_new:
        locked.ending, locked.state, locked.reason = (
            CartState.CANCELLED,
            CartState.RUNNING,
            CANCELLING,
        )
        locked.look_at = tx.now
        yield from block_runs(tx, locked)  # nothing begins after the answer
        tx.record_in(locked.project, "cart.cancelled", [locked.id], actor=actor)
    if what.stops_running:
        rows = yield query("running_runs_of_cart", cart=locked.id)
        yield from ask_to_stop(tx, rows, actor)
    return 0 if is_new else None


def _approve(tx: Tx, locked: LockedCart, what: ApproveCart, actor: str) -> Script[int | None]:
    facts = yield from facts_of(locked)
    commands.approve(facts, what.by, locked.created_by, what.wave)
    locked.approved_by, locked.look_at = actor, tx.now
    tx.record_in(locked.project, "cart.approved", [locked.id], actor=actor, wave=facts.pending_wave)
    return 0


def _retry(tx: Tx, locked: LockedCart, what: RetryItems, actor: str) -> Script[int | None]:
    meant = selected(locked.id, what.selection)
    rows = yield query("count_to_retry", **meant)
    items: int = sum(row["count"] for row in rows)
    facts = yield from facts_of(locked)
    state = commands.retry(facts, items)
    if facts.is_final:
        yield from refuse_second(locked.project, locked.name)
        locked.current_wave, locked.ended_at = 0, None
    yield query("retry_items", **meant, versions=to_json(what.versions))
    for row in rows:
        locked.count(ItemState(row["state"]), -row["count"])
    yield from _put_back_later_waves(tx, locked)
    yield from count_wave(locked)
    locked.state, locked.look_at, locked.breach_wave = state, tx.now, None
    locked.reason = "" if facts.is_final else locked.reason
    tx.record_in(locked.project, "cart.retried", [locked.id], actor=actor, items=items)
    return items


def _put_back_later_waves(tx: Tx, locked: LockedCart) -> Script[None]:
    """Put back items of later waves that nobody has begun, until the retried ones have ended."""
    [first] = yield query("pending_wave", cart=locked.id)
    found = yield query("items_out_of_order", cart=locked.id, wave=first["wave"])
    if not found:
        return
    numbers = {row["id"]: row["number"] for row in found}
    gates = yield from lock_gates_of(numbers)
    rows = yield query("runs_to_change", ids=numbers.keys())
    runs = [RunId(r["id"]) for r in rows if r["state"] in WAITING_STATES and not r["attempt"]]
    yield from end_waiting(tx, runs, EndOfWait(RunState.SKIPPED, Cause.PUT_BACK))
    yield Many("put_back_item", [(locked.id, numbers[run]) for run in runs])
    yield from release_jobs(tx, gates)
    locked.open -= len(runs)


def _edit(tx: Tx, locked: LockedCart, what: EditCart, actor: str) -> Script[int | None]:
    _refuse_changed(locked, what.expected_version)
    facts = yield from facts_of(locked)
    commands.edit(facts)
    commands.edit_between(facts, what.rules.between, what.by, locked.created_by)
    keys = [item.key for item in what.items]
    rows = yield query("items_by_key", cart=locked.id, keys=keys)
    found = {row["key"]: row for row in rows}
    for item in what.items:
        _refuse_edit(facts, item, found.get(item.key))
    if what.items or what.rules.between != locked.rules.between:
        yield from close_gate(tx, locked, actor=actor)
    yield from _change_items(locked, what.items, found)
    if what.rules.failures != locked.rules.failures:
        locked.breach_wave = None  # it is judged anew
    locked.rules, locked.look_at = what.rules, tx.now
    rules = what.rules.to_document()
    tx.record_in(
        locked.project,
        "cart.edited",
        [locked.id],
        actor=actor,
        items=keys[:_MOST_NAMED],
        rules=rules,
    )
    return len(what.items)


def _refuse_changed(locked: LockedCart, expected_version: int | None) -> None:
    if expected_version not in (None, locked.version):
        raise Conflict(
            "the cart was changed meanwhile", code="changed_meanwhile", hint="look again"
        )


def _refuse_edit(facts: CartFacts, item: EditedItem, row: Row | None) -> None:
    """Raise why this item cannot be changed so, if it cannot."""
    if row is None:
        raise NotFound(f'the cart has no item "{item.key}"', code="item_not_found")
    commands.edit_wave(facts, row["wave"])
    if row["state"] != ItemState.PENDING:
        raise Conflict(f'the item "{item.key}" has ended', code="item_ended")
    if item.wave is not None:
        commands.edit_wave(facts, item.wave)


def _change_items(
    locked: LockedCart, items: Sequence[EditedItem], found: Mapping[str, Row]
) -> Script[None]:
    values = [_edited(locked.id, item, found[item.key]) for item in items]
    yield Many("edit_item", values)
    locked.count(ItemState.SKIPPED, sum(item.is_skipped for item in items))


def _edited(cart: CartId, item: EditedItem, row: Row) -> tuple[object, ...]:
    """Values for `edit_item`, in its order."""
    return (
        row["wave"] if item.wave is None else item.wave,
        row["inputs"] if item.inputs is None else to_json(item.inputs),
        ItemState.SKIPPED if item.is_skipped else ItemState.PENDING,
        cart,
        row["number"],
    )


def create(tx: Tx, cart: NewCart) -> Script[None]:
    """A cart that does nothing yet."""
    values = (
        cart.id,
        cart.project,
        cart.name,
        shard_of(cart.id),
        to_json(cart.document),
        to_json(cart.rules.to_document()),
        cart.items,
        cart.created_by,
        tx.now,
        optional_micros(cart.starts_at),
    )
    yield Many("insert_cart", [values])


def add_items(tx: Tx, cart: CartId, first: int, items: Sequence[NewItem]) -> Script[None]:
    """Items, in their order."""
    yield from _being_filled(cart)
    known = yield query("known_items", cart=cart, keys=[item.key for item in items])
    if known:
        raise Conflict(
            f'the cart has an item with the key "{known[0]["key"]}" already',
            code="duplicate_key",
            hint="give each item a key of its own",
            facts={"keys": [row["key"] for row in known[:10]]},
        )
    yield Many(
        "insert_item",
        [
            (
                cart,
                first + place,
                item.key,
                item.wave,
                item.job_id,
                item.job_version,
                None if item.inputs is None else to_json(item.inputs),
                None if item.needs is None else to_json(item.needs),
                None if item.needs is None else item.needs.get(WORKER),
            )
            for place, item in enumerate(items)
        ],
    )


def submit(
    tx: Tx,
    cart: CartId,
    idempotency: Idempotency | None = None,
    due: DueTemplate | None = None,
) -> Script[CartId]:
    """Let a filled cart begin, or leave it as if it had never been."""
    # In the order of locks: the caller's key, the cart, the template.
    answered = yield from first_answer(tx.now, idempotency, cart)
    if answered is not None:
        return CartId(answered)
    row = yield from _being_filled(cart)
    yield from refuse_second(row["project"], row["name"])
    [found] = yield query("count_items", cart=cart)
    if found["count"] != row["items"]:
        raise Conflict(
            f"{row['items']} items were announced, {found['count']} came", code="items_missing"
        )
    if due is not None:
        try:
            yield moved(due)
        except StaleTransition as error:
            raise Conflict("this due time has its cart", code="template_moved") from error
    yield Many("begin_cart", [(CartState.PLANNED, tx.now, cart)])
    facts = {"name": row["name"], "items": row["items"]}
    tx.record_in(row["project"], "cart.submitted", [cart], actor=row["created_by"], **facts)
    tx.effects.carts = True
    return cart


def refuse_second(project: str, name: str) -> Script[None]:
    """`Conflict` if a cart of this name is live."""
    for row in (yield query("live_cart", project=project, name=name)):
        raise Conflict(
            f"the cart {row['id']} of {name} has not ended",
            code="cart_is_live",
            hint=f"rota cart show {row['id']}; wait for its end, or cancel it",
            facts={"cart": row["id"]},
        )


def discard(tx: Tx, cart: CartId) -> Script[bool]:
    """Forget a cart that was not submitted, some items at a time; whether there are more.

    One that was submitted is left alone: whoever filled it may not have heard of that.
    """
    if (yield from _loading(cart)) is None:
        return False
    deleted = yield query("delete_items", cart=cart, limit=_CHUNK)
    if len(deleted) == _CHUNK:
        return True
    yield query("delete_cart", cart=cart)
    return False


def forgotten(before: int) -> Script[list[CartId]]:
    """Carts whose items stopped coming."""
    rows = yield query("forgotten_carts", before=before)
    return [CartId(row["id"]) for row in rows]


def _being_filled(cart: CartId) -> Script[Row]:
    row = yield from _loading(cart)
    if row is None:
        raise NotFound(f"no cart {cart} is being filled", code="cart_not_found")
    return row


def _loading(cart: CartId) -> Script[Row | None]:
    """A cart whose items are still coming, locked; None: there is none."""
    yield lock("carts", ids=[cart])
    for row in (yield query("carts_to_change", ids=[cart])):
        if row["state"] == "LOADING":
            return row
    return None
