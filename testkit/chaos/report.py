"""Report of a campaign and its verdict, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from testkit.chaos.bounds import Bound
from testkit.chaos.campaign import Verdict
from testkit.chaos.judge import INVARIANTS, Case, latenesses
from testkit.evidence import Event, of_event

_SHOWN = 40  # violations


def report(verdict: Verdict) -> str:
    """Return several lines, ending with the verdict."""
    case = verdict.case
    parts = (_bounds(verdict.bounds), _faults(case), _work(case), _effects(case), _verdict(verdict))
    return "\n".join(line for part in parts for line in part)


def _bounds(bounds: Sequence[Bound]) -> Iterator[str]:
    yield "Bounds, measured (promised):"
    for each in bounds:
        measured, promised = each.measured.total_seconds(), each.promised.total_seconds()
        yield f"  {measured:5.1f} s ({promised:.0f} s)  {each.name}"


def _faults(case: Case) -> Iterator[str]:
    yield "Faults injected (felt):"
    injected = Counter(each.kind for each in case.injections)
    felt = Counter(each.kind for each in case.injections if each.was_felt)
    for kind in sorted(injected):
        yield f"  {injected[kind]:3} ({felt[kind]})  {kind}"


def _work(case: Case) -> Iterator[str]:
    answered = [entry for ledger in case.dump.ledgers.values() for entry in ledger]
    started = of_event(case.marks, Event.START)
    late = sorted(late for _, _, late in latenesses(case))
    yield "Work:"
    yield f"  {sum(entry.count for entry in answered)} due times"
    yield f"  {sum(entry.count for entry in answered if not entry.run)} of them without a run"
    yield f"  {len(case.client.submissions)} submissions, {len(case.client.cancelled)} cancels"
    yield f"  {len(case.dump.runs)} runs, {len(started)} attempts began"
    yield f"  {case.client.unanswered} requests without an answer"
    if late:
        yield f"  started late by {late[len(late) // 2]:.2f} s (median), {late[-1]:.1f} s (most)"
    for state, count in sorted(Counter(run.state for run in case.dump.runs.values()).items()):
        yield f"  {count:5} {state}"


def _effects(case: Case) -> Iterator[str]:
    runs, events = case.dump.runs.values(), case.dump.events
    yield "Effects:"
    yield f"  {events.get('shards.taken', 0)} times shards were taken"
    yield f"  {events.get('worker.lost', 0)} workers lost"
    yield f"  {sum(run.losses for run in runs)} attempts lost"
    yield f"  {sum(len(run.late_results) for run in runs)} late results refused"
    yield f"  {sum(each.tries > 1 for each in case.client.submissions)} submissions repeated"


def _verdict(verdict: Verdict) -> Iterator[str]:
    if not verdict.violations:
        yield f"Every promise was kept: {', '.join(INVARIANTS)}."
        return
    yield f"{len(verdict.violations)} violations:"
    for each in verdict.violations[:_SHOWN]:
        yield f"  {each.invariant} {each.subject}: {each.detail}"
