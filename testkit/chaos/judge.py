"""Verdict: compares what jobs wrote, clients saw and the cluster says with what was promised.

It knows definitions and evidence, and nothing of how Rota works. The numbers are those of the
invariants: see `INVARIANTS`. I5 and I18 are the others while queues and nodes come and go.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from rota.sdk.answers import FINAL_STATES, LedgerEntry, RunDetail
from testkit.chaos.faults import WHOLE_WORKER
from testkit.chaos.history import ClientLog, Dump, Injection, Sight, Times
from testkit.chaos.workload import GRACE, Promise
from testkit.checker import Finding, check, most_at_once
from testkit.evidence import CLOCK_TICK, Event, Mark, of_event

INVARIANTS = {
    "I1": "an acknowledged submission never vanishes, and its key gives the same run",
    "I2": "two attempts of a run never execute at the same time",
    "I3": "one run for each due time",
    "I4": "a write without the lease is refused",
    "I5": "a queue that is killed, wiped or cut off costs time only",
    "I8": "every due time starts, never early, or says why not",
    "I9": "after the last fault everything works again, by itself and soon",
    "I10": "attempts are limited, numbered upwards, and wait out their back-off",
    "I11": "final is final",
    "I12": "after an acknowledged cancel nothing starts and nothing lives on",
    "I13": "no more at once than the definition allows",
    "I14": "stored output is what was printed",
    "I16": "nobody sees a run go back, whichever server answers",
    "I17": "no process of a job outlives its attempt",
    "I18": "restarts lose nothing and double nothing",
    "I19": "no request fails but for the servers being away",
    "I20": "no node ends by itself",
}
SERVICE_WITHIN = timedelta(seconds=20)  # after the last fault, on a busy machine
LATENESS = timedelta(seconds=3)  # that a healthy cluster on a busy machine may have
_WAITING = frozenset({"SCHEDULED", "BLOCKED", "QUEUED"})
_CLOCKS_AGREE = 0.1  # seconds: the store's clock and the jobs' are read differently
_FROZEN = f"{WHOLE_WORKER} stopped"
_DYING = timedelta(seconds=1)
_TO_NOTICE = timedelta(seconds=20)  # a cancel reaches a worker that is cut off with its lease


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    subject: str
    detail: str


@dataclass(frozen=True, slots=True)
class Case:
    """All evidence of a campaign."""

    promises: Sequence[Promise]
    marks: Sequence[Mark]
    client: ClientLog
    dump: Dump
    times: Times
    injections: Sequence[Injection]
    survivors: Sequence[str] = ()  # processes of jobs that were left at the end
    ended_nodes: Sequence[str] = ()  # nodes that nobody had stopped

    def promise(self, job: str) -> Promise:
        return next(each for each in self.promises if each.job == job)

    def marks_of(self, job: str) -> list[Mark]:
        return [mark for mark in self.marks if mark.job == job]

    def marks_of_what_can_be_killed(self) -> list[Mark]:
        """Return the evidence without what attempts wrote when their frozen machine was thawed.

        Nobody can kill them while all of it is frozen: such a machine is fenced, not stopped. An
        attempt that lives on for longer than it takes to be killed then is no exception.
        """
        frozen = [each for each in self.injections if each.kind == _FROZEN]
        return [
            mark
            for mark in self.marks
            if not any(
                each.target == self._loser_of(mark)
                and each.began <= mark.at <= each.healed + _DYING.total_seconds()
                for each in frozen
            )
        ]

    def _loser_of(self, mark: Mark) -> str:
        """Return the worker whose loss ended the attempt; empty: it ended otherwise."""
        run = self.dump.runs.get(mark.run)
        attempts = run.attempts if run else ()
        lost = (it for it in attempts if (it.number, it.result) == (mark.attempt, "LOST"))
        return next((it.worker for it in lost), "")

    def runs_of(self, job: str) -> list[RunDetail]:
        return [run for run in self.dump.runs.values() if run.job == job]


def judge(case: Case) -> list[Violation]:
    """Return all violations; empty: every promise was kept."""
    checks = (
        _submissions,
        _executions,
        _due_times,
        _promptness,
        _fences,
        _attempts,
        _sights,
        _cancels,
        _limits,
        _output,
        _leftovers,
        _effects,
    )
    return [violation for each in checks for violation in each(case)]


def _submissions(case: Case) -> Iterator[Violation]:
    for each in case.client.submissions:
        if len(set(each.answers)) > 1:
            yield Violation("I1", each.key, f"one key gave {sorted(set(each.answers))}")
        if each.run and each.run not in case.dump.runs:
            yield Violation("I1", each.run, f"acknowledged for {each.key}, but not there")
    per_job = Counter(each.job for each in case.client.submissions)
    for job, asked in per_job.items():
        made = len(case.runs_of(job))
        if made > asked:
            yield Violation("I1", job, f"{asked} submissions made {made} runs")
    for run in case.dump.runs.values():
        if run.state not in FINAL_STATES and run.state != "UNKNOWN":
            yield Violation("I1", run.id, f"{run.job} is still {run.state}")


def _executions(case: Case) -> Iterator[Violation]:
    runs = case.dump.runs
    required = [
        run.id
        for run in runs.values()
        if run.state == "COMPLETED" and run.cause != "resolved" and case.marks_of(run.job)
    ]
    lost = [run.id for run in runs.values() if run.losses]
    for finding in check(case.marks_of_what_can_be_killed(), required, optional=runs, lost=lost):
        yield _of_finding(case, finding)
    for run in runs.values():
        promise = case.promise(run.job)
        if promise.ends_well and run.state not in _good_ends(promise):
            yield Violation("I1", run.id, f"{run.job} ended {run.state} {run.cause} {run.message}")
        if promise.at_most_once and run.losses and run.attempt > 1:
            yield from _begun_again(case, run)


def _of_finding(case: Case, finding: Finding) -> Violation:
    invariant = "I3" if finding.fault in ("extra", "missing") else "I2"
    lives = ", ".join(_lives(case, finding.run))
    return Violation(invariant, finding.run, f"{finding.fault} {finding.detail}: {lives}")


def _lives(case: Case, run: str) -> Iterator[str]:
    """Yield when and where each attempt was seen alive, to compare with the faults of that time."""
    found = case.dump.runs.get(run)
    for attempt in found.attempts if found else ():
        times = [m.at for m in case.marks if (m.run, m.attempt) == (run, attempt.number)]
        if times:
            seen = f"{min(times):.2f}–{max(times):.2f}"
            yield f"{attempt.number} on {attempt.worker} {seen} {attempt.result}"


def _good_ends(promise: Promise) -> frozenset[str]:
    good = {"COMPLETED"}
    if promise.interval and not promise.catches_up:
        good |= {"SKIPPED", "MISSED"}
    if promise.at_most_once:
        good.add("UNKNOWN")
    return frozenset(good)


def _begun_again(case: Case, run: RunDetail) -> Iterator[Violation]:
    begun = [mark for mark in of_event(case.marks, Event.START) if mark.run == run.id]
    if len(begun) > 1:
        yield Violation("I2", run.id, "an at-most-once run began more than once")


def _due_times(case: Case) -> Iterator[Violation]:
    for job, ledger in case.dump.ledgers.items():
        promise = case.promise(job)
        assert promise.interval is not None
        answered = list(_answered(ledger, promise.interval))
        for (one, _), (other, _) in pairwise(answered):
            if other - one != promise.interval:
                yield Violation("I3", job, f"{one} is followed by {other}")
        for due, entry in answered:
            if entry.run is None and (promise.catches_up or not entry.cause):
                yield Violation("I8", job, f"{due} has no run: {entry.state} {entry.cause}")
        last = case.times.boot_time(answered[-1][0]) if answered else 0.0
        if last < case.times.stopped - 2 * promise.interval.total_seconds():
            yield Violation("I8", job, f"nothing was due in the last {case.times.stopped - last} s")


def _answered(
    ledger: Iterable[LedgerEntry], interval: timedelta
) -> Iterator[tuple[datetime, LedgerEntry]]:
    """Yield each due time with its answer; a range has one answer for all of its own."""
    for entry in ledger:
        for number in range(entry.count):
            yield entry.first + number * interval, entry


def _promptness(case: Case) -> Iterator[Violation]:
    healthy_from = case.times.healed + SERVICE_WITHIN.total_seconds()
    count = 0
    for job, due, late in latenesses(case):
        if late < -_CLOCKS_AGREE:
            yield Violation("I8", job, f"due at {due:.2f}, started {-late:.2f} s early")
        if due < healthy_from or not case.promise(job).catches_up:
            continue
        count += 1
        if late > LATENESS.total_seconds():
            after = due - case.times.healed
            yield Violation("I9", job, f"{late:.2f} s late, {after:.0f} s after the last fault")
    if not count:
        yield Violation("I9", "canaries", "nothing was due after the last fault")


def latenesses(case: Case) -> Iterator[tuple[str, float, float]]:
    """Yield job, due time and how late its first attempt began, in seconds of boot time."""
    first = {mark.run: mark.at for mark in reversed(of_event(case.marks, Event.START))}
    for job, ledger in case.dump.ledgers.items():
        for entry in ledger:
            if entry.run in first:
                due = case.times.boot_time(entry.first)
                yield job, due, first[str(entry.run)] - due


def _fences(case: Case) -> Iterator[Violation]:
    for run in case.dump.runs.values():
        for attempt in run.attempts:
            if attempt.message == "replayed":
                yield Violation("I4", run.id, f"attempt {attempt.number} ended as a stranger said")


def _attempts(case: Case) -> Iterator[Violation]:
    starts: dict[str, list[Mark]] = defaultdict(list)
    for mark in of_event(case.marks, Event.START):
        starts[mark.run].append(mark)
    for run in case.dump.runs.values():
        promise = case.promise(run.job)
        if run.failures > promise.max_failures:
            yield Violation("I10", run.id, f"failed {run.failures} times")
        if run.attempt > run.failures + run.losses + _interrupted(run) + 1:
            yield Violation("I10", run.id, f"{run.attempt} attempts, {run.losses} losses")
        yield from _back_off(run, starts[run.id], promise)


def _interrupted(run: RunDetail) -> int:
    """Count attempts that ended through no fault of the run: its worker left, or never had it."""
    return sum(attempt.result in ("INTERRUPTED", "LOST") for attempt in run.attempts)


def _back_off(run: RunDetail, starts: Sequence[Mark], promise: Promise) -> Iterator[Violation]:
    failed = {attempt.number for attempt in run.attempts if attempt.result == "FAILED"}
    for one, other in pairwise(starts):
        waited = other.at - one.at + CLOCK_TICK
        if one.attempt in failed and waited < promise.backoff.total_seconds():
            yield Violation("I10", run.id, f"tried again after {waited:.2f} s")


def _sights(case: Case) -> Iterator[Violation]:
    seen: dict[str, Sight] = {}
    for sight in case.client.sights:
        before = seen.get(sight.run)
        if before is not None and _place(sight) < _place(before):
            yield Violation("I16", sight.run, f"{before} was followed by {sight}")
        if before is not None and _has_changed_its_end(before, sight):
            yield Violation("I11", sight.run, f"{before} was followed by {sight}")
        seen[sight.run] = sight
    for run, last in seen.items():
        ended = case.dump.runs.get(run)
        if last.state in FINAL_STATES and ended is not None and ended.state != last.state:
            yield Violation("I11", run, f"was {last.state}, is {ended.state}")


def _has_changed_its_end(before: Sight, after: Sight) -> bool:
    ends = (before.state, before.ended_at), (after.state, after.ended_at)
    return before.state in FINAL_STATES and ends[0] != ends[1]


def _place(sight: Sight) -> tuple[int, int]:
    """Return a run's progress as an order; waiting comes after the attempt that it follows."""
    if sight.state in FINAL_STATES:
        return sight.attempt, 9
    order = {"CLAIMED": 1, "PROCESSING": 2, "UNKNOWN": 4}
    return sight.attempt, 3 if sight.state in _WAITING else order[sight.state]


