"""Shapes: what runs demand of a worker, and their placement on one, with no large run starved.

Runs of equal demands share a *shape*, a short text that a store compares: whether a worker fits is
decided once for each shape, not for each run. `Placement` decides which runs, offered in order of
service, go to one worker now.

The best-ranked run that does not fit now gets a *reservation* on a worker that it could fit. From
then on others may only *backfill* there: run in what the reservation leaves, or be over before the
room for it is there (EASY backfilling). Small runs would otherwise fill each gap for ever.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import lru_cache

from rota.domain.gates import Admission, Gate, blocked
from rota.domain.job import RunRules
from rota.domain.resources import (
    HTTP_SLOTS,
    ONE_HTTP_SLOT,
    ONE_SLOT,
    SLOTS,
    UNIT,
    Vector,
    fits,
    format_amount,
    lacking,
    minus,
    plus,
)
from rota.domain.run import Reason
from rota.domain.spec import JobType
from rota.domain.walls import PROBES, OfferKind, demanded, missing, offered_lease, words_of

# A worker that tells no offers is of a release without walls.
NO_OFFERS: Collection[str] = frozenset()
WORKER = "worker"  # the label of Rota's own: every worker has it, and its value is its name
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand on a worker: a shape, taken apart."""

    labels: Mapping[str, str]
    function: str  # "": any worker knows what to do
    resources: Vector  # with the slot, or http slot, that every run takes
    offers: tuple[str, ...] = ()  # of walls; a plain process asks for none
    is_alone: bool = False  # nothing else may go on its worker meanwhile

    def on(self, capacity: Vector) -> Vector:
        """Return what it takes of a worker with this capacity: alone, it takes all slots.

        What another system does harms no neighbour.
        """
        if not self.is_alone or HTTP_SLOTS in self.resources:
            return self.resources
        return {**self.resources, SLOTS: capacity.get(SLOTS, UNIT)}


