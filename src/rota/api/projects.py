"""Projects, what they may ask for, and pools that are given to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.api.answers import UNSENT, Answer, ChangeWord, Instant


class Project(Answer, frozen=True, kw_only=True):
    """A tenant: jobs, runs and all that belongs to them are of one."""

    name: str
    title: str = ""
    # The most that its jobs may ask for; what is missing has no bound.
    policy: Mapping[str, Any] = {}
    # Fields of jobs that neither they nor their file set.
    defaults: Mapping[str, Any] = {}
    version: int = 0  # also the ETag
    created_by: str = ""
    created_at: Instant = UNSENT
    updated_by: str = ""
    updated_at: Instant = UNSENT


class ProjectChange(Answer, frozen=True, kw_only=True):
    """What changing a project does, or would do."""

    name: str
    change: ChangeWord
    version: int = 0
    differences: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()  # jobs that start nothing by the new policy; at most 20
    applied: bool = False


class Pool(Answer, frozen=True, kw_only=True):
    """A pool of workers, and who may use it."""

    name: str
    workers: int = 0  # that are connected now
    is_shared: bool = True  # all projects may use it
    projects: tuple[str, ...] = ()  # else those that may, of the projects that the caller may see
    other_projects: int = 0  # how many more
