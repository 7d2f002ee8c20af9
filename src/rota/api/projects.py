"""Projects, what they may ask for, and pools that are given to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.api.answers import UNSENT, Answer, ChangeWord, Instant
from rota.api.runs import IsolationWord, NetworkWord


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
    is_private: bool = False  # plain processes may not run there while several projects use it
    refuses_processes: bool = False  # several do, and it or the installation keeps processes out
    max: Mapping[str, str] = {}  # the most that one run may ask for; what is missing: any


class Defaults(Answer, frozen=True, kw_only=True):
    """Walls of jobs that name none, written into them when they are applied."""

    isolation: IsolationWord
    network: NetworkWord = ""  # of jobs behind a wall
    # Plain processes may run in pools that several projects use, unless these are private.
    has_shared_process: bool = False
