"""The demands of a run on a worker. Runs of equal demands share a *shape*, a short text."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rota.domain.job import RunRules
from rota.domain.resources import ONE_SLOT, SLOTS, UNIT, Vector, format_amount, lacking

_ENCODER = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Demand:
    """A shape, taken apart."""

    labels: Mapping[str, str]
    function: str  # "": any worker knows what to do
    resources: Vector  # with the slot that every run takes
    is_alone: bool = False  # nothing else may go on its worker meanwhile

    def on(self, capacity: Vector) -> Vector:
        """What it takes of a worker that has this: alone, it takes all slots."""
        if not self.is_alone:
            return self.resources
        return {**self.resources, SLOTS: capacity.get(SLOTS, UNIT)}


def shape_of(rules: RunRules) -> str:
    """The shape of a run under these rules; "" fits every worker of the pool."""
    demands: dict[str, object] = {}
    if rules.needs:
        demands["needs"] = dict(sorted(rules.needs.items()))
    if rules.function:
        demands["function"] = rules.function
    if rules.resources:
        demands["resources"] = dict(sorted(rules.resources.items()))
    return _ENCODER.encode(demands) if demands else ""


def alone(shape: str) -> str:
    """The shape of such runs when nothing else may go on their worker."""
    demands = json.loads(shape) if shape else {}
    return _ENCODER.encode({"alone": True, **demands})


@lru_cache(maxsize=10_000)
def demand_of(shape: str) -> Demand:
    """What a shape asks of a worker."""
    parts = json.loads(shape) if shape else {}
    return Demand(
        labels=parts.get("needs", {}),
        function=parts.get("function", ""),
        resources={**ONE_SLOT, **parts.get("resources", {})},
        is_alone=parts.get("alone", False),
    )


def unmet(
    shape: str,
    labels: Mapping[str, str],
    functions: Collection[str],
    capacity: Vector | None = None,
) -> list[str]:
    """What a worker lacks to ever take runs of this shape; empty: it fits.

    Without a `capacity` nothing is asked about resources.
    """
    if not shape:
        return []
    demand = demand_of(shape)
    lacks = [
        f"label {key}={value}" for key, value in demand.labels.items() if labels.get(key) != value
    ]
    if demand.function and demand.function not in functions:
        lacks.append(f"function {demand.function}")
    if capacity is not None:
        lacks += [
            f"{format_amount(name, demand.resources[name])} {name}"
            for name in lacking(demand.resources, capacity)
        ]
    return lacks
