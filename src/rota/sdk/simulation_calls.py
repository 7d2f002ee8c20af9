"""What can be asked about changes before they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.sdk.exchange import Call, post
from rota.sdk.simulation_answers import Comparison


def simulate(
    lasting: str = "24h",
    *,
    add_workers: Mapping[str, int] | None = None,
    move: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> Call[Comparison]:
    """How runs would wait with more workers (by pool), other schedules (by job), or fewer jobs."""
    body = {
        "for": lasting,
        "add_workers": dict(add_workers or {}),
        "move": dict(move or {}),
        "without": list(without),
    }
    return post(Comparison, "/simulations", body)
