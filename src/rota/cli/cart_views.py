"""Tables and pages of carts and their items."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime

from rota.api.carts import Cart, CartDetail, CartItem, CartPlan, FailureGroup, StrandedItem
from rota.cli import times
from rota.cli.failures import counted
from rota.cli.printing import Column, ListView, write_pairs
from rota.cli.terminal import Terminal, inert

_NOTHING = "–"
_REASONS = {
    "person": "by a person",
    "failures": "too many failed",
    "check": "for the check between two waves",
    "job": "a job is gone",
    "soak": "between two waves",
    "approval": "for approval",
    "window": "for its calendars",
    "quota": "for the project's quota of runs that wait",
    "cancelling": "being cancelled",
}


def standing(cart: Cart) -> str:
    """Return `running`, `paused: too many failed`."""
    reason = _reason(cart)
    return f"{cart.state.lower()}: {reason}" if reason else cart.state.lower()


def _detail(cart: Cart) -> str:
    return _reason(cart) or cart.title or cart.description or _NOTHING


def _reason(cart: Cart) -> str:
    if (cart.state, cart.reason) == ("PAUSED", "check"):
        return "the check did not complete"
    return _REASONS.get(cart.reason, cart.reason)


CARTS: ListView[Cart] = ListView(
    columns=(
        Column("CART", lambda cart: cart.id, is_id=True),
        Column("NAME", lambda cart: cart.name),
        Column("STATE", lambda cart: cart.state.lower(), is_state=True),
        Column("ENDED", lambda cart: f"{cart.done:,} of {cart.items:,}"),
        Column("FAILED", lambda cart: f"{cart.failed:,}"),
        Column(
            "STARTED",
            lambda cart: times.moment(cart.started_at, times.now()),
            narrower=[lambda cart: times.distance(cart.started_at, times.now())],
        ),
        Column("DETAIL", _detail),
        Column("BY", lambda cart: cart.created_by, only_wide=True),
        Column("JOB", lambda cart: cart.job or _NOTHING, only_wide=True),
        Column("ORDER", lambda cart: cart.order, only_wide=True),
        Column("OPEN", lambda cart: f"{cart.open:,}", only_wide=True),
        Column("SKIPPED", lambda cart: f"{cart.skipped:,}", only_wide=True),
    ),
    name=lambda cart: cart.id,
    empty="no carts match; submit one with: rota cart submit FILE",
)

ITEMS: ListView[CartItem] = ListView(
    columns=(
        Column("ITEM", lambda item: item.key, is_whole=True),
        Column("WAVE", lambda item: str(item.wave)),
        Column("STATE", lambda item: _state_of_item(item), is_state=True),
        Column("RUN", lambda item: item.run or _NOTHING, is_id=True),
        Column("DETAIL", lambda item: item.message or item.cause or _NOTHING),
        Column("JOB", lambda item: f"{item.job} (version {item.job_version})", only_wide=True),
        Column("RUNS", lambda item: str(item.runs), only_wide=True),
        Column("INPUTS", lambda item: _inputs(item), only_wide=True),
        Column("NEEDS", lambda item: _needs(item), only_wide=True),
    ),
    name=lambda item: item.key,
    empty="no items match",
)


def _state_of_item(item: CartItem) -> str:
    """Return the state of an item; for an open one that of its run, which says more."""
    return (item.run_state if item.state == "OPEN" and item.run_state else item.state).lower()


def _inputs(item: CartItem) -> str:
    given = (item.inputs or {}).items()
    return " ".join(f"{name}={json.dumps(value)}" for name, value in given) or _NOTHING


def _needs(item: CartItem) -> str:
    return " ".join(f"{name}={value}" for name, value in item.needs.items()) or _NOTHING


def write_cart(terminal: Terminal, cart: CartDetail, present: datetime) -> None:
    """Print a cart on one page, and why its items failed."""
    write_pairs(
        terminal,
        [
            ("cart", cart.id),
            ("name", cart.name),
            ("state", standing(cart)),
            ("waits for", _gate(cart, present)),
            ("items", _counts(cart)),
            ("wave", cart.place),
            ("failures", _budget(cart)),
            ("between waves", _between(cart)),
            ("at a time", "" if cart.max_parallel is None else f"{cart.max_parallel:,}"),
            ("within", f"{cart.within} for a worker that is gone" if cart.within else ""),
            ("job", cart.job),
            ("rollback", cart.rollback),
            ("title", cart.title),
            ("description", cart.description),
            ("submitted", f"{times.moment(cart.created_at, present)} by {cart.created_by}"),
            ("starts", "" if cart.starts_at is None else times.moment(cart.starts_at, present)),
            ("started", "" if cart.started_at is None else times.moment(cart.started_at, present)),
            ("ended", "" if cart.ended_at is None else times.moment(cart.ended_at, present)),
            ("will end", _end(cart, present)),
        ],
    )
    write_stranded(terminal, cart, present)
    write_failure_groups(terminal, cart)
    for action in actions(cart):
        terminal.tell(action)


def write_stranded(terminal: Terminal, cart: CartDetail, present: datetime) -> None:
    """Print which items wait for a worker that is not there."""
    if not cart.stranded:
        return
    terminal.write()
    for item in cart.stranded:
        terminal.write(inert(stranded_in_words(item, present)))


def stranded_in_words(item: StrandedItem, present: datetime) -> str:
    """Return `web-07 waits for worker web-07, which is gone since …; it fails at …`."""
    until = f"; it fails {times.moment(item.until, present)}" if item.until else ""
    return f"{item.key} {item.message}{until}"


def write_failure_groups(terminal: Terminal, cart: CartDetail) -> None:
    """Print why items failed, the most frequent cause first."""
    if not cart.failure_groups:
        return
    terminal.write()
    width = max(len(f"{group.count:,}") for group in cart.failure_groups)
    for group in cart.failure_groups:
        terminal.write(inert(_failure(group, width)))


def actions(cart: Cart) -> Iterator[str]:
    """Yield the commands to type next."""
    if cart.failed and (cart.is_final or cart.state == "PAUSED"):
        yield f"rota cart show {cart.id} --failed"
        yield f"rota cart retry {cart.id} --failed"
    if cart.interrupted and (cart.is_final or cart.state == "PAUSED"):
        yield f"{_interrupted(cart)} · rota cart retry {cart.id} --skipped"
    if cart.state == "PAUSED":
        yield from _failed_check(cart)
        yield f"rota cart resume {cart.id}{_allowance(cart)}"
    if _is_undoable(cart):
        yield f"or undo what it has done · rota cart rollback {cart.id}"
    if cart.state == "WAITING" and cart.reason == "approval":
        yield f"rota cart approve {cart.id}{_coming_wave(cart)}"


def _failed_check(cart: Cart) -> Iterator[str]:
    gate = cart.gate if isinstance(cart, CartDetail) else None
    if gate is not None and gate.check_run:
        yield f"rota logs {gate.check_run}"


def _is_undoable(cart: Cart) -> bool:
    """Return whether it was stopped and has a rollback job that has something to do."""
    failed_too_often = isinstance(cart, CartDetail) and cart.failed_too_often
    is_stopped = failed_too_often or cart.reason == "failures" or cart.state == "CANCELLED"
    return bool(cart.rollback and cart.wave) and is_stopped


def _allowance(cart: Cart) -> str:
    """Return the option to resume it: it must allow as many failures as there are."""
    if not isinstance(cart, CartDetail) or cart.failures_in_scope <= cart.limit:
        return ""
    return f" --allow {cart.failures_in_scope}"


def _coming_wave(cart: Cart) -> str:
    """Return the wave's number: with it the command is harmless if it is typed twice."""
    gate = cart.gate if isinstance(cart, CartDetail) else None
    return "" if gate is None or gate.wave is None else f" --wave {gate.wave}"


