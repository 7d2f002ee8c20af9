"""What must hold once everything was mended and nothing is left to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from rota.domain.ids import RunId
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery
from rota.domain.states import RunState, is_final
from rota.ports.work import Fence
from rota.testing.clock import START
from rota.testing.universes.catalogue import FIRING_FOR, KnownJob, catalogue
from rota.testing.universes.evidence import Witness
from rota.testing.universes.world import RunFacts, World

_LAST = START + FIRING_FOR


async def judge_rest(
    world: World, witness: Witness, promised: Collection[RunId], resolved: Collection[RunId]
) -> None:
    """`promised` were acknowledged; a person said how the `resolved` ones ended."""
    runs = await world.all_runs()
    lost = set(promised) - {run.id for run in runs}
    _require(witness, not lost, "acknowledged runs vanished", sorted(lost))
    _require(witness, not witness.lives, "something still executes", list(witness.lives))
    held = await world.held()
    _require(witness, not held, "something is still held", held)
    jobs = {job.name: job for job in catalogue().values()}
    for run in runs:
        _judge_end(witness, run, jobs[run.job], is_resolved=run.id in resolved)
    for job in jobs.values():
        await _judge_ledger(world, witness, job)


def _judge_end(witness: Witness, run: RunFacts, job: KnownJob, *, is_resolved: bool) -> None:
    pasts, rules = witness.pasts[run.id], job.rules
    told = brief(run)
    _require(witness, is_final(run.state), "a run has not ended", told)
    if is_resolved:
        return
    _require(witness, run.failures <= rules.retry.attempts, "too many failures", told)
    _require(witness, run.losses <= rules.max_losses + 1, "too many losses", told)
    good = [past.attempt for past in pasts if past.how == AttemptResult.COMPLETED]
    taken = [attempt for attempt in good if Fence(run.id, attempt) in witness.accepted]
    is_good = run.state is RunState.COMPLETED
    _require(witness, is_good or not taken, "an accepted success was dropped", told)
    if is_good:
        _require(witness, run.attempt in good, "a success that nobody saw", told)
    if rules.delivery is Delivery.AT_MOST_ONCE:
        _require(witness, len(good) <= 1, "at most once ended well twice", told)


async def is_answered(world: World) -> bool:
    """Whether every due time has an answer, or more than one."""
    for job in catalogue().values():
        if job.firing is not None:
            answers = await world.ledger(job.id, _LAST)
            if sum(answer.count for answer in answers) < job.firing.timetable.count(START, _LAST):
                return False
    return True


async def _judge_ledger(world: World, witness: Witness, job: KnownJob) -> None:
    """No due time has two answers."""
    answers = sorted(await world.ledger(job.id, _LAST), key=lambda answer: answer.first)
    for one, other in pairwise(answers):
        _require(witness, one.last < other.first, f"{job.name} answered twice", (one, other))


def _require(witness: Witness, holds: bool, promise: str, about: object) -> None:
    if not holds:
        witness.complain(promise, about)


def brief(run: RunFacts) -> str:
    return f"{run.id} of {run.job}: {run.state}, attempt {run.attempt}"


def unknown_among(runs: Sequence[RunFacts]) -> list[RunId]:
    """Runs about which only a person can tell."""
    return [run.id for run in runs if run.state is RunState.UNKNOWN]
