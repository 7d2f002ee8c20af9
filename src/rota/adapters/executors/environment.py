"""The environment a job sees: clean, plus what Rota tells it and what the job names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from rota.domain.ids import instant
from rota.domain.spec import JobSpec
from rota.ports.executor import Assignment

_INHERITED = ("PATH", "HOME", "LANG", "TZ")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def inherited() -> dict[str, str]:
    """What a job gets from the worker's own environment."""
    base = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    base.setdefault("PATH", _DEFAULT_PATH)
    base.setdefault("HOME", "/")
    base.setdefault("LANG", "C.UTF-8")
    return base


def told_by_rota(assignment: Assignment, output: Path, progress: Path) -> dict[str, str]:
    """Who the job is, and where it may leave results and progress."""
    work, spec = assignment.work, assignment.spec
    cart = {"ROTA_CART": work.cart, "ROTA_ITEM": work.item}
    return {name: value for name, value in cart.items() if value is not None} | {
        "ROTA_RUN_ID": work.run,
        "ROTA_JOB": spec.name,
        "ROTA_PROJECT": spec.project,
        "ROTA_DUE_AT": instant(work.due_at)
        .isoformat(timespec="microseconds")
        .replace("+00:00", "Z"),
        "ROTA_ATTEMPT": str(work.attempt),
        "ROTA_FENCE": str(work.attempt),
        "ROTA_OUTPUT": str(output),
        "ROTA_PROGRESS": str(progress),
        "TRACEPARENT": traceparent(work.run, work.attempt),
    }


def given_inputs(spec: JobSpec, inputs: Mapping[str, object] | None) -> dict[str, str]:
    """Inputs as `INPUT_*` variables: never pasted into a shell line.

    A run that nobody asked for by hand has those that the job gives them by default.
    """
    defaults = {n: each.default for n, each in spec.inputs.items() if each.default is not None}
    values = {**defaults, **(inputs or {})}
    return {f"INPUT_{name.upper()}": as_text(value) for name, value in values.items()}


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def traceparent(run: str, attempt: int) -> str:
    """A W3C trace context: the run is the trace, the attempt is the span."""
    trace = hashlib.blake2b(run.encode(), digest_size=16).hexdigest()
    span = hashlib.blake2b(f"{run}/{attempt}".encode(), digest_size=8).hexdigest()
    return f"00-{trace}-{span}-01"
