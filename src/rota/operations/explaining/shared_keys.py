"""Shared keys that a run waits for: rate limits, quotas, named resources, `exclusive_by`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from rota.domain.ids import RunId, micros
from rota.domain.key_gates import reasons_of
from rota.domain.run import Reason, Run
from rota.domain.shared_keys import Counted, KeyKind, behind, shortage
from rota.operations.backends import Backends
from rota.operations.explaining.explanation import Holder, Obstacle
from rota.operations.explaining.holders import holders_by_id
from rota.ports.limits import KeyUse
from rota.ports.places import Place

_KINDS = tuple(f"{kind}:" for kind in KeyKind)


def is_shared(reason: Reason) -> bool:
    """Whether it is about a key that runs of many jobs share."""
    return reason.key.startswith(_KINDS)


async def key_obstacles(backends: Backends, run: Run, place: Place) -> list[Obstacle]:
    """The shared keys that a run waits for; those that it could have by now are left out."""
    reasons = {reason.key: reason for reason in run.reasons if is_shared(reason)}
    if not reasons:
        return []
    now = await backends.store.now()
    uses = await backends.store.key_uses(reasons)
    held = {holder for use in uses.values() for holder in use.holders}
    holders = await holders_by_id(backends, run.project, held)
    present = ((_present(reasons[key], use, place, now), use) for key, use in uses.items())
    found = {r.key: _obstacle(r, use, place, holders) for r, use in present if r is not None}
    return [found[key] for key in reasons if key in found]


def _obstacle(
    reason: Reason, use: KeyUse, place: Place, holders: Mapping[RunId, Holder]
) -> Obstacle:
    has_holders = isinstance(use.state.rule, Counted)  # tokens are never given back
    return Obstacle(
        reason,
        holders=tuple(holders[run] for run in use.holders if run in holders and has_holders),
        before=place.before if reason.key == place.blocked_on else None,
        waiting=use.waiting,
    )


def _present(reason: Reason, use: KeyUse, place: Place, now: datetime) -> Reason | None:
    """The reason as it is by now; what a run was told of its turn stays. None: it is none."""
    key, amount, at = reason.key, place.keys.get(reason.key, 1), micros(now)
    short = shortage(key, amount, use.state, at, claims=False)
    if short is None:
        if key != place.blocked_on:
            return None
        short = replace(behind(key, amount, use.state, at, None), is_behind=place.before > 0)
    [present] = reasons_of([short])
    if reason.eligible_at is not None and reason.eligible_at > now:
        return replace(present, eligible_at=reason.eligible_at)
    return present
