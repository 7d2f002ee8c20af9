"""The demands of a run on a worker. Runs of equal demands share a *shape*, a short text."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from rota.domain.job import RunRules

_ENCODER = json.JSONEncoder(separators=(",", ":"))


def shape_of(rules: RunRules) -> str:
    """The shape of a run under these rules; "" fits every worker of the pool."""
    demands: dict[str, object] = {}
    if rules.needs:
        demands["needs"] = dict(sorted(rules.needs.items()))
    if rules.function:
        demands["function"] = rules.function
    return _ENCODER.encode(demands) if demands else ""


def unmet(shape: str, labels: Mapping[str, str], functions: Collection[str]) -> list[str]:
    """What a worker lacks to take runs of this shape; empty: it fits."""
    if not shape:
        return []
    demands = json.loads(shape)
    lacks = [
        f"label {key}={value}"
        for key, value in demands.get("needs", {}).items()
        if labels.get(key) != value
    ]
    function = demands.get("function")
    if function and function not in functions:
        lacks.append(f"function {function}")
    return lacks
