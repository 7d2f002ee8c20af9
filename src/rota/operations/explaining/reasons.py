"""What holds a run, in every state."""

from __future__ import annotations

from datetime import datetime

from rota.domain.run import Reason, Run
from rota.domain.states import RunState
from rota.operations.backends import Backends
from rota.operations.explaining.empty_pools import see_run
from rota.operations.explaining.explanation import Explanation, Obstacle, OrderOfService
from rota.operations.explaining.gates import passed_gates
from rota.operations.explaining.jobs import job_obstacle, upstream_obstacle
from rota.operations.explaining.shared_keys import is_shared, key_obstacles
from rota.operations.explaining.starting import likely_start
from rota.operations.explaining.turn import (
    not_reasons,
    order_of_service,
    reservation_reason,
    turn_reason,
)
from rota.operations.explaining.workers import worker_reason
from rota.operations.stamps import stamp
from rota.ports.places import Place


async def why(backends: Backends, run: Run) -> Explanation:
    """Explain the state of a run by what the store knows of it."""
    match run.state:
        case RunState.SCHEDULED | RunState.BLOCKED | RunState.QUEUED:
            return await _waits(backends, run)
        case RunState.CLAIMED | RunState.PROCESSING:
            verb = "claimed by" if run.state is RunState.CLAIMED else "running on"
            return _stands(run, f"{verb} worker {run.worker}")
        case RunState.UNKNOWN:
            reason = Reason(
                gate="person",
                message="its worker vanished while it ran, and at_most_once forbids a second try",
                action=f"rota run resolve {run.id} --as completed|failed|retry",
            )
            return _stands(run, "unknown: a person must decide", Obstacle(reason))
        case _:
            cause = f" ({run.cause})" if run.cause else ""
            return _stands(run, f"it has ended: {run.state.lower()}{cause}")


def in_short(run: Run) -> str | None:
    """What holds a run that waits, in a few words and without a look at others."""
    match run.state:
        case RunState.SCHEDULED | RunState.BLOCKED | RunState.QUEUED if run.reasons:
            return run.reasons[0].message
        case RunState.QUEUED:
            return "it waits for a worker"
        case _:
            return None


def _stands(run: Run, summary: str, *obstacles: Obstacle) -> Explanation:
    passed = passed_gates(run, (), ())
    return Explanation(run, summary, obstacles, passed, since=run.claimed_at)


async def _waits(backends: Backends, run: Run) -> Explanation:
    place = await backends.store.place_of(run.id)
    if place is None:  # it has gone on since it was read
        return Explanation(run, f"{run.state.lower()}: it goes on this very moment")
    order, seen = order_of_service(place), await see_run(backends, run)
    if run.state is RunState.QUEUED:
        obstacles = await _to_a_worker(backends, seen, place, order)
    else:
        obstacles = await _at_gates(backends, run, place)
    message = obstacles[0].reason.message if obstacles else "it goes on in a moment"
    gates = [obstacle.reason.gate for obstacle in obstacles]
    return Explanation(
        seen,
        f"{seen.state.lower()}: {message}",
        tuple(obstacles),
        passed_gates(run, place.keys, gates),
        since=_since(run),
        order=order,
        not_reasons=() if run.state is RunState.SCHEDULED else tuple(not_reasons(order)),
        starts_at=await likely_start(backends, run),
    )


async def _at_gates(backends: Backends, run: Run, place: Place) -> list[Obstacle]:
    if not run.reasons and run.state is RunState.SCHEDULED:
        return [Obstacle(Reason("time", _time_words(run), eligible_at=run.eligible_at))]
    others = [reason for reason in run.reasons if not is_shared(reason)]
    obstacles = [await _obstacle(backends, run, place, reason) for reason in others]
    if any(reason.gate == "hold" for reason in others) and await _comes_later(backends, run):
        obstacles.append(Obstacle(Reason("time", _time_words(run), eligible_at=run.eligible_at)))
    return obstacles + await key_obstacles(backends, run, place)


async def _comes_later(backends: Backends, run: Run) -> bool:
    """Whether a run that is held would have to wait for its time even if it were let go."""
    return run.eligible_at is not None and run.eligible_at > await backends.store.now()


async def _obstacle(backends: Backends, run: Run, place: Place, reason: Reason) -> Obstacle:
    match reason.gate:
        case "overlap" | "max_concurrency" | "backfill":
            return await job_obstacle(backends, run, place, reason)
        case "after":
            return await upstream_obstacle(backends, run, place, reason)
        case _:
            return Obstacle(reason)


async def _to_a_worker(
    backends: Backends, run: Run, place: Place, order: OrderOfService
) -> list[Obstacle]:
    """What a queued run waits for."""
    sessions = await backends.store.sessions(alive_only=True)
    reasons = (
        run.reasons[0] if run.reasons else worker_reason(run, place.shape, sessions),
        turn_reason(order),
        reservation_reason(run.id, order.reservation),
    )
    return [Obstacle(reason) for reason in reasons if reason is not None]


def _since(run: Run) -> datetime:
    match run.state:
        case RunState.QUEUED if run.queued_at is not None:
            return run.queued_at
        case RunState.SCHEDULED if not run.reasons:
            return run.created_at
        case _:
            return max(run.due_at, run.created_at)  # a backfill's due time is long past


def _time_words(run: Run) -> str:
    """Until when it waits; a spread or jitter moves the release, never the due time."""
    if run.eligible_at is None:
        return "it is due"
    release = stamp(run.eligible_at)
    if run.attempt:
        return f"its retry's back-off ends at {release}"
    if run.eligible_at <= run.due_at:
        return f"it is due at {release}"
    return f"it is due at {stamp(run.due_at)}, and its spread or jitter releases it at {release}"
