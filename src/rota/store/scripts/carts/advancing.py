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
from rota.store.scripts.effects import Effects, record
from rota.store.scripts.gates import hold_gates, hold_gates_of_jobs, hold_gates_to_submit
from rota.store.scripts.keys.quotas import room_to_wait
from rota.store.scripts.queueing import EndOfWait, cancel, end_waiting
from rota.store.scripts.releasing import release_jobs
from rota.store.scripts.rules import RulesBook

_ACTOR = "scheduler"
_MOST_STEPS = 50  # in one transaction: others want the store too
_CHUNK = 2_000  # rows in one transaction


def advance(
    now: int, cart: CartId, closed_until: datetime | None, rules: RulesBook
) -> Script[Advanced]:
    """One step after another, until the cart has to wait for something."""
    effects = Effects()
    has_more = False
    for book in (yield from open_books(now, [cart])):
        has_more = yield from _go_on(now, book, closed_until, rules, effects)
        yield book.save()
    wakes = yield from effects.conclude()
    return Advanced(wakes, has_more)


def _go_on(
    now: int, book: Book, closed_until: datetime | None, rules: RulesBook, effects: Effects
) -> Script[bool]:
    """Whether there is more to do at once than one transaction should."""
    for _ in range(_MOST_STEPS):
        facts = yield from facts_of(book, closed_until)
        match decide(facts, instant(now)):
            case Stand() as stand:
                yield from _stand(now, book, stand)
                return False
            case End(state):
                yield from _end(now, book, state)
                return False
            case SkipRest():
                yield from _skip_rest(now, book, effects)
                return True
            case Start(wave, count):
                if not (yield from _start(now, book, wave, count, rules, effects)):
                    yield from _stand(now, book, wait_for_room(book.open, instant(now)))
                    return False
            case RunCheck(job):
                yield from _run_check(now, book, job, rules, effects)
            case step:
                yield from _change(now, book, step, effects)
    return True


def _change(
    now: int, book: Book, step: Begin | Open | Pause | Breach, effects: Effects
) -> Script[None]:
    """Steps that make no runs."""
    match step:
        case Begin():
            book.state, book.reason = CartState.RUNNING, ""
            book.started_at = book.started_at or now
            yield _tell(now, book, "cart.started")
        case Open(wave, is_first):
            book.state, book.reason, book.current_wave = CartState.RUNNING, "", wave
            book.wave = max(book.wave, wave)
            yield from count_wave(book)
            yield _tell(now, book, "cart.wave_opened", wave=wave, again=not is_first)
        case Pause(reason):
            yield from pause(now, book, reason, effects, actor=_ACTOR)
        case Breach(then):
            yield from breach(now, book, then, effects)


def _stand(now: int, book: Book, stand: Stand) -> Script[None]:
    has_changed = (book.state, book.reason) != (stand.state, stand.reason)
    book.state, book.reason = stand.state, stand.reason
    book.look_at = optional_micros(stand.until)
    if has_changed and stand.state is CartState.WAITING:
        yield _tell(now, book, "cart.waiting", reason=stand.reason, wave=book.wave)


def _start(
    now: int, book: Book, wave: int, count: int, rules: RulesBook, effects: Effects
) -> Script[bool]:
    """Items get their runs, which are runs like any other from here on.

    False: the project may have no more that wait, so that some or all stay PENDING. Its quota is
    held then, and whoever holds it asks for no more gates of jobs.
    """
    yield from close_gate(now, book, effects, actor=_ACTOR)
    items = yield query("pending_items", cart=book.id, wave=wave, limit=count)
    jobs = {row["job_id"] for row in items}
    yield from hold_gates_to_submit(jobs)
    known = {row["id"] for row in (yield query("jobs_that_exist", ids=jobs))}
    if not jobs <= known:
        yield from pause(now, book, PauseReason.JOB, effects, actor=_ACTOR)
        return True
    room = yield from room_to_wait(book.project)
    if room != 0:
        yield from _open(now, book, items[:room], rules, effects)
    return room is None or room >= len(items)


def _open(now: int, book: Book, items: Rows, rules: RulesBook, effects: Effects) -> Script[None]:
    # Sorted: of runs that are due at the same instant, those with lower ids go first.
    runs = sorted(new_run_id(instant(now)) for _ in items)
    drafts = [_draft(now, book, row, run) for row, run in zip(items, runs, strict=True)]
    yield from insert_drafts(now, drafts, rules, effects, actor=_ACTOR)
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


