"""Rate limits, named resources, quotas and shares as tables and pages."""

from __future__ import annotations

from datetime import datetime

from rota.cli import times
from rota.cli.failures import counted
from rota.cli.printing import ListView
from rota.cli.table import Column, write_pairs
from rota.cli.terminal import Terminal
from rota.sdk.limit_answers import Bucket, Limit, Quota, Resource, Share, Use

_NOTHING = "–"


def _tokens(limit: Limit) -> str:
    if limit.bucket is None:
        return f"a bucket for each {limit.each}"
    return f"{limit.bucket.tokens:,} of {limit.burst:,}"


def _next(bucket: Bucket | None, present: datetime) -> str:
    return _NOTHING if bucket is None else times.moment(bucket.next_token_at, present)


def _in_use(resource: Resource) -> str:
    held = resource.use.held
    if resource.total is not None:
        return f"{held:,} of {resource.total:,}"
    return "1 writer" if resource.is_written else counted(held, "reader")


def _holders(use: Use) -> str:
    return " ".join(use.holders)


LIMITS: ListView[Limit] = ListView(
    columns=(
        Column("NAME", lambda limit: limit.name, is_whole=True),
        Column("ALLOWS", lambda limit: limit.words),
        Column("TOKENS", _tokens),
        Column("NEXT", lambda limit: _next(limit.bucket, times.now())),
        Column("WAITING", lambda limit: f"{limit.bucket.waiting:,}" if limit.bucket else _NOTHING),
        Column(
            "CHANGED", lambda limit: times.moment(limit.updated_at, times.now()), only_wide=True
        ),
        Column("BY", lambda limit: limit.updated_by, only_wide=True),
    ),
    name=lambda limit: limit.name,
    empty="no limits; set one with: rota limit set NAME --tokens 10 --per 1s",
)

RESOURCES: ListView[Resource] = ListView(
    columns=(
        Column("NAME", lambda resource: resource.name, is_whole=True),
        Column("ALLOWS", lambda resource: resource.words),
        Column("IN USE", _in_use),
        Column("WAITING", lambda resource: f"{resource.use.waiting:,}"),
        Column("HELD BY", lambda resource: _holders(resource.use) or _NOTHING),
        Column(
            "CHANGED",
            lambda resource: times.moment(resource.updated_at, times.now()),
            only_wide=True,
        ),
        Column("BY", lambda resource: resource.updated_by, only_wide=True),
    ),
    name=lambda resource: resource.name,
    empty="no resources; set one with: rota resource set NAME --total 4",
)

SHARES: ListView[Share] = ListView(
    columns=(
        Column("SHARE", lambda share: share.share, is_whole=True),
        Column("WEIGHT", lambda share: f"{share.weight:g}"),
        Column("CHANGED", lambda share: times.moment(share.updated_at, times.now())),
        Column("BY", lambda share: share.updated_by),
    ),
    name=lambda share: share.share,
    empty="all shares weigh 1; set one with: rota share set SHARE --weight 2",
)


def write_limit(terminal: Terminal, limit: Limit, present: datetime) -> None:
    """A rate limit on one page."""
    pairs = [("limit", limit.name), ("allows", limit.words), ("tokens", _tokens(limit))]
    if limit.bucket is not None:
        pairs += [
            ("queued runs take", _amount(limit.bucket.queued)),
            ("next token", _next(limit.bucket, present) if limit.bucket.next_token_at else ""),
            ("waiting", counted(limit.bucket.waiting, "run")),
        ]
    write_pairs(terminal, [*pairs, *_changed(limit, present)])


def write_resource(terminal: Terminal, resource: Resource, present: datetime) -> None:
    """A named resource on one page."""
    write_pairs(
        terminal,
        [
            ("resource", resource.name),
            ("allows", resource.words),
            ("in use", _in_use(resource)),
            ("held by", _holders(resource.use)),
            ("queued runs take", _amount(resource.use.queued)),
            ("waiting", counted(resource.use.waiting, "run")),
            *_changed(resource, present),
        ],
    )


def write_quota(terminal: Terminal, quota: Quota, present: datetime) -> None:
    """What a project may have, and what it has of it."""
    running = f", {_live(quota.use)}" if quota.use else ""
    write_pairs(
        terminal,
        [
            ("project", quota.project),
            ("jobs", f"{_most(quota.jobs)}, {quota.jobs_now:,} now"),
            ("queued", f"{_most(quota.queued)}, {quota.queued_now:,} now"),
            ("running", _most(quota.running) + running),
            ("runs per minute", _most(quota.runs_per_minute) + _left(quota.bucket)),
            ("output bytes per day", _most(quota.output_bytes_per_day) + _left(quota.output)),
            *_changed(quota, present),
        ],
    )


def _left(bucket: Bucket | None) -> str:
    return f", {bucket.tokens:,} left now{_waiting(bucket.waiting)}" if bucket else ""


def _live(use: Use) -> str:
    queued = f", {use.queued:,} queued" if use.queued else ""
    return f"{use.held:,} now{queued}{_waiting(use.waiting)}"


def _waiting(runs: int) -> str:
    return f", {counted(runs, 'run')} waiting" if runs else ""


def _most(number: int | None) -> str:
    return "unlimited" if number is None else f"at most {number:,}"


def _amount(number: int) -> str:
    return f"{number:,}" if number else ""


def _changed(declared: Limit | Resource | Quota, present: datetime) -> list[tuple[str, str]]:
    if declared.updated_at is None:
        return []
    changed = times.moment(declared.updated_at, present)
    return [("changed", changed), ("by", declared.updated_by or "")]
