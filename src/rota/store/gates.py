"""The gates of jobs: locked, and as the transaction at hand sees them.

Whoever has locked a gate is alone in looking at what counts there.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from rota.domain.gates import (
    ActiveRun,
    Admission,
    BackfillRules,
    ClosableJob,
    JobRules,
    Upstream,
    admit,
    closed_jobs,
    missing,
)
from rota.domain.ids import BackfillId, JobId, RunId, instant
from rota.domain.policy import bounds_on
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.store import tx
from rota.store.rows import bounds_from, optional_instant, rules_from
from rota.store.script import LookAgain, Row, Script, lock, query

LockGates: TypeAlias = Callable[[Collection[str]], Script[set[str]]]
Kind: TypeAlias = tuple[str, Trigger]  # a job, and what asked for runs of it


def lock_gates(jobs: Collection[str]) -> Script[set[str]]:
    """Lock gates until the transaction ends; all at once, for the order of locks."""
    if jobs:
        yield lock("gates", ids=sorted(jobs))
    return set(jobs)


def lock_when_read(jobs: Collection[str]) -> Script[set[str]]:
    """Lock nothing yet: for scripts whose next statement reads schedules and locks them."""
    yield from ()
    return set(jobs)


def lock_free_gates(jobs: Collection[str]) -> Script[set[str]]:
    """Those of the gates that nobody else has locked, which are returned."""
    if not jobs:
        return set()
    return {row["job_id"] for row in (yield query("free_gates", ids=sorted(jobs)))}


def lock_gates_of(runs: Collection[str], jobs: Collection[str] = ()) -> Script[set[str]]:
    """The gates at which these runs count, and those of `jobs`. Most runs count at none."""
    gates = set(jobs)
    if runs:
        gates |= {row["job_id"] for row in (yield query("gates_of_runs", ids=runs))}
    return (yield from lock_gates(gates))


def lock_gates_of_jobs(runs: Collection[str]) -> Script[set[str]]:
    """The gates of the jobs of these runs, whether they count there or not."""
    rows = yield query("jobs_of_runs", ids=runs)
    return (yield from lock_gates({row["job_id"] for row in rows}))


def lock_gates_to_submit(jobs: Collection[str]) -> Script[None]:
    """Lock gates to submit: shared where a job has no limit, so that submissions do not wait.

    A pause waits for them in either case.
    """
    limited = yield from _limited(jobs)
    for is_limited, group in groupby(sorted(jobs), limited.__contains__):
        # By id across both kinds: a lock that is shared here may be exclusive for another.
        yield lock("gates" if is_limited else "open_gates", ids=list(group))
    if not (yield from _limited(jobs)) <= limited:
        raise LookAgain("a job got a limit meanwhile")


def _limited(jobs: Collection[str]) -> Script[set[str]]:
    rows = yield query("current_rules", ids=jobs)
    return {row["id"] for row in rows if rules_from(row["rules"]).max_concurrency is not None}


class Gatekeeper:
    """Admits runs one after another, seeing those admitted before in the same transaction.

    The gates are those of the job's current version, whichever version a run is pinned to.
    """

    def __init__(self) -> None:
        self.gates: dict[str, JobRules] = {}
        self._backfills: dict[str, BackfillRules] = {}
        self.closed_carts: Mapping[str, Admission] = {}
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
        kinds: Collection[Kind],
        leave_out: Iterable[str] = (),
        backfills: Collection[str] = (),
        carts: Collection[str] = (),
    ) -> Script[None]:
        """Read what the gates need for runs of these kinds, and of these backfills and carts.

        `leave_out` are the runs to be admitted. Other runs of a job are read only where they can
        hold one of these back: of runs that go by the thousand, thousands more may be active. Those
        that wait are read only where runs go in turn.
        """
        rows = yield query("job_gates", ids={job for job, _ in kinds})
        self.jobs = {row["id"]: row for row in rows}
        self.gates = job_rules(rows, now)
        # A gate that is closed lets nobody go, whatever else is there.
        opened = {job: gate for job, gate in self.gates.items() if gate.closed is None}
        asked = [(job, trigger) for job, trigger in kinds if job in opened]
        in_turn = {job for job, trigger in asked if opened[job].goes_in_turn(trigger)}
        limited = {
            job
            for job, trigger in asked
            if job not in in_turn and opened[job].can_hold_back(trigger)
        }
        yield from self._look_at_upstreams()
        if backfills:
            rows = yield query("select_backfills", ids=backfills)
            self._backfills = {row["id"]: backfill_rules(row) for row in rows}
            limited |= {row["job_id"] for row in rows} - in_turn
        if carts:
            self.closed_carts = yield from tx.closed_gates(carts)
        self._watched = in_turn | limited
        hidden = set(leave_out)
        for name, jobs in ("active_runs", in_turn), ("occupying_runs", limited):
            if jobs:
                for row in (yield query(name, ids=jobs, now=now)):
                    if row["id"] not in hidden:
                        self._active[row["job_id"]].append(other_run(row))

    def _look_at_upstreams(self) -> Script[None]:
        names: dict[str, set[str]] = defaultdict(set)
        for gate in self.gates.values():
            if gate.after:
                names[gate.project].update(gate.after)
        for project, wanted in names.items():
            self._upstreams |= {(project, name): Upstream(name, exists=False) for name in wanted}
            for row in (yield query("upstreams", project=project, names=wanted)):
                found = Upstream(row["name"], optional_instant(row["at"]))
                self._upstreams[project, found.name] = found

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
        """Decide what this run becomes; remembered for the next one of its job.

        `previous_due` is the due time before that of a scheduled run, if there was one.
        """
        if run.cart is not None and run.cart in self.closed_carts:
            return self.closed_carts[run.cart]
        active = self._active_of(job)
        backfill = None if run.backfill is None else self._backfills[run.backfill]
        lacks = self._missing(job, previous_due) if run.trigger is Trigger.SCHEDULE else ()
        admission = admit(self.gates[job], run, active, backfill, lacks)
        self.superseded.extend(admission.supersedes)
        self.to_cancel.extend(admission.cancels)
        if admission.supersedes:
            self._active[job] = [other for other in active if other.id not in admission.supersedes]
        if admission.state is not RunState.SKIPPED:
            self.remember(job, run, admission.state)
        return admission

    def _missing(self, job: str, previous_due: int | None) -> tuple[Upstream, ...]:
        """The jobs that a due run waits for."""
        gate = self.gates[job]
        if not gate.after:
            return ()
        since = max(previous_due or 0, self.jobs[job]["created_at"])
        return missing([self._upstreams[gate.project, name] for name in gate.after], instant(since))

    def remember(self, job: str, run: ActiveRun, state: RunState) -> None:
        """Let later runs of the job see this one."""
        if job in self._watched and self.gates[job].counts(run.trigger, state):
            self._admitted[job].append((run, state))

    def _active_of(self, job: str) -> Sequence[ActiveRun]:
        """With those admitted so far, which only the next run of the job needs: most have none."""
        if admitted := self._admitted.pop(job, None):
            self._active[job] += [run._replace(state=state) for run, state in admitted]
        return self._active.get(job, ())


def kinds_of(rows: Iterable[Row]) -> set[Kind]:
    """The kinds of these runs: few, however many runs there are."""
    return {(job, Trigger(name)) for job, name in {(r["job_id"], r["trigger"]) for r in rows}}


def closable_job(row: Row) -> ClosableJob | None:
    """A job as the gates see it that close all of it; None: deleted, and never closed."""
    if row["deleted_at"] is not None:  # its live runs are to finish
        return None
    until = optional_instant(row["paused_until"]) if row["paused"] else None
    rules = rules_from(row["rules"])
    bounds = bounds_from(row["bounds"])
    if rules.walls is not None:
        bounds = bounds_on(rules, bounds)
    return ClosableJob(JobId(row["id"]), rules, bool(row["paused"]), until, bounds)


def job_rules(rows: Sequence[Row], now: int) -> dict[str, JobRules]:
    """The gates of jobs as they stand now, by id."""
    closed = closed_jobs([job for row in rows if (job := closable_job(row))], instant(now))
    found = {}
    for row in rows:
        rules = rules_from(row["rules"])
        found[row["id"]] = JobRules(
            job_id=JobId(row["id"]),
            name=row["name"],
            overlap=rules.overlap,
            max_concurrency=rules.max_concurrency,
            closed=closed.get(row["id"]),
            project=rules.project,
            after=rules.after if rules.is_scheduled else (),
            after_within=rules.after_within,
        )
    return found


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
    return active_run(row)._replace(is_held=bool(row["is_held"]))


def backfill_rules(row: Row) -> BackfillRules:
    return BackfillRules(BackfillId(row["id"]), row["max_parallel"])