def _run_check(now: int, book: Book, job: str, rules: RulesBook, effects: Effects) -> Script[None]:
    found = yield query("job_of_name", project=book.project, name=job)
    if not found:
        yield from pause(now, book, PauseReason.JOB, effects, actor=_ACTOR)
        return
    yield from hold_gates_to_submit([found[0]["id"]])
    run = new_run_id(instant(now))
    draft = Draft(
        id=run,
        job_id=found[0]["id"],
        job_version=found[0]["version"],
        trigger=Trigger.CART,
        due_at=now,
        release_at=now,
        created_by=book.created_by,
        priority=book.priority,
        cart=book.id,
    )
    yield from insert_drafts(now, [draft], rules, effects, actor=_ACTOR)
    book.state, book.reason, book.check_run = CartState.WAITING, WaitReason.CHECK, run
    yield _tell(now, book, "cart.checking", run=run, wave=book.wave)


def close_gate(now: int, book: Book, effects: Effects, *, actor: str) -> Script[None]:
    """What was checked and approved is not what comes next: both are to be asked for again."""
    book.approved_by = ""
    if book.check_run is not None:
        check = [RunId(book.check_run)]
        yield from hold_gates_of_jobs(check)
        stopped = yield from cancel(now, check, effects, actor)
        yield from release_jobs(now, set(stopped.values()), effects)
        book.check_run = None


def pause(
    now: int,
    book: Book,
    reason: PauseReason,
    effects: Effects,
    *,
    actor: str,
    gates: Collection[str] | None = None,
) -> Script[None]:
    """Nothing of the cart starts from here on; what a worker holds goes on to its end."""
    book.state, book.reason, book.look_at = CartState.PAUSED, reason, None
    yield from hold_runs(now, book, effects, gates)
    yield _tell(now, book, "cart.paused", actor=actor, reason=reason)


def breach(
    now: int, book: Book, then: OnBreach, effects: Effects, gates: Collection[str] | None = None
) -> Script[None]:
    """More items failed than may."""
    book.breach_wave = book.current_wave
    yield _tell(now, book, "cart.threshold", then=then, failed=book.failed)
    match then:
        case OnBreach.PAUSE:
            reason = PauseReason.FAILURES
            yield from pause(now, book, reason, effects, actor=_ACTOR, gates=gates)
        case OnBreach.CANCEL:
            book.ending, book.look_at = CartState.FAILED, now
            yield from hold_runs(now, book, effects, gates)
        case OnBreach.CONTINUE:
            pass


def hold_runs(
    now: int, book: Book, effects: Effects, gates: Collection[str] | None = None
) -> Script[None]:
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
        yield record("run.blocked", now, [row["id"] for row in held], actor=_ACTOR)
        effects.lines.leave(row["chain"] for row in held)
        yield from release_jobs(now, {row["job_id"] for row in held} & set(gates), effects)


def _skip_rest(now: int, book: Book, effects: Effects) -> Script[None]:
    """What has not begun never will; some at a time."""
    skipped = yield query("skip_items", cart=book.id, limit=_CHUNK)
    book.count(ItemState.SKIPPED, len(skipped))
    rows = yield query("waiting_runs_of_cart", cart=book.id, limit=_CHUNK)
    yield from hold_gates({row["job_id"] for row in rows})
    for state, cause, runs in (
        (RunState.SKIPPED, Cause.CART, [RunId(r["id"]) for r in rows if not r["attempt"]]),
        (RunState.CANCELLED, Cause.CANCELLED, [RunId(r["id"]) for r in rows if r["attempt"]]),
    ):
        yield from end_waiting(now, runs, EndOfWait(state, cause), effects)
    yield from release_jobs(now, {row["job_id"] for row in rows}, effects)
    for state in WAITING_STATES:
        del book.in_flight[state]
    effects.carts = True


def _end(now: int, book: Book, state: CartState) -> Script[None]:
    book.state, book.reason, book.ending, book.look_at = state, "", None, None
    book.ended_at = now
    yield _tell(now, book, "cart.finished", state=state, failed=book.failed)


def hold_carts_of(runs: Sequence[str]) -> Script[list[CartId]]:
    """The carts of these runs, locked: their failures are about to be counted."""
    if not runs:
        return []
    rows = yield query("carts_of_runs", ids=runs)
    carts = sorted(CartId(row["cart"]) for row in rows)
    if carts:
        yield lock("carts", ids=carts)
    return carts


def judge(now: int, carts: list[CartId], gates: Collection[str], effects: Effects) -> Script[None]:
    """Count failures in the transaction in which they happened, before anything new can start.

    `gates` are those that it holds.
    """
    if not carts:
        return
    for book in (yield from open_books(now, carts)):
        facts = yield from facts_of(book)
        match decide(facts, instant(now)):
            case Breach(then):
                yield from breach(now, book, then, effects, gates)
            case SkipRest():
                book.look_at = now  # what would be tried again keeps it from ending
            case _:
                pass
        yield book.save()
    effects.carts = True


def _tell(now: int, book: Book, event: str, *, actor: str = _ACTOR, **data: object) -> Many:
    return record(event, now, [book.id], actor=actor, **data)
