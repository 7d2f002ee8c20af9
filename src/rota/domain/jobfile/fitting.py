"""Whether a pool and its workers could run a job that asks for so much."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from rota.domain.amounts import format_amount
from rota.domain.errors import Problem
from rota.domain.jobfile.uses import Known, Use, UsedResource, Written
from rota.domain.jobfile.wording import did_you_mean
from rota.domain.resources import Vector, fits


def beyond(demand: Vector, most: Vector) -> list[str]:
    """The names of which a run may not have so much; `most` says nothing of others."""
    return [name for name, amount in demand.items() if amount > most.get(name, amount)]


def refusal_of(pool: str, name: str, demand: Vector, most: Vector) -> str:
    """Why a pool does not take a run that asks for so much of a resource."""
    asked, allowed = (format_amount(name, vector[name]) for vector in (demand, most))
    return f"pool {pool} takes runs of at most {allowed} {name}, not {asked}"


def refusals_of(uses: Sequence[Use], pool: str, most: Vector) -> Iterator[Problem]:
    """What is wrong with a job whose pool takes only smaller runs."""
    demand = {use.name: use.amount for use in uses if isinstance(use, UsedResource)}
    refused = beyond(demand, most)
    for use in uses:
        if isinstance(use, UsedResource) and use.name in refused:
            yield use.problem(refusal_of(pool, use.name, demand, most))


def without_worker(pool: Written, pools: Collection[str]) -> Problem | None:
    """A warning if a pool is none of those that have workers now, as far as any are known."""
    if not pools or pool.name in pools:
        return None
    message = f"pool {pool.name} has no worker now: runs will wait for one"
    return pool.problem(message, did_you_mean(pool.name, pools), warning=True)


def without_labels(
    needs: Written, labels: Mapping[str, str], pool: str, offers: Sequence[Mapping[str, str]]
) -> Problem | None:
    """A warning if none of a pool's workers, as far as any are known, has all these labels."""
    if not offers or any(labels.items() <= offer.items() for offer in offers):
        return None
    asked = ", ".join(f"{name}={value}" for name, value in labels.items())
    message = f"no worker of pool {pool} is labelled {asked}: runs will wait for one"
    return needs.problem(message, warning=True)


def too_large(
    uses: Sequence[Use], known: Known, pool: str, offers: Sequence[Vector]
) -> Problem | None:
    """A warning if none of a pool's workers, as far as any are known, could run the job."""
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
