"""Rate limits, named resources, quotas and shares, and how much of them is there."""

from __future__ import annotations

from typing import Annotated

from rota.api.answers import UNSENT, Answer, ChangeWord, Instant, one_of

Each = Annotated[str, one_of("For whom a limit has a bucket of its own.", "job", "user", "project")]
Sharing = Annotated[
    str, one_of("How runs share a named resource.", "counted", "mutex", "read_write")
]


class Bucket(Answer, frozen=True, kw_only=True):
    """A token bucket as it stands."""

    tokens: int = 0  # whole ones that are there now
    next_token_at: Instant | None = None  # None: there is one, or none comes for ages
    queued: int = 0  # tokens that queued runs take once a worker claims them
    waiting: int = 0  # runs that are BLOCKED on it


class Use(Answer, frozen=True, kw_only=True):
    """Who has what of a number of units. Of a read/write group a writer counts as one too."""

    held: int = 0  # by live runs
    queued: int = 0  # units that queued runs take once a worker claims them
    waiting: int = 0  # runs that are BLOCKED on it
    holders: tuple[str, ...] = ()  # ids of the live runs, the oldest first; at most 10


class Limit(Answer, frozen=True, kw_only=True):
    """How many tokens runs may take in a time."""

    project: str = "default"
    name: str
    tokens: int = 0
    per: str = ""
    burst: int = 0
    each: Each | None = None  # who has tokens of their own; None: the jobs that name it share them
    words: str = ""
    bucket: Bucket | None = None  # None: each job or user has one
    updated_by: str = ""
    updated_at: Instant = UNSENT


class Resource(Answer, frozen=True, kw_only=True):
    """Something that runs share whichever worker they are on."""

    project: str = "default"
    name: str
    kind: Sharing = ""
    total: int | None = None  # None: any number of readers, or one writer
    words: str = ""
    use: Use = Use()
    is_written: bool = False  # a writer has the read/write group for itself
    updated_by: str = ""
    updated_at: Instant = UNSENT


class Quota(Answer, frozen=True, kw_only=True):
    """Limits of a project, and what it has. None: as much as it likes."""

    project: str = "default"
    jobs_now: int = 0
    queued_now: int = 0
    jobs: int | None = None
    queued: int | None = None  # runs that wait; more are refused
    running: int | None = None
    runs_per_minute: int | None = None
    use: Use | None = None  # of `running`
    bucket: Bucket | None = None  # of `runs_per_minute`
    output_bytes_per_day: int | None = None
    output: Bucket | None = None  # of `output_bytes_per_day`: a token is a byte
    file_bytes: int | None = None  # of uploads, inputs and artifacts that are kept
    file_bytes_now: int = 0
    updated_by: str | None = None  # None: nobody has set one
    updated_at: Instant | None = None


class DeclarationChange(Answer, frozen=True, kw_only=True):
    """Effect that saving has, or would have."""

    name: str = ""  # "": the quota
    change: ChangeWord
    words: str = ""
    differences: tuple[str, ...] = ()
    applied: bool = False


class Share(Answer, frozen=True, kw_only=True):
    """How much of a pool a share gets against others."""

    share: str  # a project, a user in it (project/user), or the key that jobs name
    weight: float = 1.0
    updated_by: str = ""
    updated_at: Instant = UNSENT
