"""Invariants once everything was mended and nothing is left to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from rota.domain.carts.facts import FINAL_CART_STATES
from rota.domain.ids import RunId
from rota.domain.run import AttemptResult, Run
from rota.domain.spec import Delivery
from rota.domain.states import RunState, is_final
from rota.ports.records import LedgerEntry
from rota.ports.work import Fence
from testkit.clock import START
from testkit.universes.cart_rest import judge_carts
from testkit.universes.catalogue import FIRING_FOR, KnownJob, catalogue, followers
from testkit.universes.evidence import BAD, KILLED, Witness
from testkit.universes.world import World

_LAST = START + FIRING_FOR
_TICK = timedelta(microseconds=1)


async def judge_rest(
    world: World, witness: Witness, promised: Collection[RunId], resolved: Collection[RunId]
) -> None:
    """Check all; `promised` were acknowledged, a person said how the `resolved` ones ended."""
    runs = await world.all_runs()
    lost = set(promised) - {run.id for run in runs}
    witness.require(not lost, "acknowledged runs vanished", sorted(lost))
    witness.require(not witness.lives, "something still executes", list(witness.lives))
    held = await world.held()
    witness.require(not held, "something is still held", held)
    jobs = {job.name: job for job in catalogue().values()}
    for run in runs:
        _judge_end(witness, run, jobs[run.job], is_resolved=run.id in resolved)
    _judge_answers(witness, runs)
    judge_carts(witness, await world.all_carts(), {run.id: run.state for run in runs})
    ledgers = [await _judged_ledger(world, witness, job) for job in jobs.values()]
    due = {answer.run for ledger in ledgers for answer in ledger}
    for run in runs:
        is_asked_for = run.follows or run.cart or run.id in due or run.id in promised
        witness.require(bool(is_asked_for), "a run that nobody asked for", brief(run))


def _judge_end(witness: Witness, run: Run, job: KnownJob, *, is_resolved: bool) -> None:
    pasts, rules = witness.pasts[run.id], job.rules
    told = brief(run)
    witness.require(is_final(run.state), "a run has not ended", told)
    if is_resolved:
        return
    known = [past.how for past in pasts if Fence(run.id, past.attempt) in witness.accepted]
    failures = sum(how in BAD for how in known)
    witness.require(failures <= rules.retry.attempts, "too many failures", told)
    losses = sum(past.how == KILLED for past in pasts)
    witness.require(losses <= rules.max_losses + 1, "too many losses", told)
    good = [past.attempt for past in pasts if past.how == AttemptResult.COMPLETED]
    taken = [attempt for attempt in good if Fence(run.id, attempt) in witness.accepted]
    is_good = run.state is RunState.COMPLETED
    witness.require(is_good or not taken, "an accepted success was dropped", told)
    if is_good:
        witness.require(run.attempt in good, "a success that nobody saw", told)
    if rules.delivery is Delivery.AT_MOST_ONCE:
        witness.require(len(good) <= 1, "at most once ended well twice", told)


def judge_finals(witness: Witness, finals: dict[RunId, RunState], runs: Sequence[Run]) -> None:
    """Check that final states stayed final: `finals` are those that were seen before."""
    for run in runs:
        if is_final(run.state):
            first = finals.setdefault(run.id, run.state)
            witness.require(first is run.state, "an end was not the end", (first, brief(run)))


def _judge_answers(witness: Witness, runs: Sequence[Run]) -> None:
    """Check that each completed run got one run of each job that follows, and no others."""
    found = Counter((run.job, run.follows) for run in runs if run.follows is not None)
    odd = found - Counter(_answers_due(runs))
    witness.require(not odd, "followed more than once, or for nothing", odd)


def _answers_due(runs: Sequence[Run]) -> list[tuple[str, RunId]]:
    completed = [run for run in runs if run.state is RunState.COMPLETED]
    return [(job.name, run.id) for run in completed for job in followers(run.job)]


async def is_at_rest(world: World, witness: Witness, runs: Sequence[Run]) -> bool:
    """Return whether nothing is left to do; `runs` are all that there are."""
    if witness.lives or not all(is_final(run.state) for run in runs):
        return False
    return not await unfinished(world, runs) and await _is_answered(world)


async def unfinished(world: World, runs: Sequence[Run]) -> list[str]:
    """List what is left to do: runs, carts, and completed runs not followed yet."""
    carts = await world.all_carts()
    answered = {(run.job, run.follows) for run in runs}
    return [
        *(brief(run) for run in runs if not is_final(run.state)),
        *(f"{cart.id}: {cart.state}" for cart in carts if cart.state not in FINAL_CART_STATES),
        *(f"{job} after {run}" for job, run in _answers_due(runs) if (job, run) not in answered),
    ]


async def _is_answered(world: World) -> bool:
    """Return whether every due time has an answer, or more than one."""
    for job in catalogue().values():
        if job.firing is not None:
            answers = await world.ledger(job.id, _LAST)
            if sum(answer.count for answer in answers) < job.firing.timetable.count(START, _LAST):
                return False
    return True


async def _judged_ledger(world: World, witness: Witness, job: KnownJob) -> list[LedgerEntry]:
    """Return the ledger; check that no due time has two answers, and nothing else has one."""
    answers = sorted(await world.ledger(job.id, _LAST), key=lambda answer: answer.first)
    for one, other in pairwise(answers):
        witness.require(one.last < other.first, f"{job.name} answered twice", (one, other))
    for answer in answers:
        is_due = _due_times(job, answer.first, answer.last) == answer.count
        witness.require(is_due, f"{job.name} answered what was not due", answer)
    return answers


def _due_times(job: KnownJob, first: datetime, last: datetime) -> int:
    return job.firing.timetable.count(first - _TICK, last) if job.firing else 0


def brief(run: Run) -> str:
    return f"{run.id} of {run.job}: {run.state}, attempt {run.attempt}"


def unknown_among(runs: Sequence[Run]) -> list[RunId]:
    """List runs that only a person can resolve."""
    return [run.id for run in runs if run.state is RunState.UNKNOWN]