def _interrupted(cart: Cart) -> str:
    """Return `2 cancelled, 3 skipped`: items that neither completed nor failed."""
    counts = {"cancelled": cart.cancelled, "skipped": cart.skipped}
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def write_planned(terminal: Terminal, plan: CartPlan) -> None:
    """Print the plan of a cart as data."""
    for line in plan_lines(plan):
        terminal.write(line)


def plan_lines(plan: CartPlan) -> Iterator[str]:
    """Yield the waves, the limit, the duration, and items that no worker can run."""
    yield inert(f"cart {plan}")
    if plan.starts_at is not None:
        yield f"starts {times.moment(plan.starts_at, times.now())}"
    if plan.eta_seconds is None:
        yield "forecast: nobody knows how long its jobs take"
    else:
        width = f", {plan.max_parallel:,} at a time" if plan.max_parallel else ""
        people = ", and until each approval" if plan.between.approve else ""
        yield f"forecast: about {times.length(plan.eta_seconds)}{width}{people}"
    for problem in plan.unrunnable:
        yield inert(f"! {problem}")


def _gate(cart: CartDetail, present: datetime) -> str:
    if cart.gate is None:
        return ""
    parts = [
        cart.gate.waits_for,
        f"of someone with the role {cart.gate.approve_role}" if cart.gate.approve_role else "",
        f"run {cart.gate.check_run}" if cart.gate.check_run else "",
        f"until {times.moment(cart.gate.until, present)}" if cart.gate.until else "",
    ]
    return " · ".join(part for part in parts if part)


