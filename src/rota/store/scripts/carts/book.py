"""A cart in the hands of one transaction, which holds its lock: read once, written once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from rota.domain.carts.definition import CartRules, Scope
from rota.domain.carts.facts import MOST_IN_FLIGHT, CartFacts, cause_of
from rota.domain.carts.states import FAILED_ITEM_STATES, CartState, ItemState, item_state_of
from rota.domain.errors import NotFound
from rota.domain.ids import CartId
from rota.domain.states import WAITING_STATES, RunState, is_final
from rota.store.rows import cart_rules_from, from_json, optional_instant, to_json
from rota.store.script import Many, Row, Script, lock, query
from rota.store.tx import Tx

_COUNTED = {
    ItemState.COMPLETED: "completed",
    ItemState.FAILED: "failed",
    ItemState.TIMED_OUT: "failed",
    ItemState.CANCELLED: "cancelled",
    ItemState.SKIPPED: "skipped",
}


@dataclass(slots=True)
class Book:
    """What changes of a cart, and how many of its items are where."""

    id: CartId
    project: str
    name: str
    created_by: str
    priority: int | None
    rules: CartRules
    state: CartState
    reason: str
    ending: CartState | None
    version: int
    items: int
    open: int
    completed: int
    failed: int
    cancelled: int
    skipped: int
    wave: int
    current_wave: int
    wave_items: int  # of the current one
    wave_failed: int
    wave_ended_at: int | None
    breach_wave: int | None
    check_run: str | None
    approved_by: str
    look_at: int | None
    starts_at: int | None
    started_at: int | None
    ended_at: int | None
    in_flight: Counter[RunState] = field(default_factory=Counter)  # runs of the open items

    def count(self, state: ItemState, by: int = 1) -> None:
        """So many items more, or fewer, are in a final state."""
        name = _COUNTED[state]
        setattr(self, name, getattr(self, name) + by)

    def save(self) -> Many:
        return Many("save_cart", [self._values()])

    def _values(self) -> tuple[object, ...]:
        """Values for `save_cart`, in its order."""
        return (
            to_json(self.rules.to_document()),
            self.state,
            self.reason,
            self.ending,
            self.version,
            self.items,
            self.open,
            self.completed,
            self.failed,
            self.cancelled,
            self.skipped,
            self.wave,
            self.current_wave,
            self.wave_items,
            self.wave_failed,
            self.wave_ended_at,
            self.breach_wave,
            self.check_run,
            self.approved_by,
            self.look_at,
            self.starts_at,
            self.started_at,
            self.ended_at,
            self.id,
        )


def open_book(tx: Tx, cart: CartId) -> Script[Book]:
    """Lock a cart and count the items whose run has ended. `NotFound` if there is none."""
    books = yield from open_books(tx, [cart])
    if not books:
        raise NotFound(f"no cart {cart}", code="cart_not_found")
    return books[0]


def open_books(tx: Tx, carts: list[CartId]) -> Script[list[Book]]:
    """The same for several; those that are not there, or still being filled, are left out."""
    yield lock("carts", ids=sorted(carts))
    rows = yield query("carts_to_change", ids=sorted(carts))
    books = [_book(row) for row in rows if row["state"] != "LOADING"]
    for book in books:
        yield from _count_ended(tx, book)
    return books


def _book(row: Row) -> Book:
    return Book(
        id=CartId(row["id"]),
        project=row["project"],
        name=row["name"],
        created_by=row["created_by"],
        priority=from_json(row["document"]).get("priority"),
        rules=cart_rules_from(row["rules"]),
        state=CartState(row["state"]),
        reason=row["reason"],
        ending=None if row["ending"] is None else CartState(row["ending"]),
        version=row["version"],
        items=row["items"],
        open=row["open"],
        completed=row["completed"],
        failed=row["failed"],
        cancelled=row["cancelled"],
        skipped=row["skipped"],
        wave=row["wave"],
        current_wave=row["current_wave"],
        wave_items=row["wave_items"],
        wave_failed=row["wave_failed"],
        wave_ended_at=row["wave_ended_at"],
        breach_wave=row["breach_wave"],
        check_run=row["check_run"],
        approved_by=row["approved_by"],
        look_at=row["look_at"],
        starts_at=row["starts_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
    )


def _count_ended(tx: Tx, book: Book) -> Script[None]:
    """Items whose run has ended are as it ended; a second look finds nothing new."""
    if not book.open:
        return
    rows = yield query("open_runs", cart=book.id)
    book.in_flight = Counter({RunState(row["state"]): row["count"] for row in rows})
    if not any(map(is_final, book.in_flight)):
        return
    ended = yield query("ended_items", cart=book.id)
    for row in ended:
        book.in_flight[RunState(row["state"])] -= 1
    book.in_flight = +book.in_flight
    yield Many("set_item_state", [_end_of(book.id, row) for row in ended])
    for row in ended:
        state = item_state_of(RunState(row["state"]))
        book.count(state)
        book.wave_failed += state in FAILED_ITEM_STATES  # what is open is of the current wave
    book.open -= len(ended)
    book.wave_ended_at = max(book.wave_ended_at or 0, *(row["ended_at"] for row in ended))
    # Nobody finds these ends once they are counted, so the cart itself asks to be looked at.
    book.look_at = book.wave_ended_at
    if not book.open:
        yield from _tell_end_of_wave(tx, book)


def _tell_end_of_wave(tx: Tx, book: Book) -> Script[None]:
    """Unless some of its items are still to start."""
    [pending] = yield query("count_pending", cart=book.id, wave=book.current_wave, limit=1)
    if not pending["count"]:
        told = {"wave": book.current_wave, "items": book.wave_items, "failed": book.wave_failed}
        yield tx.record("cart.wave_finished", [book.id], actor="scheduler", **told)


def _end_of(cart: CartId, row: Row) -> tuple[object, ...]:
    state = item_state_of(RunState(row["state"]))
    is_failure = state in FAILED_ITEM_STATES
    cause = cause_of(row["message"] or row["cause"]) if is_failure else ""
    return state, cause, cart, row["number"]


def count_wave(book: Book) -> Script[None]:
    """The items and failures of the current wave, counted anew: it is another one, or retried."""
    rows = yield query("wave_states", cart=book.id, wave=book.current_wave)
    counts = {ItemState(row["state"]): row["count"] for row in rows}
    book.wave_items = sum(counts.values())
    book.wave_failed = sum(counts.get(state, 0) for state in FAILED_ITEM_STATES)


def facts_of(book: Book, closed_until: datetime | None = None) -> Script[CartFacts]:
    """What a decision about the cart rests on."""
    pending = yield from _pending(book)
    check = yield from _check(book)
    flight = book.in_flight
    return CartFacts(
        rules=book.rules,
        state=book.state,
        items=book.items,
        reason=book.reason,
        ending=book.ending,
        starts_at=optional_instant(book.starts_at),
        wave=book.wave,
        current_wave=book.current_wave,
        pending_wave=pending[0],
        pending_in_wave=pending[1],
        open=book.open,
        waiting=sum(flight[state] for state in WAITING_STATES),
        unknown=flight[RunState.UNKNOWN],
        completed=book.completed,
        failed=book.failed,
        items_in_wave=book.wave_items,
        failed_in_wave=book.wave_failed,
        is_breach_recorded=_is_breach_recorded(book),
        wave_ended_at=optional_instant(book.wave_ended_at),
        check=check,
        approved_by=book.approved_by,
        closed_until=closed_until,
    )


def _pending(book: Book) -> Script[tuple[int | None, int]]:
    """The lowest wave with items to start, and how many, as far as they could start at once."""
    rows = yield query("pending_wave", cart=book.id)
    if not rows:
        return None, 0
    wave = rows[0]["wave"]
    [row] = yield query("count_pending", cart=book.id, wave=wave, limit=MOST_IN_FLIGHT)
    return wave, row["count"]


def _check(book: Book) -> Script[RunState | None]:
    if book.check_run is None:
        return None
    [row] = yield query("check_state", run=book.check_run)
    return RunState(row["state"])


def _is_breach_recorded(book: Book) -> bool:
    if book.rules.failures.scope is Scope.CART:
        return book.breach_wave is not None
    return book.breach_wave == book.current_wave
