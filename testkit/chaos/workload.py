"""Jobs that leave evidence, and what their definitions promise."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from testkit.evidence import Evidence

SECOND = timedelta(seconds=1)
_CANARIES = 6
BEAT = timedelta(milliseconds=200)
GRACE = SECOND
PROBE = "probe"
LASTING = "lasting"
_SCHEDULING = frozenset({"schedule", "misfire", "overlap"})
_NEVER_QUARANTINED = 100
# The guardian's first child is the worker.
_KILL_THE_WORKER = "set -- $(cat /proc/$PPID/task/$PPID/children); kill -9 $1; sleep 100"
# Ends with the digest of what it printed as its output value.
_PRINT = """seq 1 20000 | tee numbers
printf '"%s"' "$(sha256sum <numbers | cut -d' ' -f1)" >$ROTA_OUTPUT"""


@dataclass(frozen=True, slots=True)
class Promise:
    """Job, and what its definition lets a judge expect. None and False: nothing."""

    job: str
    script: str
    fields: dict[str, Any] = field(default_factory=dict)  # of its definition, beside the script
    interval: timedelta | None = None  # between due times
    catches_up: bool = False  # every due time runs, however late
    ends_well: bool = True  # every run does, unless it is a question for a person
    most_at_once: int | None = None
    max_failures: int = 1
    backoff: timedelta = timedelta(0)
    at_most_once: bool = False
    is_cancelled: bool = False  # the client cancels its runs
    prints: bool = False

    def document(self) -> dict[str, Any]:
        limits = {"max_losses": _NEVER_QUARANTINED, "grace": f"{GRACE.seconds}s"}
        return {"name": self.job, "steps": [{"run": self.script}], **limits, **self.fields}

    def unscheduled(self) -> Promise:
        """Return the job without its schedule."""
        fields = {name: value for name, value in self.fields.items() if name not in _SCHEDULING}
        return replace(self, fields=fields)


def job_file(promises: Sequence[Promise]) -> str:
    return json.dumps({"jobs": [promise.document() for promise in promises]})


def scheduled(evidence: Evidence) -> list[Promise]:
    """Return jobs with a schedule."""
    return [*_canaries(evidence), *_clocks(evidence), _single(evidence)]


def on_demand(evidence: Evidence) -> list[Promise]:
    """Return jobs that the client triggers."""
    return [
        Promise("long", evidence.script(evidence.beats(50, BEAT))),
        Promise(
            "narrow",
            evidence.script(evidence.beats(5, BEAT)),
            {"max_concurrency": 2},
            most_at_once=2,
        ),
        _failing(evidence),
        Promise(
            "payout",
            evidence.script(evidence.beats(10, BEAT)),
            {"delivery": "at_most_once"},
            at_most_once=True,
        ),
        _endless(evidence),
        Promise("printing", evidence.script(_PRINT), prints=True),
    ]


def measured(evidence: Evidence) -> list[Promise]:
    """Return jobs for measuring times."""
    return [
        Promise(PROBE, evidence.script()),
        Promise(LASTING, evidence.script(evidence.beats(50, BEAT))),
    ]


def poison() -> Promise:
    """Return a job whose runs kill their worker."""
    return Promise("poison", _KILL_THE_WORKER, {"max_losses": 1}, ends_well=False)


def _canaries(evidence: Evidence) -> list[Promise]:
    fields = {
        "schedule": "every 1s",
        "overlap": "allow",
        "misfire": {"policy": "all", "within": "1h", "max": 10_000},
    }
    script = evidence.script()
    return [
        Promise(f"canary-{n}", script, fields, interval=SECOND, catches_up=True)
        for n in range(_CANARIES)
    ]


def _clocks(evidence: Evidence) -> list[Promise]:
    fields = {"schedule": "*/2 * * * * *"}
    return [
        Promise(f"clock-{n}", evidence.script(), fields, interval=2 * SECOND, most_at_once=1)
        for n in range(2)
    ]


def _single(evidence: Evidence) -> Promise:
    """Return a job that takes longer than its interval, and may not overlap itself."""
    script = evidence.script(evidence.beats(15, BEAT))
    return Promise("single", script, {"schedule": "every 2s"}, interval=2 * SECOND, most_at_once=1)


def _failing(evidence: Evidence) -> Promise:
    retry = {"attempts": 3, "delay": "1s", "backoff": "fixed"}
    return Promise(
        "failing",
        evidence.script("exit 1"),
        {"retry": retry},
        ends_well=False,
        max_failures=3,
        backoff=SECOND,
    )


def _endless(evidence: Evidence) -> Promise:
    """Return a job that leaves a process with its own session, which ignores TERM."""
    beating = f"while :; do note beat; sleep {BEAT.total_seconds()}; done"
    daemon = shlex.quote(f"{evidence.definition()}\ntrap '' TERM\n{beating}")
    return Promise(
        "endless",
        evidence.script(f"(setsid sh -c {daemon} &)", beating),
        ends_well=False,
        is_cancelled=True,
    )
