"""Between rows of the store and values of the domain."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from rota.domain.access import ProjectSet, Role, Verb
from rota.domain.backfill import Backfill, Skipped
from rota.domain.calendars import Calendar
from rota.domain.carts.definition import CartRules
from rota.domain.carts.facts import CartState, ItemState
from rota.domain.ids import BackfillId, CartId, JobId, RunId, ServerId, SessionId, instant, micros
from rota.domain.job import Job, RunRules
from rota.domain.policy import Bounds
from rota.domain.resources import Vector
from rota.domain.run import (
    Attempt,
    AttemptResult,
    LateResult,
    Note,
    OutputState,
    OutputSummary,
    Reason,
    Run,
    StepReport,
    Trigger,
    Usage,
)
from rota.domain.shape import demand_of
from rota.domain.shards import Server, Shard
from rota.domain.spec import Delivery
from rota.domain.states import RunState, seen_state
from rota.ports.carts import Cart, Item
from rota.ports.records import Event, Session, StoredCalendar, Token, offered
from rota.ports.work import Offer, StepOutcome
from rota.store.script import Row

T = TypeVar("T")
K = TypeVar("K")
_calendar_decoder = msgspec.json.Decoder(Calendar)
_offers_decoder = msgspec.json.Decoder(tuple[Offer, ...])
_bounds_decoder = msgspec.json.Decoder(Bounds)
_rules_decoder = msgspec.json.Decoder(RunRules)
_reasons_decoder = msgspec.json.Decoder(tuple[Reason, ...])
_skipped_decoder = msgspec.json.Decoder(tuple[Skipped, ...])
_steps_decoder = msgspec.json.Decoder(tuple[StepOutcome, ...])


def to_json(value: Any) -> str:
    """Compact JSON text."""
    return msgspec.json.encode(value).decode()


def from_json(text: str | None) -> Any:
    """The value of JSON text; None of None."""
    return None if text is None else msgspec.json.decode(text)


def by_kind(items: Iterable[T], kind: Callable[[T], K]) -> dict[K, Sequence[T]]:
    """Items by their kind, in order. Most batches are of one kind, which is found out quickly."""
    all_items = list(items)
    kinds = list(map(kind, all_items))
    if kinds and kinds.count(kinds[0]) == len(kinds):
        return {kinds[0]: all_items}
    found: dict[K, list[T]] = {}
    for each, item in zip(kinds, all_items, strict=True):
        found.setdefault(each, []).append(item)
    return dict(found)


def optional_micros(when: datetime | None) -> int | None:
    return None if when is None else micros(when)


def optional_instant(value: int | None) -> datetime | None:
    return None if value is None else instant(value)


def duration(value: int) -> timedelta:
    return timedelta(microseconds=value)


@lru_cache(maxsize=10_000)
def rules_from(text: str) -> RunRules:
    return _rules_decoder.decode(text)


@lru_cache(maxsize=1_000)
def bounds_from(text: str | None) -> Bounds | None:
    """The bounds of a project; None: it has none, or an earlier release let it come to be."""
    return _bounds_decoder.decode(text) if text else None


def bounds_to(bounds: Bounds) -> str:
    return "" if bounds.are_open else to_json(bounds)


def reasons_to(reasons: tuple[Reason, ...]) -> str | None:
    return to_json(reasons) if reasons else None


def reasons_from(text: str | None) -> tuple[Reason, ...]:
    return _reasons_decoder.decode(text) if text else ()


def like_pattern(text: str | None) -> str | None:
    """A name with `*` wildcards as a LIKE pattern with `\\` as its escape."""
    if text is None:
        return None
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def job_from(row: Row) -> Job:
    return Job(
        id=JobId(row["id"]),
        project=row["project"],
        name=row["name"],
        version=row["version"],
        document=from_json(row["document"]),
        digest=row["digest"],
        set_name=row["set_name"],
        created_by=row["created_by"],
        created_at=instant(row["created_at"]),
        updated_at=instant(row["updated_at"]),
        enabled=bool(row["enabled"]),
        paused=bool(row["paused"]),
        paused_by=row["paused_by"],
        paused_until=optional_instant(row["paused_until"]),
        finished_at=optional_instant(row["finished_at"]),
        schedule_version=row["schedule_version"],
        next_at=optional_instant(row["next_at"]),
        held_from=optional_instant(row["held_from"]),
        anchor=instant(row["anchor"]),
        waits=bool(row["waits"]),
        answered_to=instant(row["answered_to"]),
        expected_seconds=row["expected_seconds"],
        last_state=row["last_state"],
        last_ended_at=optional_instant(row["last_ended_at"]),
        stuck_since=optional_instant(row["stuck_since"]),
        deleted_at=optional_instant(row["deleted_at"]),
    )


def run_from(row: Row) -> Run:
    first = row["first_started_at"]
    return Run(
        id=RunId(row["id"]),
        seq=row["seq"],
        project=row["project"],
        job_id=JobId(row["job_id"]),
        job=row["job"],
        job_version=row["job_version"],
        trigger=Trigger(row["trigger"]),
        state=RunState(row["state"]),
        due_at=instant(row["due_at"]),
        created_at=instant(row["created_at"]),
        created_by=row["created_by"],
        priority=row["priority"],
        pool=row["pool"],
        delivery=Delivery(row["delivery"]),
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        failures=row["failures"],
        losses=row["losses"],
        is_alone=demand_of(row["shape"]).is_alone,
        cause=row["cause"],
        message=row["message"],
        reasons=reasons_from(row["reasons"]),
        eligible_at=optional_instant(row["eligible_at"]),
        queued_at=optional_instant(row["queued_at"]),
        claimed_at=optional_instant(row["claimed_at"]),
        started_at=optional_instant(row["started_at"]),
        first_started_at=optional_instant(first),
        ended_at=optional_instant(row["ended_at"]),
        lateness_seconds=None if first is None else (first - row["release_at"]) / 1e6,
        session=row["session"],
        worker=row["worker"] or "",
        cancel_requested_at=optional_instant(row["cancel_at"]),
        cancel_requested_by=row["cancel_by"],
        exit_code=row["exit_code"],
        signal=row["signal"],
        inputs=from_json(row["inputs"]),
        outputs=from_json(row["outputs"]),
        progress=from_json(row["progress"]),
        handle=from_json(row["handle"]),
        retry_of=row["retry_of"],
        follows=row["follows"],
        commit=row["source_commit"] or "",
        backfill=row["backfill"],
        cart=row["cart"],
        item=row["item"],
        is_late=None if row["is_late"] is None else bool(row["is_late"]),
        deadline_at=optional_instant(row["deadline_at"]),
    )


def backfill_from(row: Row) -> Backfill:
    return Backfill(
        id=BackfillId(row["id"]),
        job_id=JobId(row["job_id"]),
        max_parallel=row["max_parallel"],
        created_by=row["created_by"],
        runs=row["runs"],
        first=optional_instant(row["first"]),
        last=optional_instant(row["last"]),
        skipped=_skipped_decoder.decode(row["skipped"]),
    )


@lru_cache(maxsize=1_000)
def cart_rules_from(text: str) -> CartRules:
    return CartRules.from_document(from_json(text))


def cart_from(row: Row) -> Cart:
    return Cart(
        id=CartId(row["id"]),
        project=row["project"],
        name=row["name"],
        rules=cart_rules_from(row["rules"]),
        document=from_json(row["document"]),
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
        created_by=row["created_by"],
        created_at=instant(row["created_at"]),
        starts_at=optional_instant(row["starts_at"]),
        started_at=optional_instant(row["started_at"]),
        ended_at=optional_instant(row["ended_at"]),
        wave_ended_at=optional_instant(row["wave_ended_at"]),
        look_at=optional_instant(row["look_at"]),
        check_run=row["check_run"],
        approved_by=row["approved_by"],
        breach_wave=row["breach_wave"],
    )


def item_from(row: Row, served: Collection[str]) -> Item:
    """An item, with the state of its run as people see it while these pools have workers."""
    is_served = row["run_pool"] in served
    state = None if row["run_state"] is None else RunState(row["run_state"])
    return Item(
        number=row["number"],
        key=row["key"],
        wave=row["wave"],
        job_id=JobId(row["job_id"]),
        job=row["job"],
        job_version=row["job_version"],
        inputs=from_json(row["inputs"]),
        state=ItemState(row["state"]),
        run=row["run"],
        run_state=None if state is None else seen_state(state, is_served=is_served),
        runs=row["runs"],
        cause=row["cause"],
        message=row["message"] or "",
        needs=from_json(row["needs"]) or {},
    )


def attempt_from(row: Row) -> Attempt:
    return Attempt(
        run=RunId(row["run_id"]),
        number=row["number"],
        session=SessionId(row["session"]),
        worker=row["worker"],
        result=None if row["result"] is None else AttemptResult(row["result"]),
        claimed_at=instant(row["claimed_at"]),
        started_at=optional_instant(row["started_at"]),
        ended_at=optional_instant(row["ended_at"]),
        exit_code=row["exit_code"],
        signal=row["signal"],
        message=row["message"],
        steps=steps_from(row["steps"]),
        usage=Usage(row["cpu_seconds"], row["max_memory"]),
        output=OutputSummary(
            OutputState(row["output_state"]),
            row["output_bytes"],
            row["output_lines"],
            bool(row["truncated"]),
        ),
    )


def outcomes_from(text: str | None) -> tuple[StepOutcome, ...]:
    """Steps as their worker told them."""
    return _steps_decoder.decode(text) if text else ()


def steps_from(text: str | None) -> tuple[StepReport, ...]:
    return tuple(map(_step_from, outcomes_from(text)))


def _step_from(step: StepOutcome) -> StepReport:
    fields = msgspec.structs.asdict(step)
    return StepReport(**{**fields, "started_at": optional_instant(step.started_at or None)})


def note_from(row: Row) -> Note:
    return Note(
        run=RunId(row["run_id"]),
        attempt=row["attempt"],
        at=instant(row["told_at"]),
        first_step=row["first_step"],
        steps=steps_from(row["steps"]),
        output_lines=row["output_lines"],
        output_bytes=row["output_bytes"],
        last_line=row["last_line"],
    )


def late_result_from(row: Row) -> LateResult:
    return LateResult(
        run=RunId(row["run_id"]),
        attempt=row["attempt"],
        session=SessionId(row["session"]),
        received_at=instant(row["received_at"]),
        result=row["result"],
        message=row["message"],
    )


def calendar_from(row: Row) -> StoredCalendar:
    return StoredCalendar(
        project=row["project"],
        calendar=_calendar_decoder.decode(row["document"]),
        version=row["version"],
        updated_by=row["updated_by"],
        updated_at=instant(row["updated_at"]),
    )


@lru_cache(maxsize=1_000)
def offered_from(text: str) -> frozenset[str]:
    """Offers that a worker has, as `kind/name`, of all that it told."""
    return offered(_offers_decoder.decode(text))


def session_from(row: Row, held: int = 0, used: Vector | None = None) -> Session:
    return Session(
        id=SessionId(row["id"]),
        worker=row["worker"],
        pool=row["pool"],
        slots=row["slots"],
        labels=from_json(row["labels"]),
        functions=tuple(from_json(row["functions"])),
        guard_mode=row["guard_mode"],
        version=row["version"],
        lease=duration(row["lease"]),
        registered_at=instant(row["registered_at"]),
        expires_at=instant(row["expires_at"]),
        beats=row["beats"],
        alive=bool(row["alive"]),
        stopping=bool(row["stopping"]),
        server=row["server"],
        stream=row["stream"],
        draining=bool(row["draining"]),
        held=held,
        resources=from_json(row["resources"]),
        used=used or {},
        offers=_offers_decoder.decode(row["offers"]),
        trouble=row["trouble"],
        credential=row["credential"],
        credential_expires_at=optional_instant(row["credential_expires_at"]),
        barred=bool(row["barred"]),
    )


def server_from(row: Row) -> Server:
    return Server(
        id=ServerId(row["id"]),
        name=row["name"],
        url=row["url"],
        roles=tuple(from_json(row["roles"])),
        zone=row["zone"],
        version=row["version"],
        lease=duration(row["lease"]),
        started_at=instant(row["started_at"]),
        expires_at=instant(row["expires_at"]),
        stopping=bool(row["stopping"]),
    )


def shard_from(row: Row) -> Shard:
    owner = None if row["owner"] is None else ServerId(row["owner"])
    return Shard(row["number"], owner, row["epoch"], optional_instant(row["taken_at"]))


def event_from(row: Row) -> Event:
    return Event(
        seq=row["seq"],
        kind=row["kind"],
        at=instant(row["at"]),
        actor=row["actor"],
        project=row["project"],
        ids=tuple(from_json(row["ids"])),
        data=from_json(row["data"]),
    )


def project_filter(wanted: ProjectSet) -> dict[str, object]:
    """The parameters of statements about several projects, or all."""
    projects = (wanted,) if isinstance(wanted, str) else wanted or ()
    return {"any_project": int(wanted is None), "projects": projects}


def token_from(row: Row) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        created_at=instant(row["created_at"]),
        created_by=row["created_by"],
        expires_at=optional_instant(row["expires_at"]),
        last_used_at=optional_instant(row["last_used_at"]),
        revoked_at=optional_instant(row["revoked_at"]),
        pool=row["pool"],
        uses_left=row["uses_left"],
        is_renewable=row["lifetime"] is not None,
        kind=row["kind"],
        principal=row["principal"],
        project=row["project"],
        verbs=verbs_from(row["verbs"]),
        shown=row["shown"],
    )


def verbs_from(text: str | None) -> frozenset[Verb] | None:
    """Verbs that this release does not know narrow a token all the same."""
    if text is None:
        return None
    return frozenset(Verb(each) for each in from_json(text) if each in set(Verb))
