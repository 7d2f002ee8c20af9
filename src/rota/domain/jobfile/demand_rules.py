"""What a job's demands must satisfy, given its other fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.domain.jobfile.build import Document
from rota.domain.jobfile.kinds import INVALID
from rota.domain.jobfile.report import At, refuse_repeated
from rota.domain.jobfile.wording import did_you_mean
from rota.domain.resources import SLOTS
from rota.domain.schedule.quoting import quoted


def check_demands(document: Document, written: Mapping[str, object], at: At) -> None:
    """Apply every rule. `written` is the job before its fields were checked and merged."""
    _check_resources(document.get("resources", {}), at.child("resources"))
    _check_rate_limits(document.get("rate_limits", ()), at.child("rate_limits"))
    if "inputs" in document or written.get("inputs") is None:
        _check_exclusive(document, at.child("exclusive_by"))
    if after := document.get("after"):
        _check_after(document, after, at.child("after"))


def jobs_of_after(at: At) -> At:
    """The position of the names under `after`, which may be the whole of it."""
    jobs = at.child("jobs")
    return jobs if jobs.mark else at


def _check_resources(resources: Document, at: At) -> None:
    if SLOTS in resources:
        at.child(SLOTS).refuse_key(f"{SLOTS} are not asked for: every run takes one")
    memory = resources.get("memory")
    if isinstance(memory, int | float) and memory:
        hint = f"write a size: {memory:g}GiB"
        at.child("memory").refuse(f"memory must be a size such as 4GiB, not {memory:g}", hint)


def _check_rate_limits(limits: Sequence[Any], at: At) -> None:
    first: dict[str, At] = {}
    for index, limit in enumerate(limits):
        if limit is not INVALID and (name := limit.get("name")):
            refuse_repeated(f"limit {name}", name, at.child(index), first)


def _check_exclusive(document: Document, at: At) -> None:
    first: dict[str, At] = {}
    inputs = document.get("inputs", {})
    for index, name in enumerate(document.get("exclusive_by", ())):
        if name is INVALID:
            continue
        refuse_repeated(f"input {name}", name, at.child(index), first)
        if name not in inputs:
            hint = did_you_mean(name, inputs) or "declare it under inputs"
            at.child(index).refuse(f"the job has no input {quoted(name)}", hint)


def _check_after(document: Document, after: Document, at: At) -> None:
    first: dict[str, At] = {}
    for index, name in enumerate(after.get("jobs", ())):
        if name is not INVALID:
            refuse_repeated(f"job {name}", name, jobs_of_after(at).child(index), first)
    if "schedule" in document:
        return
    if "within" in after:
        message = '"within" needs a schedule: without one no run waits'
        at.child("within").refuse_key(message, "leave it out")
    for name, given in document.get("inputs", {}).items():
        if given is not INVALID and given.get("default") is None:
            message = f"nobody gives input {quoted(name)} to a run that follows another"
            at.refuse(message, "give it a default")
