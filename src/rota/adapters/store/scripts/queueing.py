"""How runs get into the line: gates, chains, and the release of those that waited."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rota.adapters.store.rows import reasons_to, to_json
from rota.adapters.store.scripts.rules import RulesBook
from rota.adapters.store.script import Many, Row, Script, query
from rota.domain.gates import (
    ActiveRun,
    Admission,
    JobRules,
    admit,
    job_key,
    pause_key,
    paused,
    releasable,
)
from rota.domain.ids import JobId, RunId, SessionId
from rota.domain.job import RunRules
from rota.domain.order import activation_tag
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.ports.store import Wakes

_RELEASE_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Line:
    """The chain a run waits in."""

    pool: str
    priority: int
    share: str

    @property
    def id(self) -> str:
        return f"{self.pool}/{self.priority}/{self.share}"


@dataclass(slots=True)
class Effects:
    """What a transaction did that others must hear of; filled as it goes."""

    pools: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    times: bool = False

    def wakes(self) -> Wakes:
        return Wakes(
            pools=frozenset(self.pools),
            sessions=frozenset(SessionId(session) for session in self.sessions),
            times=self.times,
        )


def record(kind: str, now: int, ids: Sequence[str], *, actor: str, project: str = "", **data: object) -> Many:
    """The event of one batch transition."""
    return Many("insert_event", [(kind, now, actor, project, to_json(ids), to_json(data))])


def activate(lines: Iterable[Line]) -> Script[None]:
    """Chains that got runs take part in the order of service again."""
    wanted = {line.id: line for line in lines}
    rows = yield query("chains", ids=wanted)
    known = {row["id"]: row for row in rows}
    for chain_id, line in wanted.items():
        row = known.get(chain_id)
        if row is not None and row["active"]:
            continue
        tags = yield query("active_tags", pool=line.pool, priority=line.priority)
        others = [tag["tag"] for tag in tags if tag["tag"] is not None]
        tag = activation_tag(row["tag"] if row is not None else 0.0, others)
        yield query(
            "activate_chain",
            id=chain_id,
            pool=line.pool,
            priority=line.priority,
            share=line.share,
            tag=tag,
        )


def line_of(row: Row) -> Line:
    """The chain of an existing run."""
    return Line(row["pool"], row["priority"], row["chain"].split("/", 2)[2])


class Gatekeeper:
    """Admits runs one after another, seeing those admitted before in the same transaction.

    The gates are those of the job's current version, whichever version a run is pinned to.
    """

    def __init__(self, book: RulesBook) -> None:
        self._book = book
        self._gates: dict[str, JobRules] = {}
        self._active: dict[str, list[ActiveRun]] = defaultdict(list)
        self.flags: dict[str, Row] = {}
        self._newest = sys.maxsize // 2  # runs that have no number yet are younger than all
        self.superseded: list[RunId] = []
        self.to_cancel: list[RunId] = []

    def load(self, now: int, jobs: Iterable[str], leave_out: Iterable[str] = ()) -> Script[None]:
        """Read what the gates of these jobs need; `leave_out` are the runs to be admitted."""
        rows = yield query("job_flags", ids=set(jobs))
        self.flags = {row["id"]: row for row in rows}
        rules = yield from self._book.load((row["id"], row["version"]) for row in rows)
        self._gates = {
            row["id"]: job_rules(row, rules[row["id"], row["version"]][0]) for row in rows
        }
        gated = [job for job, gate in self._gates.items() if gate.is_gated]
        if gated:
            hidden = set(leave_out)
            for row in (yield query("active_runs", ids=gated, now=now)):
                if row["id"] not in hidden:
                    self._active[row["job_id"]].append(active_run(row))

    def admit(self, run: RunId, job: str, trigger: Trigger, seq: int | None = None) -> Admission:
        """What this run becomes; remembered for the next one of its job. `seq` None: it is new."""
        gate, active = self._gates[job], self._active[job]
        if seq is None:
            self._newest += 1
            seq = self._newest
        admission = admit(gate, trigger, seq, active)
        self.superseded.extend(admission.supersedes)
        self.to_cancel.extend(admission.cancels)
        if admission.supersedes:
            gone = set(admission.supersedes)
            active[:] = [other for other in active if other.id not in gone]
        if admission.state is not RunState.SKIPPED and gate.is_gated:
            active.append(ActiveRun(run, seq, admission.state, trigger))
        return admission

    def hold(self, job: str) -> Admission:
        """What the pause of a job makes of its waiting runs."""
        return paused(self._gates[job])


def job_rules(flags: Row, rules: RunRules) -> JobRules:
    return JobRules(
        job_id=JobId(flags["id"]),
        name=flags["name"],
        overlap=rules.overlap,
        max_concurrency=rules.max_concurrency,
        is_paused=bool(flags["paused"]),
    )


def active_run(row: Row) -> ActiveRun:
    return ActiveRun(RunId(row["id"]), row["seq"], RunState(row["state"]), Trigger(row["trigger"]))


def apply_side_effects(now: int, gatekeeper: Gatekeeper, effects: Effects, actor: str) -> Script[None]:
    """End superseded runs and ask cancelled ones to stop."""
    if gatekeeper.superseded:
        yield from end_waiting(
            now, [(run, RunState.SKIPPED, "superseded") for run in gatekeeper.superseded], effects, actor
        )
    if gatekeeper.to_cancel:
        yield from cancel(now, gatekeeper.to_cancel, effects, actor)


def end_waiting(
    now: int, ends: Sequence[tuple[RunId, RunState, str]], effects: Effects, actor: str
) -> Script[None]:
    """Runs that end without an attempt."""
    rows = yield query("runs_to_change", ids=[run for run, _, _ in ends])
    by_id = {row["id"]: row for row in rows}
    waiting = (RunState.SCHEDULED, RunState.BLOCKED, RunState.QUEUED)
    real = [end for end in ends if by_id[end[0]]["state"] in waiting]
    if not real:
        return
    yield Many("end_waiting_run", [(state, cause, now, run) for run, state, cause in real])
    yield from count_ends([(by_id[run]["job"], state) for run, state, _ in real])
    yield query("rest_chains", ids={by_id[run]["chain"] for run, _, _ in real})
    for state, cause in {(state, cause) for _, state, cause in real}:
        ids = [run for run, s, c in real if (s, c) == (state, cause)]
        yield record("run.finished", now, ids, actor=actor, state=state, cause=cause)


def cancel(now: int, runs: Sequence[RunId], effects: Effects, actor: str) -> Script[list[RunId]]:
    """Cancel what waits, ask what is live to stop. Returns those that were not final."""
    rows = yield query("runs_to_change", ids=runs)
    waiting = [r for r in rows if r["state"] in (RunState.SCHEDULED, RunState.BLOCKED, RunState.QUEUED)]
    live = [r for r in rows if r["state"] in (RunState.CLAIMED, RunState.PROCESSING)]
    if waiting:
        ends = [(RunId(row["id"]), RunState.CANCELLED, "cancelled") for row in waiting]
        yield from end_waiting(now, ends, effects, actor)
    if live:
        ids = [row["id"] for row in live]
        yield query("request_cancel", ids=ids, now=now, actor=actor)
        yield record("run.cancel_requested", now, ids, actor=actor)
        effects.sessions.update(row["session"] for row in live)
    return [RunId(row["id"]) for row in (*waiting, *live)]


def count_ends(ends: Iterable[tuple[str, str]]) -> Script[None]:
    """Keep the tally of (job, state)."""
    tally: dict[tuple[str, str], int] = defaultdict(int)
    for end in ends:
        tally[end] += 1
    if tally:
        yield Many("count_ends", [(job, state, count) for (job, state), count in tally.items()])


def release_jobs(now: int, jobs: Iterable[str], book: RulesBook, effects: Effects) -> Script[int]:
    """Let runs go that waited for a slot of these jobs, or for the end of a pause."""
    released = 0
    for job in sorted(set(jobs)):
        for key in (job_key(JobId(job)), pause_key(JobId(job))):
            waiting = yield query("waiting_runs", key=key, limit=_RELEASE_BATCH)
            if waiting:
                released += yield from _release(now, job, waiting, book, effects)
    return released


def _release(now: int, job: str, waiting: Sequence[Row], book: RulesBook, effects: Effects) -> Script[int]:
    [flags] = yield query("job_flags", ids=[job])
    rules = yield from book.load([(job, flags["version"])])
    gate = job_rules(flags, rules[job, flags["version"]][0])
    if gate.is_paused:
        return 0
    rows = yield query("active_runs", ids=[job], now=now)
    active = [active_run(row) for row in rows if row["state"] != RunState.BLOCKED]
    free = set(releasable(gate, [active_run(row) for row in waiting], active))
    yield from enqueue(now, [row for row in waiting if row["id"] in free], effects)
    yield from _rename_blocks(gate, [row for row in waiting if row["id"] not in free], active)
    return len(free)


def _rename_blocks(gate: JobRules, staying: Sequence[Row], active: Sequence[ActiveRun]) -> Script[None]:
    """After a pause the runs left behind wait for a slot, not for the pause."""
    renamed = []
    for row in staying:
        admission = admit(gate, Trigger(row["trigger"]), row["seq"], active)
        if admission.blocked_on:
            renamed.append((admission.blocked_on, reasons_to(admission.reasons), row["id"]))
    if renamed:
        yield Many("rename_block", renamed)


def enqueue(now: int, rows: Sequence[Row], effects: Effects) -> Script[None]:
    """Waiting runs that passed every gate."""
    if not rows:
        return
    yield Many("queue_run", [(now, row["id"]) for row in rows])
    yield from activate(line_of(row) for row in rows)
    yield record("run.queued", now, [row["id"] for row in rows], actor="scheduler")
    effects.pools.update(row["pool"] for row in rows)


def deadline_of(rules: RunRules, due_at: int) -> int | None:
    return None if rules.deadline is None else due_at + round(rules.deadline.total_seconds() * 1e6)