def _cancels(case: Case) -> Iterator[Violation]:
    for run, at in case.client.cancelled.items():
        late = at + (GRACE + _TO_NOTICE).total_seconds()
        own = [mark for mark in case.marks if mark.run == run]
        if any(mark.at > late for mark in own):
            yield Violation("I12", run, f"lived {max(m.at for m in own) - at:.1f} s after cancel")
        found = case.dump.runs.get(run)
        if found is not None and found.state != "CANCELLED":
            yield Violation("I12", run, f"cancelled, and ended {found.state}")


def _limits(case: Case) -> Iterator[Violation]:
    for promise in case.promises:
        if promise.most_at_once is not None:
            most = most_at_once(
                m for m in case.marks_of_what_can_be_killed() if m.job == promise.job
            )
            if most > promise.most_at_once:
                yield Violation("I13", promise.job, f"{most} at once")


def _output(case: Case) -> Iterator[Violation]:
    for promise in case.promises:
        for run in case.runs_of(promise.job) if promise.prints else ():
            state = run.attempts[-1].output.state if run.attempts else "none"
            if state == "pending":
                yield Violation("I14", run.id, "its output never arrived")
            if state == "stored" and case.dump.digests.get(run.id) != run.outputs:
                yield Violation("I14", run.id, "its output is not what it printed")


def _leftovers(case: Case) -> Iterator[Violation]:
    for survivor in case.survivors:
        yield Violation("I17", survivor, "still lives")
    for refusal in case.client.refusals:
        yield Violation("I19", refusal.asked, refusal.error)
    for node in case.ended_nodes:
        yield Violation("I20", node, "ended by itself")


def _effects(case: Case) -> Iterator[Violation]:
    """Report faults that had no effect: they prove nothing."""
    felt: Mapping[str, int] = Counter(each.kind for each in case.injections if each.was_felt)
    for kind in sorted({each.kind for each in case.injections}):
        if not felt[kind]:
            yield Violation("effect", kind, "injected, and never felt")