def all_labels(worker: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a worker was given, with that of Rota's own."""
    return {**labels, WORKER: worker}


def worker_of(shape: str) -> str:
    """Return the name of the only worker that runs of a shape are for; "": they name none."""
    return demand_of(shape).labels.get(WORKER, "") if f'"{WORKER}"' in shape else ""


def shape_of(rules: RunRules, needs: Mapping[str, str] | None = None) -> str:
    """Return the shape of a run under these rules; "" fits every worker of the pool.

    `needs` are its own, over those of its job.
    """
    demands: dict[str, object] = {}
    if wanted := {**rules.needs, **(needs or {})}:
        demands["needs"] = dict(sorted(wanted.items()))
    if rules.function:
        demands["function"] = rules.function
    taken = {**rules.resources, **(ONE_HTTP_SLOT if rules.kind == JobType.HTTP else {})}
    if taken:
        demands["resources"] = dict(sorted(taken.items()))
    kind = "" if rules.kind == JobType.EXTERNAL else rules.kind  # those come to no worker
    lease = (f"{OfferKind.LEASE}/{offered_lease(rules.lease)}",) if rules.lease else ()
    if offers := (*demanded(rules.walls, kind, rules.secrets), *lease):
        demands["offers"] = offers
    return _ENCODER.encode(demands) if demands else ""


def probe_shape(rules: RunRules, shape: str = "") -> str:
    """Return the shape of a probe of a run of this shape: its labels and walls, nothing it takes.

    The labels may be those of an item, which another worker could not tell of. A worker that does
    not know probes would take one for the run itself.
    """
    offers = (*demanded(rules.walls), f"{OfferKind.CAPABILITY}/{PROBES}")
    needs = {**rules.needs, **demand_of(shape).labels}
    demands: dict[str, object] = {"needs": dict(sorted(needs.items()))} if needs else {}
    return _ENCODER.encode({**demands, "offers": offers})


def alone(shape: str) -> str:
    """Return the shape of such runs when nothing else may go on their worker."""
    demands = json.loads(shape) if shape else {}
    return _ENCODER.encode({"alone": True, **demands})


@lru_cache(maxsize=10_000)
def demand_of(shape: str) -> Demand:
    """Parse what a shape demands of a worker."""
    parts = json.loads(shape) if shape else {}
    resources = parts.get("resources", {})
    return Demand(
        labels=parts.get("needs", {}),
        function=parts.get("function", ""),
        resources=resources if HTTP_SLOTS in resources else {**ONE_SLOT, **resources},
        offers=tuple(parts.get("offers", ())),
        is_alone=parts.get("alone", False),
    )


def unmet(
    shape: str,
    labels: Mapping[str, str],
    functions: Collection[str],
    capacity: Vector | None = None,
    offers: Collection[str] = NO_OFFERS,
) -> list[str]:
    """List what a worker lacks to ever take runs of this shape; empty: it fits.

    Without a `capacity` nothing is asked about resources. `offers` are those of walls that it has.
    """
    if not shape:
        return []
    demand = demand_of(shape)
    lacks = [
        f"label {key}={value}" for key, value in demand.labels.items() if labels.get(key) != value
    ]
    if demand.function and demand.function not in functions:
        lacks.append(f"function {demand.function}")
    if demand.offers:
        lacks += map(words_of, missing(demand.offers, offers))
    if capacity is not None:
        lacks += [
            f"{format_amount(name, demand.resources[name])} {name}"
            for name in lacking(demand.resources, capacity)
            if name != HTTP_SLOTS  # whoever has none offers no such jobs, which was said
        ]
    return lacks


def worker_key(pool: str, shape: str) -> str:
    """Return the key that runs of one shape wait on while no worker of their pool fits them."""
    return f"{Gate.WORKER}:{pool}/{hashlib.blake2b(shape.encode(), digest_size=8).hexdigest()}"


def without_worker(pool: str, shape: str, lacks: Collection[str]) -> Admission:
    """Block a run that no worker could ever take.

    `lacks` is what the worker that comes nearest has not.
    """
    reason = Reason(
        gate=Gate.WORKER,
        message=f"no worker of pool {pool} could ever take it: missing {', '.join(lacks)}",
        key=worker_key(pool, shape),
        action="rota worker list",
    )
    return blocked(reason)


def without_its_worker(pool: str, shape: str, gone_at: datetime | None) -> Admission:
    """Block a run that only one worker may take, which is not there.

    `gone_at` is when that was last heard of; None: never, in this pool.
    """
    worker = worker_of(shape)
    if gone_at is None:
        message = f"waits for worker {worker}, which pool {pool} does not have"
        action = "rota worker list"
    else:
        action = f"rota worker show {worker}"
        message = f"waits for worker {worker}, which is gone since {gone_at:%Y-%m-%d %H:%M:%S} UTC"
    key = worker_key(pool, shape)
    return blocked(Reason(Gate.WORKER, message, key, action=action))


@dataclass(frozen=True, slots=True)
class Occupied:
    """Amounts that a live attempt takes of its worker. Instants are numbers of one unit."""

    demand: Vector
    ends_at: float  # by its timeout, else by what is expected of it; infinity: nobody knows


@dataclass(frozen=True, slots=True)
class Reservation:
    """Reservation of a worker for a large run."""

    run: int  # its sequence number
    demand: Vector


class Verdict(Enum):
    TAKEN = 1
    NO_ROOM = 2  # it could fit this worker, but not now
    KEPT_FREE = 3  # it would fit, but in the way of a reservation
    TOO_LARGE = 4  # it will never fit this worker


@dataclass(slots=True)
class Placement:
    """Placement of one claim for one worker: runs are offered in order of service."""

    capacity: Vector  # all that the worker has
    now: float
    occupied: list[Occupied] = field(default_factory=list)
    reservation: Reservation | None = None  # on this very worker
    _free: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._free = dict(self.capacity)
        for each in self.occupied:
            self._free = minus(self._free, each.demand)

    @property
    def free(self) -> Vector:
        """Return what no attempt takes now, kept free or not."""
        return self._free

    def could_ever_fit(self, demand: Vector) -> bool:
        return fits(demand, self.capacity)

    def offer(self, run: int, demand: Vector, ends_at: float, latest_end: float) -> Verdict:
        """Place a run if it may go here now.

        `ends_at` is when it should be over, `latest_end` when it must be (its timeout; infinity:
        it has none). Only the latter lets it run where room is kept for another.
        """
        if not self.could_ever_fit(demand):
            return Verdict.TOO_LARGE
        if not fits(demand, self._free):
            return Verdict.NO_ROOM
        if self._is_in_the_way(run, demand, latest_end):
            return Verdict.KEPT_FREE
        self._free = minus(self._free, demand)
        if self.reservation is not None and self.reservation.run == run:
            self.reservation = None
        # Nobody may count on the end of who goes beside a reservation, but by its timeout.
        over_at = min(ends_at, latest_end) if self.reservation is None else latest_end
        self.occupied.append(Occupied(demand, over_at))
        return Verdict.TAKEN

    def reserve(self, run: int, demand: Vector) -> Reservation:
        """Reserve room for a run that got the verdict NO_ROOM."""
        self.reservation = Reservation(run, demand)
        return self.reservation

    def _is_in_the_way(self, run: int, demand: Vector, latest_end: float) -> bool:
        reserved = self.reservation
        if reserved is None or reserved.run == run:
            return False
        if reserved.demand.keys().isdisjoint(demand):  # they take nothing of one another
            return False
        opens_at = room_opens_at(reserved.demand, self._free, self.occupied)
        if latest_end <= opens_at:
            return False
        lasting = [each for each in self.occupied if each.ends_at > opens_at]
        left = self.capacity
        for each in lasting:
            left = minus(left, each.demand)
        return not fits(plus(reserved.demand, demand), left)


def room_opens_at(demand: Vector, free: Vector, occupied: Sequence[Occupied]) -> float:
    """Return when a demand fits, as attempts end one after another; infinity: not by that alone."""
    if fits(demand, free):
        return float("-inf")
    for each in sorted(occupied, key=lambda each: each.ends_at):
        free = plus(free, each.demand)
        if fits(demand, free):
            return each.ends_at
    return float("inf")
