"""What really executes when, as the workers' machines see it, and what must never be seen there.

The witness knows the jobs and the true time. It knows nothing of what the store believes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.domain.ids import JobId, instant, scheduled_run_id
from rota.domain.resources import Vector, lacking, total
from rota.domain.run import AttemptResult
from rota.domain.shared_keys import SECOND, Counted, Demands, Key, Rate
from rota.domain.spec import Delivery, Overlap
from rota.ports.work import Fence, Outcome, ReportAnswer, Work
from rota.testing.universes.catalogue import KnownJob, rule_of
from rota.testing.universes.timeline import Timeline

_TOLD = 60  # events that a complaint tells

KILLED = "killed"


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Life:
    """An attempt that executes."""

    fence: Fence
    worker: str
    job: KnownJob
    is_scheduled: bool
    keys: Demands


@dataclass(frozen=True, slots=True)
class Past:
    """An attempt that has executed."""

    attempt: int
    how: str  # an `AttemptResult`, or `KILLED`
    ended_at: int


class Witness:
    """Is told of every start and end, and complains at once."""

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
        self._begun: Counter[Fence] = Counter()
        self._claimed: Counter[str] = Counter()  # the latest attempt at each run
        self._cancelled: dict[str, int] = {}  # and the latest attempt by then
        self._resolved: set[str] = set()  # runs that a person gave another attempt
        self._tokens: defaultdict[Key, list[tuple[int, int]]] = defaultdict(list)
        self.story: list[tuple[float, str, object]] = []

    # --- what happens

    def note(self, what: str, about: object = "") -> None:
        self.tally[what] += 1
        self.story.append((self._timeline.elapsed, what, about))

    def claimed(self, work: Work) -> None:
        """At the instant of the claim, before anything is sent."""
        self.note("claim", work.fence)
        self._require(work.attempt > self._claimed[work.run], "a fence did not grow", work.fence)
        self._claimed[work.run] = work.attempt
        for key, tokens in self._keys(work).items():
            rule = rule_of(key)
            if isinstance(rule, Rate):
                self._take(key, rule, tokens)

    def cancelled(self, run: str) -> None:
        """Somebody was told that a run will not be tried again."""
        self.note("cancel", run)
        self._cancelled[run] = self._claimed[run]

    def resolved(self, run: str) -> None:
        """A person said that an UNKNOWN run may be tried again, whatever was said before."""
        self.note("resolve", run)
        self._resolved.add(run)
        self._cancelled.pop(run, None)

    def started(self, work: Work, worker: str) -> None:
        """Just before the process exists."""
        job = self._jobs[JobId(work.job_id)]
        is_scheduled = work.run == scheduled_run_id(job.id, instant(work.due_at))
        self.note("start", (work.fence, job.name, worker))
        life = Life(work.fence, worker, job, is_scheduled, self._keys(work))
        self._judge_attempt(life)
        self.lives[life.fence] = life
        self._judge_limits(life)

    def reported(self, outcomes: Sequence[Outcome], answer: ReportAnswer) -> None:
        """A server has answered for how attempts ended."""
        for outcome in outcomes:
            fence = Fence(outcome.run, outcome.attempt)
            if fence in answer.fenced:
                self.note("fenced report", fence)
            elif fence in answer.accepted:
                self.accepted.add(fence)

    def ended(self, fence: Fence, how: str) -> None:
        """Once nothing of the process is left."""
        self.note(f"end {how}", fence)
        del self.lives[fence]
        self.pasts[fence.run].append(Past(fence.attempt, how, self._timeline.now))

    def _keys(self, work: Work) -> Demands:
        job = self._jobs[JobId(work.job_id)]
        return job.keys(work.inputs, has_quota=self._has_quota)

    # --- what must hold

    def _judge_attempt(self, life: Life) -> None:
        fence = life.fence
        self._begun[fence] += 1
        others = [other for other in self.lives if other.run == fence.run]
        self._require(not others, "two attempts of a run at once", (fence, others))
        self._require(self._begun[fence] == 1, "one attempt began twice", fence)
        last = self._cancelled.get(fence.run, fence.attempt)
        self._require(fence.attempt <= last, "an attempt after a cancel", fence)
        for past in self.pasts[fence.run]:
            self._judge_after(life, past)

    def _judge_after(self, life: Life, past: Past) -> None:
        fence, rules = life.fence, life.job.rules
        self._require(past.attempt < fence.attempt, "a stale attempt began", fence)
        is_known = Fence(fence.run, past.attempt) in self.accepted
        if is_known and past.how in (AttemptResult.FAILED, AttemptResult.TIMED_OUT):
            pause = self._timeline.now - past.ended_at
            backoff = rules.retry.delay.total_seconds() * SECOND
            self._require(pause >= backoff, "a retry before its back-off", fence)
        if past.how == KILLED and rules.delivery is Delivery.AT_MOST_ONCE:
            self._require(fence.run in self._resolved, "at most once was twice", fence)

    def _judge_limits(self, life: Life) -> None:
        job = life.job
        here = total(it.job.demand for it in self.lives.values() if it.worker == life.worker)
        over = lacking(here, self.capacities[life.worker])
        self._require(not over, f"more than {life.worker} has", (over, here))
        same = [other for other in self.lives.values() if other.job is job]
        limit = job.rules.max_concurrency or len(same)
        self._require(len(same) <= limit, "max_concurrency passed", job.name)
        if job.rules.overlap is not Overlap.ALLOW and life.is_scheduled:
            due = sum(other.is_scheduled for other in same)
            self._require(due == 1, "scheduled runs overlap", job.name)
        for key in life.keys:
            self._judge_key(key)

    def _judge_key(self, key: Key) -> None:
        rule = rule_of(key)
        if isinstance(rule, Counted):
            used = sum(life.keys.get(key, 0) for life in self.lives.values())
            self._require(used <= rule.total, f"{key} is overdrawn", used)

    def _take(self, key: Key, rule: Rate, tokens: int) -> None:
        """In any t seconds at most burst + rate × t."""
        now, taken = self._timeline.now, self._tokens[key]
        taken.append((now, tokens))
        used = 0
        for at, amount in reversed(taken):
            used += amount
            allowed = rule.burst + rule.rate * (now - at) / SECOND
            self._require(used <= allowed + 1e-6, f"{key} too fast", (used, allowed))

    def _require(self, holds: bool, promise: str, about: object) -> None:
        if not holds:
            self.complain(promise, about)

    def complain(self, promise: str, about: object) -> None:
        """A promise was broken."""
        raise Violation("\n".join([*self.told(_TOLD), f"{promise}: {about}"]))

    def told(self, latest: int) -> list[str]:
        """What happened last, a line each."""
        return [f"{at:9.3f}  {what}  {_text(about)}" for at, what, about in self.story[-latest:]]


def _text(about: object) -> str:
    match about:
        case Fence(run=run, attempt=attempt):
            return f"{run} #{attempt}"
        case tuple():
            return "  ".join(map(_text, about))
        case _:
            return str(about)
