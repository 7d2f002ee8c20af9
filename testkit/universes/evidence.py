"""Executions as the workers' machines see them, and the invariants that must hold there.

The witness knows the jobs and the true time. It knows nothing of the store's state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rota.domain.ids import JobId, RunId, following_run_id, instant, scheduled_run_id
from rota.domain.keys import SECOND, Counted, Demands, Key, Rate
from rota.domain.resources import Vector, lacking, total
from rota.domain.retry import goes_alone
from rota.domain.run import AttemptResult
from rota.domain.spec import Delivery, Overlap
from rota.domain.states import RunState
from rota.ports.work import Fence, Outcome, Report, ReportAnswer, Work
from testkit.universes.cart_evidence import CartWitness
from testkit.universes.catalogue import KnownJob, followers, rule_of
from testkit.universes.timeline import Timeline

_TOLD = 60  # events that a complaint tells
BAD = (AttemptResult.FAILED, AttemptResult.TIMED_OUT)
KILLED = "killed"


class Violation(BaseException):
    """Broken promise; no `Exception`, which the code that is looked at may catch."""


@dataclass(frozen=True, slots=True)
class Life:
    """Attempt that executes."""

    work: Work
    worker: str
    job: KnownJob
    is_scheduled: bool
    keys: Demands

    @property
    def fence(self) -> Fence:
        return self.work.fence


@dataclass(frozen=True, slots=True)
class Past:
    """Attempt that has executed."""

    attempt: int
    how: str  # an `AttemptResult`, or `KILLED`
    ended_at: int


class Witness:
    """Observes every start and end, and raises `Violation` at once."""

    def __init__(
        self, timeline: Timeline, jobs: Mapping[JobId, KnownJob], *, has_quota: bool
    ) -> None:
        self._timeline = timeline
        self._jobs = jobs
        self._has_quota = has_quota
        self.capacities: dict[str, Vector] = {}  # by worker
        self.lives: dict[Fence, Life] = {}
        self.pasts: defaultdict[str, list[Past]] = defaultdict(list)  # by run
        self.tally: Counter[str] = Counter()  # of what happened, so that nothing is vacuous
        self.accepted: set[Fence] = set()  # attempts whose end a server has taken note of
        self.carts = CartWitness(self.complain)
        self._begun: Counter[Fence] = Counter()
        self._claimed: Counter[str] = Counter()  # the latest attempt at each run
        self._cancelled: dict[str, int] = {}  # and the latest attempt by then
        self._resolved: set[str] = set()  # runs that a person gave another attempt
        self._held: set[str] = set()  # runs that must not start, as somebody was told
        self._works: dict[str, Work] = {}  # the latest attempt at each run
        self._failures: Counter[str] = Counter()  # of each run, as far as servers know
        self._answers: set[str] = set()  # runs that answer one that has completed
        self._tokens: defaultdict[Key, list[tuple[int, int]]] = defaultdict(list)
        self.story: list[tuple[float, str, object]] = []

    # --- what happens

    def note(self, what: str, about: object = "") -> None:
        self.tally[what] += 1
        self.story.append((self._timeline.elapsed, what, about))

    def claimed(self, work: Work) -> None:
        """Record a claim at its instant, before anything is sent."""
        self.note("claim", work.fence)
        self.require(work.attempt > self._claimed[work.run], "a fence did not grow", work.fence)
        self.require(work.run not in self._held, "a held run was claimed", work.fence)
        self._claimed[work.run] = work.attempt
        self._works[work.run] = work
        self.carts.claimed(work, self._timeline.now)
        for key, tokens in self._keys(work).items():
            rule = rule_of(key)
            if isinstance(rule, Rate):
                self._take(key, rule, tokens)

    def cancelled(self, run: str) -> None:
        """Record that somebody was told that a run will not be tried again."""
        self.note("cancel", run)
        self._cancelled[run] = self._claimed[run]

    def resolved(self, run: str, state: RunState) -> None:
        """Record that a person resolved an UNKNOWN run: how it ended, or that it is retried."""
        self.note("resolve", run)
        self._resolved.add(run)
        self._cancelled.pop(run, None)
        if state is RunState.COMPLETED:
            self._completed(self._works[run])
        self.carts.resolved(run, is_failure=state is RunState.FAILED)

    def held(self, run: str) -> None:
        """Record that somebody was told that a run is held until it is released."""
        self.note("hold", run)
        self._held.add(run)

    def let_go(self, run: RunId, *, was_held: bool, in_cart: bool) -> None:
        """Release a held run; only a cancel may end it while held: its own, or its cart's."""
        self.note("let go", run)
        self._held.discard(run)
        is_over = in_cart or run in self._cancelled
        self.require(was_held or is_over, "a held run did not stay", run)

    def started(self, work: Work, worker: str) -> None:
        """Record a start, just before the process exists."""
        job = self._jobs[JobId(work.job_id)]
        is_scheduled = work.run == scheduled_run_id(job.id, instant(work.due_at))
        self.note("start", (work.fence, job.name, worker))
        life = Life(work, worker, job, is_scheduled, self._keys(work))
        if goes_alone(self._losses(life), job.rules.max_losses):
            self.note("start alone", work.fence)
        self._judge_attempt(life)
        self.lives[life.fence] = life
        self._judge_limits(life)
        self.carts.started(work)

    def reported(self, report: Report, answer: ReportAnswer) -> None:
        """Record a server's answer to reported ends."""
        for outcome in _outcomes(report):
            fence = outcome.fence
            if fence in answer.refused:
                self.note("fenced report", fence)
            elif fence not in answer.again and fence not in self.accepted:
                self.accepted.add(fence)
                self._count(outcome)

    def _count(self, outcome: Outcome) -> None:
        run = outcome.run
        self.carts.reported(run, outcome.ended_at)
        self._failures[run] += outcome.result in BAD
        attempts = self._jobs[JobId(self._works[run].job_id)].rules.retry.attempts
        if self._failures[run] >= attempts and run not in self._cancelled:
            self.carts.failed(run)

    def ended(self, fence: Fence, how: str) -> None:
        """Record an end, once nothing of the process is left."""
        self.note(f"end {how}", fence)
        life = self.lives.pop(fence)
        self.pasts[fence.run].append(Past(fence.attempt, how, self._timeline.now))
        self.carts.ended(life.work, self._timeline.now)
        if how == AttemptResult.COMPLETED:
            self._completed(life.work)

    def _completed(self, work: Work) -> None:
        """Record a completion: from now on other jobs may follow."""
        for job in followers(self._jobs[JobId(work.job_id)].name):
            self._answers.add(following_run_id(job.id, RunId(work.run)))

    def _keys(self, work: Work) -> Demands:
        job = self._jobs[JobId(work.job_id)]
        return job.keys(work.inputs, has_quota=self._has_quota)

    # --- what must hold

    def _judge_attempt(self, life: Life) -> None:
        fence = life.fence
        self._begun[fence] += 1
        others = [other for other in self.lives if other.run == fence.run]
        self.require(not others, "two attempts of a run at once", (fence, others))
        self.require(self._begun[fence] == 1, "one attempt began twice", fence)
        last = self._cancelled.get(fence.run, fence.attempt)
        self.require(fence.attempt <= last, "an attempt after a cancel", fence)
        is_due = not life.job.rules.after or fence.run in self._answers
        self.require(is_due, "a run follows what has not completed", fence)
        for past in self.pasts[fence.run]:
            self._judge_after(life, past)

    def _judge_after(self, life: Life, past: Past) -> None:
        fence, rules = life.fence, life.job.rules
        self.require(past.attempt < fence.attempt, "a stale attempt began", fence)
        is_known = Fence(fence.run, past.attempt) in self.accepted
        if is_known and past.how in BAD:
            pause = self._timeline.now - past.ended_at
            backoff = rules.retry.delay.total_seconds() * SECOND
            self.require(pause >= backoff, "a retry before its back-off", fence)
        if past.how == KILLED and rules.delivery is Delivery.AT_MOST_ONCE:
            self.require(fence.run in self._resolved, "at most once was twice", fence)

    def _judge_limits(self, life: Life) -> None:
        job = life.job
        capacity = self.capacities[life.worker]
        lives = [each for each in self.lives.values() if each.worker == life.worker]
        here = total(each.job.takes(capacity, self._losses(each)) for each in lives)
        over = lacking(here, capacity)
        self.require(not over, f"more than {life.worker} has", (over, here))
        same = [other for other in self.lives.values() if other.job is job]
        limit = job.rules.max_concurrency or len(same)
        self.require(len(same) <= limit, "max_concurrency passed", job.name)
        if job.rules.overlap is not Overlap.ALLOW and life.is_scheduled:
            due = sum(other.is_scheduled for other in same)
            self.require(due == 1, "scheduled runs overlap", job.name)
        for key in life.keys:
            self._judge_key(key)

    def _losses(self, life: Life) -> int:
        """Return how many workers the run is known to have lost."""
        return sum(past.how == KILLED for past in self.pasts[life.fence.run])

    def _judge_key(self, key: Key) -> None:
        rule = rule_of(key)
        if isinstance(rule, Counted):
            used = sum(life.keys.get(key, 0) for life in self.lives.values())
            self.require(used <= rule.total, f"{key} is overdrawn", used)

    def _take(self, key: Key, rule: Rate, tokens: int) -> None:
        """Take tokens; at most burst + rate × t in any t seconds."""
        now, taken = self._timeline.now, self._tokens[key]
        taken.append((now, tokens))
        used = 0
        for at, amount in reversed(taken):
            used += amount
            allowed = rule.burst + rule.rate * (now - at) / SECOND
            self.require(used <= allowed + 1e-6, f"{key} too fast", (used, allowed))

    def require(self, holds: bool, promise: str, about: object) -> None:
        if not holds:
            self.complain(promise, about)

    def complain(self, promise: str, about: object) -> None:
        """Raise `Violation`: a promise was broken."""
        raise Violation("\n".join([*self.told(_TOLD), f"{promise}: {about}"]))

    def told(self, latest: int) -> list[str]:
        """Return what happened last, a line each."""
        return [f"{at:9.3f}  {what}  {_text(about)}" for at, what, about in self.story[-latest:]]


def _text(about: object) -> str:
    match about:
        case Fence(run=run, attempt=attempt):
            return f"{run} #{attempt}"
        case tuple():
            return "  ".join(map(_text, about))
        case _:
            return str(about)


def _outcomes(report: Report) -> list[Outcome]:
    ends = report.ends
    plain = zip(ends.runs, ends.numbers, ends.started_at, ends.ended_at, strict=True)
    return [
        *(Outcome(run, n, AttemptResult.COMPLETED, began, at) for run, n, began, at in plain),
        *report.outcomes,
    ]
