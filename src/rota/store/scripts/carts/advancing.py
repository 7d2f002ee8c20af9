"""What a cart does by itself: it starts items, passes its gates, and ends."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from rota.domain.carts.definition import OnBreach
from rota.domain.carts.states import CartState, ItemState, PauseReason, WaitReason
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
from rota.domain.gates import cart_key, held_by_cart
from rota.domain.ids import CartId, RunId, instant, new_run_id
from rota.domain.run import Trigger
from rota.domain.states import WAITING_STATES, Cause, RunState
from rota.ports.carts import Advanced
from rota.store.rows import optional_micros, reasons_to
from rota.store.script import Many, Row, Rows, Script, lock, query
from rota.store.scripts.carts.book import Book, count_wave, facts_of, open_books
from rota.store.scripts.drafting import Draft, insert_drafts
from rota.store.scripts.gates import hold_gates, hold_gates_of_jobs, hold_gates_to_submit
from rota.store.scripts.keys.quotas import room_to_wait
from rota.store.scripts.queueing import EndOfWait, cancel, end_waiting
from rota.store.scripts.releasing import release_jobs
from rota.store.tx import Tx

_ACTOR = "scheduler"
_MOST_STEPS = 50  # in one transaction: others want the store too
_CHUNK = 2_000  # rows in one transaction


def advance(tx: Tx, cart: CartId, closed_until: datetime | None) -> Script[Advanced]:
    """One step after another, until the cart has to wait for something."""
    has_more = False
    for book in (yield from open_books(tx, [cart])):
        has_more = yield from _go_on(tx, book, closed_until)
        yield book.save()
    return Advanced(has_more)


def _go_on(tx: Tx, book: Book, closed_until: datetime | None) -> Script[bool]:
    """Whether there is more to do at once than one transaction should."""
    for _ in range(_MOST_STEPS):
        facts = yield from facts_of(book, closed_until)
        match decide(facts, instant(tx.now)):
            case Stand() as stand:
                yield from _stand(tx, book, stand)
                return False
            case End(state):
                yield from _end(tx, book, state)
                return False
            case SkipRest():
                yield from _skip_rest(tx, book)
                return True
            case Start(wave, count):
                if not (yield from _start(tx, book, wave, count)):
                    yield from _stand(tx, book, wait_for_room(book.open, instant(tx.now)))
                    return False
            case RunCheck(job):
                yield from _run_check(tx, book, job)
            case step:
                yield from _change(tx, book, step)
    return True


def _change(tx: Tx, book: Book, step: Begin | Open | Pause | Breach) -> Script[None]:
    """Steps that make no runs."""
    match step:
        case Begin():
            book.state, book.reason = CartState.RUNNING, ""
            book.started_at = book.started_at or tx.now
            yield _tell(tx, book, "cart.started")
        case Open(wave, is_first):
            book.state, book.reason, book.current_wave = CartState.RUNNING, "", wave
            book.wave = max(book.wave, wave)
            yield from count_wave(book)
            yield _tell(tx, book, "cart.wave_opened", wave=wave, again=not is_first)
        case Pause(reason):
            yield from pause(tx, book, reason, actor=_ACTOR)
        case Breach(then):
            yield from breach(tx, book, then)


def _stand(tx: Tx, book: Book, stand: Stand) -> Script[None]:
    has_changed = (book.state, book.reason) != (stand.state, stand.reason)
    book.state, book.reason = stand.state, stand.reason
    book.look_at = optional_micros(stand.until)
    if has_changed and stand.state is CartState.WAITING:
        yield _tell(tx, book, "cart.waiting", reason=stand.reason, wave=book.wave)


def _start(tx: Tx, book: Book, wave: int, count: int) -> Script[bool]:
    """Items get their runs, which are runs like any other from here on.

    False: the project may have no more that wait, so that some or all stay PENDING. Its quota is
    held then, and whoever holds it asks for no more gates of jobs.
    """
    yield from close_gate(tx, book, actor=_ACTOR)
    items = yield query("pending_items", cart=book.id, wave=wave, limit=count)
    jobs = {row["job_id"] for row in items}
    yield from hold_gates_to_submit(jobs)
    known = {row["id"] for row in (yield query("jobs_that_exist", ids=jobs))}
    if not jobs <= known:
        yield from pause(tx, book, PauseReason.JOB, actor=_ACTOR)
        return True
    room = yield from room_to_wait(book.project)
    if room != 0:
        yield from _open(tx, book, items[:room])
    return room is None or room >= len(items)


def _open(tx: Tx, book: Book, items: Rows) -> Script[None]:
    # Sorted: of runs that are due at the same instant, those with lower ids go first.
    runs = sorted(new_run_id(instant(tx.now)) for _ in items)
    drafts = [_draft(tx.now, book, row, run) for row, run in zip(items, runs, strict=True)]
    yield from insert_drafts(tx, drafts, actor=_ACTOR)
    opened = [(run, book.id, row["number"]) for row, run in zip(items, runs, strict=True)]
    yield Many("open_item", opened)
    book.open += len(items)
    book.in_flight[RunState.QUEUED] += len(items)  # or held by a gate: they wait in either case
    book.state, book.reason = CartState.RUNNING, ""


def _draft(now: int, book: Book, item: Row, run: RunId) -> Draft:
    return Draft(
        id=run,
        job_id=item["job_id"],
        job_version=item["job_version"],
        trigger=Trigger.CART,
        due_at=now,
        release_at=now,
        created_by=book.created_by,
        priority=book.priority,
        inputs=item["inputs"],
        retry_of=item["run"],
        cart=book.id,
        item=item["key"],
    )


def _run_check(tx: Tx, book: Book, job: str) -> Script[None]:
    found = yield query("job_of_name", project=book.project, name=job)
    if not found:
        yield from pause(tx, book, PauseReason.JOB, actor=_ACTOR)
        return
    yield from hold_gates_to_submit([found[0]["id"]])
    run = new_run_id(instant(tx.now))
    draft = Draft(
        id=run,
        job_id=found[0]["id"],
        job_version=found[0]["version"],
        trigger=Trigger.CART,
        due_at=tx.now,
        release_at=tx.now,
        created_by=book.created_by,
        priority=book.priority,
        cart=book.id,
    )
    yield from insert_drafts(tx, [draft], actor=_ACTOR)
    book.state, book.reason, book.check_run = CartState.WAITING, WaitReason.CHECK, run
    yield _tell(tx, book, "cart.checking", run=run, wave=book.wave)


def close_gate(tx: Tx, book: Book, *, actor: str) -> Script[None]:
    """What was checked and approved is not what comes next: both are to be asked for again."""
    book.approved_by = ""
    if book.check_run is not None:
        check = [RunId(book.check_run)]
        yield from hold_gates_of_jobs(check)
        stopped = yield from cancel(tx, check, actor)
        yield from release_jobs(tx, set(stopped.values()))
        book.check_run = None


def pause(
    tx: Tx,
    book: Book,
    reason: PauseReason,
    *,
    actor: str,
    gates: Collection[str] | None = None,
) -> Script[None]:
    """Nothing of the cart starts from here on; what a worker holds goes on to its end."""
    book.state, book.reason, book.look_at = CartState.PAUSED, reason, None
    yield from hold_runs(tx, book, gates)
    yield _tell(tx, book, "cart.paused", actor=actor, reason=reason)


def breach(
    tx: Tx, book: Book, then: OnBreach, gates: Collection[str] | None = None
) -> Script[None]:
    """More items failed than may."""
    book.breach_wave = book.current_wave
    yield _tell(tx, book, "cart.threshold", then=then, failed=book.failed)
    match then:
        case OnBreach.PAUSE:
            reason = PauseReason.FAILURES
            yield from pause(tx, book, reason, actor=_ACTOR, gates=gates)
        case OnBreach.CANCEL:
            book.ending, book.look_at = CartState.FAILED, tx.now
            yield from hold_runs(tx, book, gates)
        case OnBreach.CONTINUE:
            pass


def hold_runs(tx: Tx, book: Book, gates: Collection[str] | None = None) -> Script[None]:
    """What waits for a worker or at a gate waits for the cart instead; others get its slots.

    `gates` are those that the transaction holds, where it has locked runs and may take no more:
    slots at other gates are found by the next sweep.
    """
    if gates is None:
        rows = yield query("gates_of_cart", cart=book.id)
        gates = yield from hold_gates({row["job_id"] for row in rows})
    key = cart_key(book.id)
    reasons = reasons_to(held_by_cart(book.id, book.name).reasons)
    yield query("move_waiters_of_cart", cart=book.id, key=key, reasons=reasons)
    held = yield query("hold_runs_of_cart", cart=book.id, key=key, reasons=reasons)
    if held:
        yield tx.record("run.blocked", [row["id"] for row in held], actor=_ACTOR)
        tx.effects.lines.leave(row["chain"] for row in held)
        yield from release_jobs(tx, {row["job_id"] for row in held} & set(gates))


def _skip_rest(tx: Tx, book: Book) -> Script[None]:
    """What has not begun never will; some at a time."""
    skipped = yield query("skip_items", cart=book.id, limit=_CHUNK)
    book.count(ItemState.SKIPPED, len(skipped))
    rows = yield query("waiting_runs_of_cart", cart=book.id, limit=_CHUNK)
    yield from hold_gates({row["job_id"] for row in rows})
    for state, cause, runs in (
        (RunState.SKIPPED, Cause.CART, [RunId(r["id"]) for r in rows if not r["attempt"]]),
        (RunState.CANCELLED, Cause.CANCELLED, [RunId(r["id"]) for r in rows if r["attempt"]]),
    ):
        yield from end_waiting(tx, runs, EndOfWait(state, cause))
    yield from release_jobs(tx, {row["job_id"] for row in rows})
    for state in WAITING_STATES:
        del book.in_flight[state]
    tx.effects.carts = True


def _end(tx: Tx, book: Book, state: CartState) -> Script[None]:
    book.state, book.reason, book.ending, book.look_at = state, "", None, None
    book.ended_at = tx.now
    yield _tell(tx, book, "cart.finished", state=state, failed=book.failed)


def hold_carts_of(runs: Sequence[str]) -> Script[list[CartId]]:
    """The carts of these runs, locked: their failures are about to be counted."""
    if not runs:
        return []
    rows = yield query("carts_of_runs", ids=runs)
    carts = sorted(CartId(row["cart"]) for row in rows)
    if carts:
        yield lock("carts", ids=carts)
    return carts


def judge(tx: Tx, carts: list[CartId], gates: Collection[str]) -> Script[None]:
    """Count failures in the transaction in which they happened, before anything new can start.

    `gates` are those that it holds.
    """
    if not carts:
        return
    for book in (yield from open_books(tx, carts)):
        facts = yield from facts_of(book)
        match decide(facts, instant(tx.now)):
            case Breach(then):
                yield from breach(tx, book, then, gates)
            case SkipRest():
                book.look_at = tx.now  # what would be tried again keeps it from ending
            case _:
                pass
        yield book.save()
    tx.effects.carts = True


def _tell(tx: Tx, book: Book, event: str, *, actor: str = _ACTOR, **data: object) -> Many:
    return tx.record(event, [book.id], actor=actor, **data)
