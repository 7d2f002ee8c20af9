"""The gates of jobs, as the transaction at hand sees them."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable

from rota.adapters.store.rows import optional_instant, rules_from
from rota.adapters.store.script import Row, Script, query
from rota.domain.gates import SLOT_STATES, ActiveRun, Admission, JobRules, admit
from rota.domain.ids import JobId, RunId
from rota.domain.run import Trigger
from rota.domain.states import RunState


class Gatekeeper:
    """Admits runs one after another, seeing those admitted before in the same transaction.

    The gates are those of the job's current version, whichever version a run is pinned to.
    """

    def __init__(self) -> None:
        self._gates: dict[str, JobRules] = {}
        self._active: dict[str, list[ActiveRun]] = defaultdict(list)
        self._next_seq = sys.maxsize // 2  # runs that have no number yet are younger than all
        self.jobs: dict[str, Row] = {}
        self.superseded: list[RunId] = []
        self.to_cancel: list[RunId] = []

    def load(self, now: int, jobs: Iterable[str], leave_out: Iterable[str] = ()) -> Script[None]:
        """Read what the gates of these jobs need; `leave_out` are the runs to be admitted."""
        rows = yield query("job_gates", ids=set(jobs))
        self.jobs = {row["id"]: row for row in rows}
        self._gates = {row["id"]: job_rules(row) for row in rows}
        gated = [job for job, gate in self._gates.items() if gate.is_gated]
        if gated:
            hidden = set(leave_out)
            for row in (yield query("active_runs", ids=gated, now=now)):
                if row["id"] not in hidden:
                    self._active[row["job_id"]].append(active_run(row))

    def counts_at_gate(self, job: str, trigger: Trigger, state: RunState) -> bool:
        """Whether a run of this kind must be seen by those that come after it."""
        return trigger is Trigger.SCHEDULE or (
            self._gates[job].max_concurrency is not None and state in SLOT_STATES
        )

    def new_run(self, run: RunId, trigger: Trigger) -> ActiveRun:
        """A run that is about to be inserted, the youngest so far."""
        self._next_seq += 1
        return ActiveRun(run, self._next_seq, RunState.SCHEDULED, trigger)

    def admit(self, job: str, run: ActiveRun) -> Admission:
        """What this run becomes; remembered for the next one of its job."""
        active = self._active[job]
        admission = admit(self._gates[job], run, active)
        self.superseded.extend(admission.supersedes)
        self.to_cancel.extend(admission.cancels)
        if admission.supersedes:
            active[:] = [other for other in active if other.id not in admission.supersedes]
        if admission.state is not RunState.SKIPPED:
            self.remember(job, run, admission.state)
        return admission

    def remember(self, job: str, run: ActiveRun, state: RunState) -> None:
        """Let later runs of the job see this one."""
        if self._gates[job].is_gated and self.counts_at_gate(job, run.trigger, state):
            self._active[job].append(ActiveRun(run.id, run.seq, state, run.trigger, run.attempt))


def job_rules(row: Row) -> JobRules:
    """The gates of a job. A deleted one is never paused: its live runs are to finish."""
    rules = rules_from(row["rules"])
    return JobRules(
        job_id=JobId(row["id"]),
        name=row["name"],
        overlap=rules.overlap,
        max_concurrency=rules.max_concurrency,
        is_paused=bool(row["paused"]) and row["deleted_at"] is None,
        paused_until=optional_instant(row["paused_until"]),
    )


def active_run(row: Row) -> ActiveRun:
    return ActiveRun(
        RunId(row["id"]),
        row["seq"],
        RunState(row["state"]),
        Trigger(row["trigger"]),
        row["attempt"],
    )
