"""Files that Rota keeps: uploads, and artifacts of runs."""

from __future__ import annotations

from rota.api.answers import UNSENT, Answer, Instant


class Upload(Answer, frozen=True, kw_only=True):
    """A file of a project, which jobs and inputs may name by its digest."""

    digest: str  # `sha256:` and 64 hexadecimal digits
    size: int  # bytes


class Artifact(Answer, frozen=True, kw_only=True):
    """A file that a step of a run left behind."""

    run: str
    attempt: int
    step: int  # from 0
    path: str  # below the work folder
    digest: str
    size: int  # bytes
    kept_at: Instant = UNSENT
    keep_until: Instant = UNSENT  # it may be gone afterwards
