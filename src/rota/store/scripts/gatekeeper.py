"""The gates of jobs, as the transaction at hand sees them."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

from rota.domain.dependencies import Upstream, missing
from rota.domain.gates import (
    SLOT_STATES,
    ActiveRun,
    Admission,
    BackfillRules,
    JobRules,
    admit,
    held_by_cart,
)
from rota.domain.ids import BackfillId, JobId, RunId, instant
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.store.rows import optional_instant, rules_from
from rota.store.script import Row, Script, query


class Gatekeeper:
    """Admits runs one after another, seeing those admitted before in the same transaction.

    The gates are those of the job's current version, whichever version a run is pinned to.
    """

    def __init__(self) -> None:
        self._gates: dict[str, JobRules] = {}
        self._backfills: dict[str, BackfillRules] = {}
        self._held_carts: dict[str | None, Admission] = {}
        self._upstreams: dict[tuple[str, str], Upstream] = {}  # by project and name
        self._watched: set[str] = set()  # jobs whose runs can keep one another from going
        self._active: dict[str, list[ActiveRun]] = defaultdict(list)
        self._admitted: dict[str, list[tuple[ActiveRun, RunState]]] = defaultdict(list)
        self._next_seq = sys.maxsize // 2  # runs that have no number yet are younger than all
        self.jobs: dict[str, Row] = {}
        self.superseded: list[RunId] = []
        self.to_cancel: list[RunId] = []

    def load(
        self,
        now: int,
        jobs: Iterable[str],
        leave_out: Iterable[str] = (),
        backfills: Collection[str] = (),
        carts: Collection[str] = (),
    ) -> Script[None]:
        """Read what the gates of these jobs, and of backfills and carts of theirs, need.

        `leave_out` are the runs to be admitted.
        """
        rows = yield query("job_gates", ids=set(jobs))
        self.jobs = {row["id"]: row for row in rows}
        self._gates = {row["id"]: job_rules(row) for row in rows}
        self._watched = {job for job, gate in self._gates.items() if gate.is_gated}
        yield from self._look_at_upstreams()
        if backfills:
            rows = yield query("select_backfills", ids=backfills)
            self._backfills = {row["id"]: backfill_rules(row) for row in rows}
            self._watched |= {row["job_id"] for row in rows}
        if carts:
            rows = yield query("held_carts", ids=carts)
            self._held_carts = {row["id"]: held_by_cart(row["id"], row["name"]) for row in rows}
        if self._watched:
            hidden = set(leave_out)
            for row in (yield query("active_runs", ids=self._watched, now=now)):
                if row["id"] not in hidden:
                    self._active[row["job_id"]].append(other_run(row))

    def _look_at_upstreams(self) -> Script[None]:
        names: dict[str, set[str]] = defaultdict(set)
        for gate in self._gates.values():
            if gate.after:
                names[gate.project].update(gate.after)
        for project, wanted in names.items():
            self._upstreams |= {(project, name): Upstream(name, exists=False) for name in wanted}
            for row in (yield query("upstreams", project=project, names=wanted)):
                found = Upstream(row["name"], optional_instant(row["at"]))
                self._upstreams[project, found.name] = found

    def counts_at_gate(self, job: str, trigger: Trigger, state: RunState) -> bool:
        """Whether a run of this kind must be seen by those that come after it."""
        if trigger is Trigger.SCHEDULE:
            return True
        is_limited = trigger is Trigger.BACKFILL or self._gates[job].max_concurrency is not None
        return is_limited and state in SLOT_STATES

    def lets_any_go(self, job: str, trigger: Trigger) -> bool:
        """Whether runs of this kind need not be admitted one by one."""
        return self._gates[job].lets_any_go(trigger)

    def new_run(
        self, run: RunId, trigger: Trigger, backfill: BackfillId | None, is_caught_up: bool
    ) -> ActiveRun:
        """A run that is about to be inserted, the youngest so far."""
        self._next_seq += 1
        return ActiveRun(
            run,
            self._next_seq,
            RunState.SCHEDULED,
            trigger,
            backfill=backfill,
            is_caught_up=is_caught_up,
        )

    def admit(self, job: str, run: ActiveRun, previous_due: int | None = None) -> Admission:
        """What this run becomes; remembered for the next one of its job.

        `previous_due` is the due time before that of a scheduled run, if there was one.
        """
        if run.cart in self._held_carts:
            return self._held_carts[run.cart]
        active = self._active_of(job)
        backfill = None if run.backfill is None else self._backfills[run.backfill]
        lacks = self._missing(job, previous_due) if run.trigger is Trigger.SCHEDULE else ()
        admission = admit(self._gates[job], run, active, backfill, lacks)
        self.superseded.extend(admission.supersedes)
        self.to_cancel.extend(admission.cancels)
        if admission.supersedes:
            active[:] = [other for other in active if other.id not in admission.supersedes]
        if admission.state is not RunState.SKIPPED:
            self.remember(job, run, admission.state)
        return admission

    def _missing(self, job: str, previous_due: int | None) -> tuple[Upstream, ...]:
        """The jobs that a due run waits for."""
        gate = self._gates[job]
        if not gate.after:
            return ()
        since = max(previous_due or 0, self.jobs[job]["created_at"])
        return missing([self._upstreams[gate.project, name] for name in gate.after], instant(since))

    def remember(self, job: str, run: ActiveRun, state: RunState) -> None:
        """Let later runs of the job see this one."""
        if job in self._watched and self.counts_at_gate(job, run.trigger, state):
            self._admitted[job].append((run, state))

    def _active_of(self, job: str) -> list[ActiveRun]:
        """With those admitted so far, which only the next run of the job needs: most have none."""
        active = self._active[job]
        active += [replace(run, state=state) for run, state in self._admitted.pop(job, ())]
        return active


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
        project=rules.project,
        after=rules.after if rules.is_scheduled else (),
        after_within=rules.after_within,
    )


def active_run(row: Row) -> ActiveRun:
    return ActiveRun(
        RunId(row["id"]),
        row["seq"],
        RunState(row["state"]),
        Trigger(row["trigger"]),
        row["attempt"],
        row["backfill"],
        bool(row["caught_up"]),
        row["cart"],
    )


def other_run(row: Row) -> ActiveRun:
    """A run that counts at the gate which another one comes to."""
    return replace(active_run(row), is_held=bool(row["is_held"]))


def backfill_rules(row: Row) -> BackfillRules:
    return BackfillRules(BackfillId(row["id"]), row["max_parallel"])
