"""Uses of things that are defined elsewhere: resources, limits and other jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from rota.domain.errors import Problem, did_you_mean, quoted
from rota.domain.gates import cycle_text, find_cycle
from rota.domain.jobfile.demands import Access
from rota.domain.jobfile.rules import jobs_of_after, name_of_followed
from rota.domain.jobfile.text import At, Position, dotted
from rota.domain.keys import Declaration, Limit, Resource, Sharing
from rota.domain.resources import UNIT, USUAL_NAMES, Vector, fits, format_amount
from rota.domain.spec import EXTERNAL_POOL, JobSpec


@dataclass(frozen=True, slots=True)
class Written:
    """Position of a name in a file."""

    name: str
    path: str
    position: Position

    def problem(self, message: str, hint: str = "", *, warning: bool = False) -> Problem:
        return Problem(message, self.path, *self.position, hint=hint, warning=warning)


@dataclass(frozen=True, slots=True)
class UsedResource(Written):
    amount: int  # thousandths
    access: Access | None  # None: it was written as an amount


@dataclass(frozen=True, slots=True)
class UsedLimit(Written):
    tokens: int


@dataclass(frozen=True, slots=True)
class UsedJob(Written):
    """Job that is followed."""


Use: TypeAlias = UsedResource | UsedLimit | UsedJob


@dataclass(frozen=True, slots=True)
class Known:
    """Names that the jobs of a project may use."""

    limits: Mapping[str, Limit] = field(default_factory=dict)
    resources: Mapping[str, Resource] = field(default_factory=dict)
    offered: Collection[str] = ()  # resources of workers, beside the usual
    jobs: Collection[str] = ()
    is_all: bool = True  # False: there may be more that only a server knows

    @classmethod
    def of(cls, declarations: Sequence[Declaration], *, is_all: bool) -> Known:
        return cls(
            limits={each.name: each for each in declarations if isinstance(each, Limit)},
            resources={each.name: each for each in declarations if isinstance(each, Resource)},
            is_all=is_all,
        )


def uses_of(spec: JobSpec, document: Mapping[str, object], at: At) -> tuple[Use, ...]:
    """Return what a job uses that has passed every check."""
    return tuple(_uses(spec, document, at))


def written_at(name: str, at: At) -> Written:
    """Return the position of a name that stands as the value of a field."""
    return Written(name, *_where(at))


def problems_of(uses: Sequence[Use], known: Known) -> Iterator[Problem]:
    """Yield the problems of what a job uses."""
    for use in uses:
        if problem := _problem_of(use, known):
            yield problem


def cycle_problem(
    ours: Mapping[str, Sequence[Use]], others: Mapping[str, Collection[str]]
) -> Problem | None:
    """Find a cycle: jobs of a file that wait for each other, perhaps by way of others.

    `others` are jobs that are not in the file, each with those that it follows.
    """
    followed = {
        name: [use for use in uses if isinstance(use, UsedJob)] for name, uses in ours.items()
    }
    edges = {**others, **{name: [use.name for use in uses] for name, uses in followed.items()}}
    cycle = find_cycle(edges)
    if cycle is None:
        return None
    steps = set(pairwise(cycle))
    blamed = (use for name, uses in followed.items() for use in uses if (name, use.name) in steps)
    message = f"these jobs would wait for each other: {cycle_text(cycle)}"
    return next((use.problem(message) for use in blamed), None)


def _uses(spec: JobSpec, document: Mapping[str, object], at: At) -> Iterator[Use]:
    written = document.get("resources")
    modes = written if isinstance(written, Mapping) else {}
    for name, amount in spec.resources.items():
        position = at.child("resources").child(name)
        access = Access(modes[name]) if modes.get(name) in list(Access) else None
        yield UsedResource(name, *_where(position, is_key=True), amount, access)
    for index, (name, tokens) in enumerate(spec.rate_limits.items()):
        yield UsedLimit(name, *_where(at.child("rate_limits").child(index)), tokens)
    followed = jobs_of_after(at.child("after"))
    for index, name in enumerate(spec.after.jobs):
        yield UsedJob(name, *_where(name_of_followed(followed.child(index))))


def _where(at: At, *, is_key: bool = False) -> tuple[str, Position]:
    position = at.mark.key if is_key and at.mark else at.position
    return dotted(at.path), position or Position(1, 1)


def _problem_of(use: Use, known: Known) -> Problem | None:
    match use:
        case UsedResource():
            return _problem_of_resource(use, known)
        case UsedLimit():
            return _problem_of_limit(use, known)
        case UsedJob():
            return _problem_of_job(use, known)


def _problem_of_resource(use: UsedResource, known: Known) -> Problem | None:
    resource = known.resources.get(use.name)
    if resource is not None:
        return _problem_of_shared(use, resource)
    if use.access is not None and (known.is_all or use.name in USUAL_NAMES):
        return use.problem(
            f"there is no resource {quoted(use.name)} of kind read_write",
            did_you_mean(use.name, known.resources)
            or f"declare it: resources: [{{name: {use.name}, kind: read_write}}]",
        )
    if not known.is_all or use.name in USUAL_NAMES or use.name in known.offered:
        return None
    candidates = [*known.resources, *known.offered, *sorted(USUAL_NAMES)]
    return use.problem(
        f"there is no resource {quoted(use.name)}, and no worker offers it",
        did_you_mean(use.name, candidates)
        or f"declare it: resources: [{{name: {use.name}, total: 1}}]",
    )


def _problem_of_shared(use: UsedResource, resource: Resource) -> Problem | None:
    name, total = use.name, resource.total
    if resource.sharing is Sharing.READ_WRITE:
        hint = f"write {name}: read, or {name}: write"
        return None if use.access else use.problem(f"{name} is taken to read or to write", hint)
    if use.access is not None:
        return use.problem(f"{name} is not of kind read_write", f"write {name}: 1")
    if use.amount % UNIT:
        written = format_amount(name, use.amount)
        return use.problem(f"{name} is taken in whole units, not {written}")
    if use.amount > total * UNIT:
        there = f"there is {total}" if total == 1 else f"there are {total:,}"
        return use.problem(f"takes {use.amount // UNIT:,} of {name}, of which {there}")
    return None


def _problem_of_limit(use: UsedLimit, known: Known) -> Problem | None:
    limit = known.limits.get(use.name)
    if limit is None:
        hint = did_you_mean(use.name, known.limits) or (
            f"declare it: limits: [{{name: {use.name}, tokens: 10, per: 1s}}]"
        )
        return use.problem(f"there is no limit {quoted(use.name)}", hint) if known.is_all else None
    if use.tokens > limit.burst:
        return use.problem(
            f"takes {use.tokens:,} tokens of {use.name}, which never has more than {limit.burst:,}",
            f"give the limit a burst of {use.tokens}",
        )
    return None


def _problem_of_job(use: UsedJob, known: Known) -> Problem | None:
    if not known.is_all or use.name in known.jobs:
        return None
    return use.problem(f"there is no job {quoted(use.name)}", did_you_mean(use.name, known.jobs))


def exceeding(demand: Vector, most: Vector) -> list[str]:
    """List the names of which a run may not have so much; names missing in `most` have no bound."""
    return [name for name, amount in demand.items() if amount > most.get(name, amount)]


def refusal_of(pool: str, name: str, demand: Vector, most: Vector) -> str:
    """Explain why a pool does not take a run that demands so much of a resource."""
    asked, allowed = (format_amount(name, vector[name]) for vector in (demand, most))
    return f"pool {pool} takes runs of at most {allowed} {name}, not {asked}"


def refusals_of(uses: Sequence[Use], pool: str, most: Vector) -> Iterator[Problem]:
    """Yield the problems of a job whose pool takes only smaller runs."""
    demand = {use.name: use.amount for use in uses if isinstance(use, UsedResource)}
    refused = exceeding(demand, most)
    for use in uses:
        if isinstance(use, UsedResource) and use.name in refused:
            yield use.problem(refusal_of(pool, use.name, demand, most))


def of_no_worker(uses: Sequence[Use], known: Known) -> Iterator[Problem]:
    """Yield the problems of a job without a worker that asks for what only workers offer."""
    for use in uses:
        is_offered = isinstance(use, UsedResource) and use.name in known.offered
        if is_offered and use.name not in known.resources:
            message = f"{use.name} is what workers offer: another system does the work, no worker"
            yield use.problem(message, "leave it out, or declare it below resources")


def without_worker(pool: Written, pools: Collection[str]) -> Problem | None:
    """Return a warning if a pool is none of those that are known to have workers now."""
    if not pools or pool.name in pools or pool.name == EXTERNAL_POOL:
        return None
    message = f"pool {pool.name} has no worker now: runs will wait for one"
    return pool.problem(message, did_you_mean(pool.name, pools), warning=True)


def without_labels(
    needs: Written, labels: Mapping[str, str], pool: str, offers: Sequence[Mapping[str, str]]
) -> Problem | None:
    """Return a warning if none of a pool's known workers has all these labels."""
    if not offers or any(labels.items() <= offer.items() for offer in offers):
        return None
    asked = ", ".join(f"{name}={value}" for name, value in labels.items())
    message = f"no worker of pool {pool} is labelled {asked}: runs will wait for one"
    return needs.problem(message, warning=True)


def too_large(
    uses: Sequence[Use], known: Known, pool: str, offers: Sequence[Vector]
) -> Problem | None:
    """Return a warning if none of a pool's known workers could run the job."""
    own = [use for use in uses if isinstance(use, UsedResource) and use.name not in known.resources]
    demand = {use.name: use.amount for use in own}
    if not own or not offers or any(fits(demand, offer) for offer in offers):
        return None
    most = {use.name: max(offer.get(use.name, 0) for offer in offers) for use in own}
    use = next((use for use in own if use.amount > most[use.name]), None)
    if use is None:
        message = f"no worker of pool {pool} has all of this at once: runs will wait for one"
        return own[0].problem(message, warning=True)
    lack = _lack_of(use, most[use.name])
    return use.problem(f"no worker of pool {pool} {lack}: runs will wait for one", warning=True)


def _lack_of(use: UsedResource, most: int) -> str:
    if not most:
        return f"has any {use.name}"
    asked, offered = (format_amount(use.name, amount) for amount in (use.amount, most))
    return f"has {asked} {use.name}, the largest has {offered}"