def _end(cart: CartDetail, present: datetime) -> str:
    if cart.eta is not None:
        return times.moment(cart.eta, present)
    return "" if cart.is_settled or not cart.between.approve else "after approval"


def _open_runs(cart: CartDetail) -> str:
    """Return ` (1 processing, 2 blocked)`: open does not mean that it runs."""
    runs = [f"{count:,} {state.lower()}" for state, count in cart.progress.runs.items()]
    return f" ({', '.join(runs)})" if runs else ""


def _counts(cart: CartDetail) -> str:
    counts = {
        "completed": cart.completed,
        "failed": cart.failed,
        "cancelled": cart.cancelled,
        "skipped": cart.skipped,
        "open": cart.open,
        "pending": cart.pending,
    }
    said = {"open": _open_runs(cart)}
    parts = [f"{count:,} {state}{said.get(state, '')}" for state, count in counts.items() if count]
    return f"{cart.items:,}: {', '.join(parts)}" if parts else f"{cart.items:,}"


def _budget(cart: CartDetail) -> str:
    scope = " of the wave" if cart.failures.of == "wave" else ""
    share = f" ({cart.failures.allow})" if "%" in str(cart.failures.allow) else ""
    of_all = f"{cart.failures_in_scope:,} of {cart.limit:,}{scope} allowed{share}"
    if cart.failures_in_scope > cart.limit:
        return f"{of_all}, which is too many"
    return f"{of_all}, but too many of an earlier wave" if cart.breached else of_all


def _between(cart: Cart) -> str:
    between = cart.between
    parts = [
        f"wait {between.wait}" if between.wait not in {"", "0s"} else "",
        f"check {between.check}" if between.check else "",
        f"approval by {between.approve}" if between.approve else "",
    ]
    return ", ".join(part for part in parts if part)


def _failure(group: FailureGroup, width: int) -> str:
    example = f" ({group.key}{f', {group.run}' if group.run else ''})"
    cause = group.cause or group.message or "no message"
    return f"{f'{group.count:,}'.rjust(width)} × {cause}{example}"


def verdict(terminal: Terminal, cart: CartDetail) -> str:
    """Return how a cart ended, or that it is paused."""
    state = terminal.state(cart.state)
    if cart.state == "COMPLETED":
        return f"✔ {state}{_took(cart)} · {counted(cart.items, 'item')}"
    mark = "✔" if cart.state == "PARTIAL" and not cart.has_failed else "✖"
    return f"{mark} {state}{_took(cart)} · {cart.summary}"


def _took(cart: Cart) -> str:
    if cart.started_at is None or cart.ended_at is None:
        return ""
    return f" in {times.length((cart.ended_at - cart.started_at).total_seconds())}"
