"""Rate limits, named resources and quotas, and how much of them is there."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rota.domain.ids import instant, micros
from rota.domain.jobfile.declarations import MOST_TOTAL
from rota.domain.jobfile.demands import MOST_TOKENS
from rota.domain.jobfile.parts import SHORTEST
from rota.domain.keys import (
    MINUTE_QUOTA,
    OUTPUT_QUOTA,
    READERS,
    RUNNING_QUOTA,
    Each,
    KeyState,
    Limit,
    Quota,
    Rate,
    Resource,
    Sharing,
)
from rota.domain.quantities import format_duration, parse_duration
from rota.operations.differences import Change
from rota.operations.limits import DeclarationChange, Standing, in_words
from rota.ports.limits import KeyUse
from rota.server.gateway.shapes.models import Answer, Body, Duration

# Strict: JSON's `true` is no number, nor is "10".
Tokens = Annotated[int, Field(strict=True, ge=1, le=MOST_TOKENS)]
Units = Annotated[int, Field(strict=True, ge=1, le=MOST_TOTAL)]
Most = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
Bytes = Annotated[int, Field(strict=True, ge=0, le=2**50)]


class BucketShape(Answer):
    """A token bucket as it stands."""

    tokens: int  # whole ones that are there now
    next_token_at: datetime | None  # None: there is one, or none comes for ages
    queued: int  # tokens that queued runs take once a worker claims them
    waiting: int  # runs that are BLOCKED on it

    @classmethod
    def of(cls, use: KeyUse, now: datetime) -> BucketShape:
        rule, at = use.state.rule, micros(now)
        assert isinstance(rule, Rate), "only rates have buckets"
        bucket = use.state.bucket_of(rule, at)
        ready = bucket.foreseen_at(1, at)
        return cls(
            tokens=max(int(bucket.level_at(at)), 0),
            next_token_at=instant(ready) if ready is not None and ready > at else None,
            queued=use.state.queued,
            waiting=use.waiting,
        )


class UseShape(Answer):
    """Who has what of a number of units. Of a read/write group a writer counts as one too."""

    held: int  # by live runs
    queued: int  # units that queued runs take once a worker claims them
    waiting: int  # runs that are BLOCKED on it
    holders: list[str]  # ids of the live runs, the oldest first; at most 10

    @classmethod
    def of(cls, use: KeyUse, *, is_group: bool = False) -> UseShape:
        held, queued = use.state.held, use.state.queued
        return cls(
            held=_members(held) if is_group else held,
            queued=_members(queued) if is_group else queued,
            waiting=use.waiting,
            holders=list(use.holders),
        )


def _members(amount: int) -> int:
    writers, readers = divmod(amount, READERS)
    return writers + readers


class LimitShape(Answer):
    """How many tokens runs may take in a time."""

    project: str
    name: str
    tokens: int
    per: str
    burst: int
    each: Each | None  # who has tokens of their own; None: the jobs that name it share them
    words: str
    bucket: BucketShape | None  # None: each job or user has one
    updated_by: str
    updated_at: datetime

    @classmethod
    def of(cls, standing: Standing[Limit]) -> LimitShape:
        limit = standing.declaration
        use = standing.uses.get(limit.name)
        return cls(
            project=limit.project,
            name=limit.name,
            tokens=limit.tokens,
            per=format_duration(limit.per),
            burst=limit.burst,
            each=limit.each or None,
            words=in_words(limit),
            bucket=None if use is None else BucketShape.of(use, standing.now),
            updated_by=standing.updated_by,
            updated_at=standing.updated_at,
        )


def _long_enough(text: str) -> str:
    if parse_duration(text) < SHORTEST:
        raise ValueError(f"at least {format_duration(SHORTEST)}")
    return text


class LimitBody(Body):
    tokens: Tokens
    per: Annotated[Duration, AfterValidator(_long_enough)]
    burst: Tokens | None = None  # how many may be taken at once; None: as many as `tokens`
    each: Literal["job", "user", "project"] | None = None  # None: for the jobs that name it

    def limit(self, project: str, name: str) -> Limit:
        return Limit(
            project,
            name,
            self.tokens,
            parse_duration(self.per),
            self.burst or self.tokens,
            Each(self.each or ""),
        )


class ResourceShape(Answer):
    """Something that runs share whichever worker they are on."""

    project: str
    name: str
    kind: Sharing
    total: int | None  # None: any number of readers, or one writer
    words: str
    use: UseShape
    is_written: bool  # a writer has the read/write group for itself
    updated_by: str
    updated_at: datetime

    @classmethod
    def of(cls, standing: Standing[Resource]) -> ResourceShape:
        resource = standing.declaration
        is_group = resource.sharing is Sharing.READ_WRITE
        use = standing.uses.get(resource.name) or KeyUse(KeyState(resource.rule))  # just deleted
        return cls(
            project=resource.project,
            name=resource.name,
            kind=resource.sharing,
            total=None if is_group else resource.total,
            words=in_words(resource),
            use=UseShape.of(use, is_group=is_group),
            is_written=is_group and use.state.held >= READERS,
            updated_by=standing.updated_by,
            updated_at=standing.updated_at,
        )


class ResourceBody(Body):
    """Either a number of units, or a kind that needs none."""

    kind: Sharing = Sharing.COUNTED
    total: Units | None = None

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> ResourceBody:
        if (self.kind is Sharing.COUNTED) != (self.total is not None):
            raise ValueError("give either `total`, or `kind`: mutex or read_write")
        return self

    def resource(self, project: str, name: str) -> Resource:
        return Resource(project, name, self.total or 1, self.kind)


class QuotaShape(Answer):
    """What a project may have, and has. None: as much as it likes."""

    project: str
    jobs_now: int
    queued_now: int
    jobs: int | None = None
    queued: int | None = None  # runs that wait; more are refused
    running: int | None = None
    runs_per_minute: int | None = None
    use: UseShape | None = None  # of `running`
    bucket: BucketShape | None = None  # of `runs_per_minute`
    output_bytes_per_day: int | None = None
    output: BucketShape | None = None  # of `output_bytes_per_day`: a token is a byte
    updated_by: str | None = None  # None: nobody has set one
    updated_at: datetime | None = None

    def with_quota(self, standing: Standing[Quota]) -> QuotaShape:
        """The same of a project for which somebody has set one."""
        quota, uses = standing.declaration, standing.uses
        running, minute = uses.get(RUNNING_QUOTA), uses.get(MINUTE_QUOTA)
        output = uses.get(OUTPUT_QUOTA)
        return QuotaShape(
            project=self.project,
            jobs_now=self.jobs_now,
            queued_now=self.queued_now,
            jobs=quota.jobs,
            queued=quota.queued,
            running=quota.running,
            runs_per_minute=quota.runs_per_minute,
            use=None if running is None else UseShape.of(running),
            bucket=None if minute is None else BucketShape.of(minute, standing.now),
            output_bytes_per_day=quota.output_bytes_per_day,
            output=None if output is None else BucketShape.of(output, standing.now),
            updated_by=standing.updated_by,
            updated_at=standing.updated_at,
        )


class QuotaBody(Body):
    """All of it: what is left out is not limited."""

    jobs: Most | None = None
    queued: Most | None = None
    running: Most | None = None
    runs_per_minute: Most | None = None
    output_bytes_per_day: Bytes | None = None

    def quota(self, project: str) -> Quota:
        return Quota(project, **self.model_dump())


class DeclarationChangeShape(Answer):
    """What saving does, or would do."""

    name: str  # "": the quota
    change: Change
    words: str
    differences: list[str]
    applied: bool

    @classmethod
    def of(cls, change: DeclarationChange, *, applied: bool) -> DeclarationChangeShape:
        return cls(
            name=change.name,
            change=change.change,
            words=change.words,
            differences=list(change.differences),
            applied=applied,
        )
