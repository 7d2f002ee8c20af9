"""What people declare about keys that runs share: rate limits, named resources, quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, TypeAlias

from rota.domain.shared_keys import Counted, KeyKind, KeyRule, Rate

READERS = 1_000_000  # of a read/write group: a writer takes all of it
# Names of the keys behind a quota.
RUNNING_QUOTA, MINUTE_QUOTA, OUTPUT_QUOTA = "running", "runs-per-minute", "output-bytes-per-day"
WAITING_QUOTA = "queued"  # nobody takes of it: whoever submits runs counts under its lock
_MINUTE, _DAY = 60.0, 86_400.0


class Each(StrEnum):
    """For whom a limit has a bucket of its own; then it is for all runs of the project."""

    NOBODY = ""  # one bucket, for the jobs that name it
    JOB = "job"
    USER = "user"
    PROJECT = "project"


class Sharing(StrEnum):
    """How runs share a named resource."""

    COUNTED = "counted"
    MUTEX = "mutex"
    READ_WRITE = "read_write"


@dataclass(frozen=True, slots=True)
class Limit:
    """`limits: [{name: s3-put, tokens: 10, per: 1s, burst: 10}]`."""

    project: str
    name: str
    tokens: int
    per: timedelta
    burst: int
    each: Each = Each.NOBODY

    @property
    def rule(self) -> KeyRule:
        return Rate(self.tokens, self.per.total_seconds(), self.burst)


@dataclass(frozen=True, slots=True)
class Resource:
    """`resources: [{name: pg-license, total: 4}]`."""

    project: str
    name: str
    total: int = 1
    sharing: Sharing = Sharing.COUNTED

    @property
    def rule(self) -> KeyRule:
        return Counted(READERS if self.sharing is Sharing.READ_WRITE else self.total)


@dataclass(frozen=True, slots=True)
class Quota:
    """What a project may have. None: as much as it likes."""

    name: ClassVar[str] = ""  # a project has one

    project: str
    jobs: int | None = None
    queued: int | None = None  # runs that wait; more are refused
    running: int | None = None
    runs_per_minute: int | None = None
    output_bytes_per_day: int | None = None  # of all attempts, charged when they end

    @property
    def rules(self) -> Mapping[str, KeyRule]:
        """The keys that every run of the project takes one of, by name.

        Of output that is the first byte: the rest is charged when it is known.
        """
        rules: dict[str, KeyRule] = {}
        if self.runs_per_minute is not None:
            rules[MINUTE_QUOTA] = Rate(self.runs_per_minute, _MINUTE, self.runs_per_minute)
        if self.running is not None:
            rules[RUNNING_QUOTA] = Counted(self.running)
        if self.output_bytes_per_day is not None:
            rules[OUTPUT_QUOTA] = Rate(self.output_bytes_per_day, _DAY, self.output_bytes_per_day)
        return rules


Declaration: TypeAlias = Limit | Resource | Quota

KINDS: Mapping[type[Limit | Resource | Quota], KeyKind] = {
    Limit: KeyKind.RATE,
    Resource: KeyKind.RESOURCE,
    Quota: KeyKind.QUOTA,
}
