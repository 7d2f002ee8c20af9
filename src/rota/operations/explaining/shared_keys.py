"""Shared keys that a run waits for: rate limits, quotas, named resources, `exclusive_by`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rota.domain.ids import micros
from rota.domain.key_gates import reasons_of
from rota.domain.run import Reason, Run
from rota.domain.shared_keys import Counted, Key, KeyKind, shortage
from rota.operations.backends import Backends
from rota.operations.explaining.explanation import Obstacle
from rota.operations.explaining.holders import holders_by_id
from rota.ports.limits import KeyUse
from rota.ports.places import Place

KINDS = tuple(f"{kind}:" for kind in KeyKind)


async def key_obstacles(backends: Backends, run: Run, place: Place) -> dict[Key, Obstacle]:
    """What is known of the keys that a run is short of, by key."""
    reasons = {reason.key: reason for reason in run.reasons if reason.key.startswith(KINDS)}
    if not reasons:
        return {}
    now = await backends.store.now()
    uses = await backends.store.key_uses(reasons)
    held = {holder for use in uses.values() for holder in use.holders}
    holders = await holders_by_id(backends, run.project, held)
    return {
        key: Obstacle(
            _present(reason, place.keys.get(key, 1), uses.get(key), now),
            holders=tuple(holders[each] for each in uses[key].holders if each in holders)
            if key in uses and isinstance(uses[key].state.rule, Counted)
            else (),
            before=place.before if key == place.blocked_on else None,
            waiting=uses[key].waiting if key in uses else None,
        )
        for key, reason in reasons.items()
    }


def _present(reason: Reason, amount: int, use: KeyUse | None, now: datetime) -> Reason:
    """The reason as it is by now; what a run was told of its turn stays."""
    short = (
        None if use is None else shortage(reason.key, amount, use.state, micros(now), claims=False)
    )
    if short is None:
        return reason
    [present] = reasons_of([short])
    if reason.eligible_at is not None and reason.eligible_at > now:
        return replace(present, eligible_at=reason.eligible_at)
    return present
