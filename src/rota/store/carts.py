"""Carts: items get runs, wave by wave, and the end of each run is counted.

A cart is read once by the transaction that has locked it, and written once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rota.domain.carts.definition import CartRules, OnBreach, Scope
from rota.domain.carts.facts import (
    FAILED_ITEM_STATES,
    MOST_IN_FLIGHT,
    CartFacts,
    CartState,
    ItemState,
    PauseReason,
    WaitReason,
    cause_of,
    item_state_of,
)
from rota.domain.carts.steps import (
    Begin,
    Breach,
    End,
    Open,
    Pause,
    RunCheck,
    SkipRest,
    Stand,
    Start,
    decide,
    wait_for_room,
)
from rota.domain.errors import NotFound
from rota.domain.gates import Admission, cart_key, held_by_cart
from rota.domain.ids import CartId, RunId, instant, new_run_id
from rota.domain.run import Trigger
from rota.domain.states import WAITING_STATES, Cause, RunState, is_final
from rota.ports.carts import Advanced
from rota.store.gates import lock_gates, lock_gates_of_jobs, lock_gates_to_submit
from rota.store.limits import room_to_wait
from rota.store.releases import release_jobs
from rota.store.rows import (
    cart_rules_from,
    from_json,
    optional_instant,
    optional_micros,
    reasons_to,
    to_json,
)
from rota.store.script import Many, Row, Rows, Script, lock, query
from rota.store.submissions import Draft, insert_drafts
from rota.store.tx import CartHooks, Tx, register
from rota.store.waits import EndOfWait, cancel, end_waiting

_ACTOR = "scheduler"
_MOST_STEPS = 50  # in one transaction: others want the store too
_CHUNK = 2_000  # rows in one transaction
_COUNTED = {
    ItemState.COMPLETED: "completed",
    ItemState.FAILED: "failed",
    ItemState.TIMED_OUT: "failed",
    ItemState.CANCELLED: "cancelled",
    ItemState.SKIPPED: "skipped",
}


def advance(tx: Tx, cart: CartId, closed_until: datetime | None) -> Script[Advanced]:
    """One step after another, until the cart has to wait for something."""
    has_more = False
    for locked in (yield from locked_carts(tx, [cart])):
        has_more = yield from _go_on(tx, locked, closed_until)
        yield locked.save()
    return Advanced(has_more)


def _go_on(tx: Tx, locked: LockedCart, closed_until: datetime | None) -> Script[bool]:
    """Whether there is more to do at once than one transaction should."""
    for _ in range(_MOST_STEPS):
        facts = yield from facts_of(locked, closed_until)
        match decide(facts, instant(tx.now)):
            case Stand() as stand:
                _stand(tx, locked, stand)
                return False
            case End(state):
                _end(tx, locked, state)
                return False
            case SkipRest():
                yield from _skip_rest(tx, locked)
                return True
            case Start(wave, count):
                if not (yield from _start(tx, locked, wave, count)):
                    _stand(tx, locked, wait_for_room(locked.open, instant(tx.now)))
                    return False
            case RunCheck(job):
                yield from _run_check(tx, locked, job)
            case step:
                yield from _change(tx, locked, step)
    return True


def _change(tx: Tx, locked: LockedCart, step: Begin | Open | Pause | Breach) -> Script[None]:
    """Steps that make no runs."""
    match step:
        case Begin():
            locked.state, locked.reason = CartState.RUNNING, ""
            locked.started_at = locked.started_at or tx.now
            _tell(tx, locked, "cart.started")
        case Open(wave, is_first):
            locked.state, locked.reason, locked.current_wave = CartState.RUNNING, "", wave
            locked.wave = max(locked.wave, wave)
            yield from count_wave(locked)
            _tell(tx, locked, "cart.wave_opened", wave=wave, again=not is_first)
        case Pause(reason):
            yield from pause(tx, locked, reason, actor=_ACTOR)
        case Breach(then):
            yield from breach(tx, locked, then)


def _stand(tx: Tx, locked: LockedCart, stand: Stand) -> None:
    has_changed = (locked.state, locked.reason) != (stand.state, stand.reason)
    locked.state, locked.reason = stand.state, stand.reason
    locked.look_at = optional_micros(stand.until)
    if has_changed and stand.state is CartState.WAITING:
        _tell(tx, locked, "cart.waiting", reason=stand.reason, wave=locked.wave)


def _start(tx: Tx, locked: LockedCart, wave: int, count: int) -> Script[bool]:
    """Items get their runs, which are runs like any other from here on.

    False: the project may have no more that wait, so that some or all stay PENDING. Its quota is
    locked then, and whoever has locked it asks for no more gates of jobs.
    """
    yield from close_gate(tx, locked, actor=_ACTOR)
    items = yield query("pending_items", cart=locked.id, wave=wave, limit=count)
    jobs = {row["job_id"] for row in items}
    yield from lock_gates_to_submit(jobs)
    known = {row["id"] for row in (yield query("jobs_that_exist", ids=jobs))}
    if not jobs <= known:
        yield from pause(tx, locked, PauseReason.JOB, actor=_ACTOR)
        return True
    room = yield from room_to_wait(locked.project)
    if room != 0:
        yield from _open(tx, locked, items[:room])
    return room is None or room >= len(items)


def _open(tx: Tx, locked: LockedCart, items: Rows) -> Script[None]:
    # Sorted: of runs that are due at the same instant, those with lower ids go first.
    runs = sorted(new_run_id(instant(tx.now)) for _ in items)
    drafts = [_draft(tx.now, locked, row, run) for row, run in zip(items, runs, strict=True)]
    yield from insert_drafts(tx, drafts, actor=_ACTOR)
    opened = [(run, locked.id, row["number"]) for row, run in zip(items, runs, strict=True)]
    yield Many("open_item", opened)
    locked.open += len(items)
    locked.in_flight[RunState.QUEUED] += len(
        items
    )  # or blocked at a gate: they wait in either case
    locked.state, locked.reason = CartState.RUNNING, ""


def _draft(now: int, locked: LockedCart, item: Row, run: RunId) -> Draft:
    return Draft(
        id=run,
        job_id=item["job_id"],
        job_version=item["job_version"],
        trigger=Trigger.CART,
        due_at=now,
        release_at=now,
        created_by=locked.created_by,
        priority=locked.priority,
        inputs=item["inputs"],
        retry_of=item["run"],
        cart=locked.id,
        item=item["key"],
        needs=item["needs"],
    )


def _run_check(tx: Tx, locked: LockedCart, job: str) -> Script[None]:
    found = yield query("job_of_name", project=locked.project, name=job)
    if not found:
        yield from pause(tx, locked, PauseReason.JOB, actor=_ACTOR)
        return
    yield from lock_gates_to_submit([found[0]["id"]])
    run = new_run_id(instant(tx.now))
    draft = Draft(
        id=run,
        job_id=found[0]["id"],
        job_version=found[0]["version"],
        trigger=Trigger.CART,
        due_at=tx.now,
        release_at=tx.now,
        created_by=locked.created_by,
        priority=locked.priority,
        cart=locked.id,
    )
    yield from insert_drafts(tx, [draft], actor=_ACTOR)
    locked.state, locked.reason, locked.check_run = CartState.WAITING, WaitReason.CHECK, run
    _tell(tx, locked, "cart.checking", run=run, wave=locked.wave)


def close_gate(tx: Tx, locked: LockedCart, *, actor: str) -> Script[None]:
    """Forget check and approval: they were about something else than what comes next."""
    locked.approved_by = ""
    if locked.check_run is not None:
        check = [RunId(locked.check_run)]
        yield from lock_gates_of_jobs(check)
        stopped = yield from cancel(tx, check, actor)
        yield from release_jobs(tx, set(stopped.values()))
        locked.check_run = None


def pause(
    tx: Tx,
    locked: LockedCart,
    reason: PauseReason,
    *,
    actor: str,
    gates: Collection[str] | None = None,
) -> Script[None]:
    """Start nothing of the cart from here on; what a worker has leased goes on to its end."""
    locked.state, locked.reason, locked.look_at = CartState.PAUSED, reason, None
    yield from block_runs(tx, locked, gates)
    _tell(tx, locked, "cart.paused", actor=actor, reason=reason)


def breach(
    tx: Tx, locked: LockedCart, then: OnBreach, gates: Collection[str] | None = None
) -> Script[None]:
    """More items failed than may."""
    locked.breach_wave = locked.current_wave
    _tell(tx, locked, "cart.threshold", then=then, failed=locked.failed)
    match then:
        case OnBreach.PAUSE:
            reason = PauseReason.FAILURES
            yield from pause(tx, locked, reason, actor=_ACTOR, gates=gates)
        case OnBreach.CANCEL:
            locked.ending, locked.look_at = CartState.FAILED, tx.now
            yield from block_runs(tx, locked, gates)
        case OnBreach.CONTINUE:
            pass


def block_runs(tx: Tx, locked: LockedCart, gates: Collection[str] | None = None) -> Script[None]:
    """Block runs of a cart that wait for a worker or at a gate; others get their slots.

    `gates` are those that are locked, where runs are locked too: to lock more gates then would be
    out of order. Slots at other gates are found by the next sweep.
    """
    if gates is None:
        rows = yield query("gates_of_cart", cart=locked.id)
        gates = yield from lock_gates({row["job_id"] for row in rows})
    key = cart_key(locked.id)
    reasons = reasons_to(held_by_cart(locked.id, locked.name).reasons)
    yield query("move_waiters_of_cart", cart=locked.id, key=key, reasons=reasons)
    blocked = yield query("block_runs_of_cart", cart=locked.id, key=key, reasons=reasons)
    if blocked:
        tx.record_each("run.blocked", blocked, actor=_ACTOR)
        tx.effects.chains.leave(row["chain"] for row in blocked)
        yield from release_jobs(tx, {row["job_id"] for row in blocked} & set(gates))


def _skip_rest(tx: Tx, locked: LockedCart) -> Script[None]:
    """End what has not begun, some at a time."""
    skipped = yield query("skip_items", cart=locked.id, limit=_CHUNK)
    locked.count(ItemState.SKIPPED, len(skipped))
    rows = yield query("waiting_runs_of_cart", cart=locked.id, limit=_CHUNK)
    yield from lock_gates({row["job_id"] for row in rows})
    for state, cause, runs in (
        (RunState.SKIPPED, Cause.CART, [RunId(r["id"]) for r in rows if not r["attempt"]]),
        (RunState.CANCELLED, Cause.CANCELLED, [RunId(r["id"]) for r in rows if r["attempt"]]),
    ):
        yield from end_waiting(tx, runs, EndOfWait(state, cause))
    yield from release_jobs(tx, {row["job_id"] for row in rows})
    for state in WAITING_STATES:
        del locked.in_flight[state]
    tx.effects.carts = True


def _end(tx: Tx, locked: LockedCart, state: CartState) -> None:
    locked.state, locked.reason, locked.ending, locked.look_at = state, "", None, None
    locked.ended_at = tx.now
    _tell(tx, locked, "cart.finished", state=state, failed=locked.failed)


class _Hooks(CartHooks):
    """The part of carts in the steps of runs."""

    def lock_carts(self, runs: Sequence[str]) -> Script[list[str]]:
        if not runs:
            return []
        rows = yield query("carts_of_runs", ids=runs)
        carts: list[str] = sorted(row["cart"] for row in rows)
        if carts:
            yield lock("carts", ids=carts)
        return carts

    def runs_ended(self, tx: Tx, carts: list[str], gates: Collection[str]) -> Script[None]:
        if not carts:
            return
        for locked in (yield from locked_carts(tx, [CartId(cart) for cart in carts])):
            yield from _judge(tx, locked, gates)
            yield locked.save()
        tx.effects.carts = True

    def share_gates(self, carts: Collection[str]) -> Script[None]:
        yield lock("used_carts", ids=sorted(carts))

    def closed_gates(self, carts: Collection[str]) -> Script[Mapping[str, Admission]]:
        rows = yield query("closed_carts", ids=carts)
        return {row["id"]: held_by_cart(row["id"], row["name"]) for row in rows}


register(_Hooks())


def _judge(tx: Tx, locked: LockedCart, gates: Collection[str]) -> Script[None]:
    """Count failures before anything new can start."""
    facts = yield from facts_of(locked)
    match decide(facts, instant(tx.now)):
        case Breach(then):
            yield from breach(tx, locked, then, gates)
        case SkipRest():
            locked.look_at = tx.now  # what would be tried again keeps it from ending
        case _:
            pass


def _tell(tx: Tx, locked: LockedCart, event: str, *, actor: str = _ACTOR, **data: object) -> None:
    tx.record_in(locked.project, event, [locked.id], actor=actor, **data)


@dataclass(slots=True)
class LockedCart:
    """A cart that a transaction has locked: its state, and how many of its items are where."""

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
        """Count so many items more, or fewer, in a final state."""
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


def locked_cart(tx: Tx, cart: CartId) -> Script[LockedCart]:
    """Lock a cart and count the items whose run has ended. `NotFound` if there is none."""
    found = yield from locked_carts(tx, [cart])
    if not found:
        raise NotFound(f"no cart {cart}", code="cart_not_found")
    return found[0]


def locked_carts(tx: Tx, carts: list[CartId]) -> Script[list[LockedCart]]:
    """Lock several; those that are not there, or still being filled, are left out."""
    yield lock("carts", ids=sorted(carts))
    rows = yield query("carts_to_change", ids=sorted(carts))
    found = [_locked_cart(row) for row in rows if row["state"] != "LOADING"]
    for locked in found:
        yield from _count_ended(tx, locked)
    return found


def _locked_cart(row: Row) -> LockedCart:
    return LockedCart(
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


def _count_ended(tx: Tx, locked: LockedCart) -> Script[None]:
    """Items whose run has ended are as it ended; a second look finds nothing new."""
    if not locked.open:
        return
    rows = yield query("open_runs", cart=locked.id)
    locked.in_flight = Counter({RunState(row["state"]): row["count"] for row in rows})
    if not any(map(is_final, locked.in_flight)):
        return
    ended = yield query("ended_items", cart=locked.id)
    for row in ended:
        locked.in_flight[RunState(row["state"])] -= 1
    locked.in_flight = +locked.in_flight
    yield Many("set_item_state", [_end_of(locked.id, row) for row in ended])
    for row in ended:
        state = item_state_of(RunState(row["state"]), row["cause"])
        locked.count(state)
        locked.wave_failed += state in FAILED_ITEM_STATES  # what is open is of the current wave
    locked.open -= len(ended)
    locked.wave_ended_at = max(locked.wave_ended_at or 0, *(row["ended_at"] for row in ended))
    # Nobody finds these ends once they are counted, so the cart itself asks to be looked at.
    locked.look_at = locked.wave_ended_at
    if not locked.open:
        yield from _tell_end_of_wave(tx, locked)


def _tell_end_of_wave(tx: Tx, locked: LockedCart) -> Script[None]:
    """Unless some of its items are still to start."""
    [pending] = yield query("count_pending", cart=locked.id, wave=locked.current_wave, limit=1)
    if not pending["count"]:
        wave, items = locked.current_wave, locked.wave_items
        _tell(tx, locked, "cart.wave_finished", wave=wave, items=items, failed=locked.wave_failed)


def _end_of(cart: CartId, row: Row) -> tuple[object, ...]:
    state = item_state_of(RunState(row["state"]), row["cause"])
    is_failure = state in FAILED_ITEM_STATES
    cause = cause_of(row["message"] or row["cause"]) if is_failure else ""
    return state, cause, cart, row["number"]


def count_wave(locked: LockedCart) -> Script[None]:
    """The items and failures of the current wave, counted anew: it is another one, or retried."""
    rows = yield query("wave_states", cart=locked.id, wave=locked.current_wave)
    counts = {ItemState(row["state"]): row["count"] for row in rows}
    locked.wave_items = sum(counts.values())
    locked.wave_failed = sum(counts.get(state, 0) for state in FAILED_ITEM_STATES)


def facts_of(locked: LockedCart, closed_until: datetime | None = None) -> Script[CartFacts]:
    """The facts that a decision about the cart rests on."""
    pending = yield from _pending(locked)
    check = yield from _check(locked)
    flight = locked.in_flight
    return CartFacts(
        rules=locked.rules,
        state=locked.state,
        items=locked.items,
        reason=locked.reason,
        ending=locked.ending,
        starts_at=optional_instant(locked.starts_at),
        wave=locked.wave,
        current_wave=locked.current_wave,
        pending_wave=pending[0],
        pending_in_wave=pending[1],
        open=locked.open,
        waiting=sum(flight[state] for state in WAITING_STATES),
        unknown=flight[RunState.UNKNOWN],
        completed=locked.completed,
        failed=locked.failed,
        items_in_wave=locked.wave_items,
        failed_in_wave=locked.wave_failed,
        is_breach_recorded=_is_breach_recorded(locked),
        wave_ended_at=optional_instant(locked.wave_ended_at),
        check=check,
        approved_by=locked.approved_by,
        closed_until=closed_until,
    )


def _pending(locked: LockedCart) -> Script[tuple[int | None, int]]:
    """The lowest wave with items to start, and how many, as far as they could start at once."""
    rows = yield query("pending_wave", cart=locked.id)
    if not rows:
        return None, 0
    wave = rows[0]["wave"]
    [row] = yield query("count_pending", cart=locked.id, wave=wave, limit=MOST_IN_FLIGHT)
    return wave, row["count"]


def _check(locked: LockedCart) -> Script[RunState | None]:
    if locked.check_run is None:
        return None
    [row] = yield query("check_state", run=locked.check_run)
    return RunState(row["state"])


def _is_breach_recorded(locked: LockedCart) -> bool:
    if locked.rules.failures.scope is Scope.CART:
        return locked.breach_wave is not None
    return locked.breach_wave == locked.current_wave
