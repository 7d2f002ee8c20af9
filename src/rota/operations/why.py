"""Why a run is not running, in words that a person can act on.

`why`, near the end, explains one run from what stands above it: the gates there are, workers, the
runs that have what it waits for, explainers of single gates, its turn in the order of service. What
was stored of the gates says only which they are; each is looked at as it stands now.

People see a queued run of a pool without workers as BLOCKED (`see`). That is not stored: the first
worker of the pool finds its runs in their chains, and no row has to change, however many they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from rota.domain.forecast.ahead import REMEMBERED_RUNS, Durations, Source, durations_of
from rota.domain.gates import KEY_GATES, SLOT_STATES, Gate, gates_of
from rota.domain.ids import RunId, micros
from rota.domain.key_gates import GATES, reasons_of
from rota.domain.keys import Counted, Key, KeyKind, behind, kind_of, shortage
from rota.domain.order import BOOST_SECONDS, Chain, latest_turn, share_of, turns_before
from rota.domain.probes import doubt_about
from rota.domain.quantities import parse_duration
from rota.domain.resources import HTTP_SLOTS, SLOTS, UNIT, fits, format_amount, lacking, minus
from rota.domain.run import Reason, Run, Trigger
from rota.domain.shape import demand_of, unmet, worker_of
from rota.domain.spec import EXTERNAL_POOL
from rota.domain.states import RunState, seen_state
from rota.operations import external
from rota.operations.engine import Engine
from rota.operations.forecasts import forecasts_for
from rota.operations.specs import stamp
from rota.operations.tenants import EVERYTHING, Sight, seen_reservation, seen_trouble
from rota.operations.walls import candidates, lacks_of
from rota.ports.forecasts import Place, Reserved
from rota.ports.records import JobQuery, KeyUse, RunQuery, Session


@dataclass(frozen=True, slots=True)
class Holder:
    """A run that has what another one waits for."""

    run: RunId
    job: str
    ends_at: datetime | None  # by how long such runs take; None: nobody knows


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A gate that a run stands at, as it is now."""

    reason: Reason
    holders: tuple[Holder, ...] = ()  # the oldest first; not all of them where there are many
    before: int | None = None  # runs that wait for the same and go first; None: not counted
    waiting: int | None = None  # all that wait for it; None: not counted
    next_at: datetime | None = None  # the next due time of the job that it waits for


@dataclass(frozen=True, slots=True)
class OrderOfService:
    """Turn of a run among all that wait for the same pool, with the numbers that decide it."""

    position: int  # runs that go first
    of_higher_priority: int  # of these
    of_own_line: int  # of the same priority and share
    of_other_shares: int  # all others
    latest_turn: int  # it goes with one of so many starts of the pool, whatever comes
    share: str
    tag: float  # F, of its chain
    virtual_time: float  # V, the least F of the chains of its priority that have runs
    cost: float  # what its start adds to F, before weights
    boost: float  # the head start by its priority
    weight: float  # as it counts among the chains that have runs
    entitled: float  # the part of the pool that its share may have
    used: float  # the part that its live attempts have
    reservation: Reserved | None = None  # of its pool


@dataclass(frozen=True, slots=True)
class NotReason:
    """Possible cause that was checked and does not hold the run."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Answer to why a run waits: where it stands and what would move it on."""

    run: Run
    summary: str  # one sentence
    obstacles: tuple[Obstacle, ...] = ()  # in the order of the gates
    passed: tuple[str, ...] = ()  # gates that it has behind it, in their order
    since: datetime | None = None  # it has stood there
    order: OrderOfService | None = None  # None: it does not wait
    not_reasons: tuple[NotReason, ...] = ()
    starts_at: datetime | None = None  # by the forecast; None: unknown

    @property
    def reasons(self) -> tuple[Reason, ...]:
        return tuple(obstacle.reason for obstacle in self.obstacles)


def passed_gates(run: Run, keys: Collection[Key], held: Iterable[str]) -> tuple[str, ...]:
    """Return the gates that a run has passed, if it stands at those in `held`."""
    held = set(held)
    gates = gates_of(run, held | {GATES[kind_of(key)] for key in keys})
    standing = held & {*gates}
    if run.state is not RunState.BLOCKED and not standing:
        return gates
    if run.state is RunState.BLOCKED and Gate.WORKER in standing:
        # Nobody can take it: shared keys are asked for only once somebody can.
        gates = tuple(gate for gate in gates if gate not in KEY_GATES)
    last = max((place for place, gate in enumerate(gates) if gate in standing), default=0)
    return tuple(gate for gate in gates[:last] if gate not in standing)


_LOOK = "rota worker list"
_LOOK_AT_ONE = "rota worker show NAME"  # which offers it has, and why not the others


def worker_reason(run: Run, shape: str, sessions: Sequence[Session]) -> Reason:
    """Return why no worker of its pool has taken a run of this shape, as they are now."""
    pool = run.pool
    present = [session for session in sessions if not session.stopping]
    crew = candidates(present, pool, shape)
    if not crew:
        worker = worker_of(shape)
        message = f"waits for worker {worker}, which is gone" if worker else "it waits for a worker"
        return Reason(Gate.WORKER, message, action=_LOOK)
    lacks = [unmet(shape, s.all_labels, s.functions, s.capacity, s.offered) for s in crew]
    if all(lacks) and demand_of(shape).offers:
        return Reason(Gate.WORKER, _walls_missing(pool, shape, crew), action=_LOOK_AT_ONE)
    if all(lacks):
        missing = "; ".join(sorted({", ".join(each) for each in lacks}))
        who = f"none of the {len(crew)} workers" if len(crew) > 1 else "no worker"
        message = f"{who} of pool {pool} fits: missing {missing}"
        return Reason(Gate.WORKER, message, action=_LOOK)
    fitting = [session for session, each in zip(crew, lacks, strict=True) if not each]
    taking = [session for session in fitting if not session.draining]
    if not taking:
        return _all_draining(sorted({session.worker for session in fitting}))
    return Reason(Gate.WORKER, _room(run, shape, taking), action="rota run list --active")


def _walls_missing(pool: str, shape: str, crew: Sequence[Session]) -> str:
    return f"no worker of pool {pool} could take it: {'; '.join(lacks_of(shape, crew))}"


def no_worker(pool: str, served: Collection[str]) -> Reason:
    """Return why a run of a pool without workers waits."""
    others = ", ".join(sorted({*served} - {EXTERNAL_POOL}))
    message = f"no worker serves pool {pool}" + (f" (workers serve {others})" if others else "")
    return Reason(Gate.WORKER, message, key=f"no_worker:{pool}", action=_LOOK)


def _room(run: Run, shape: str, taking: Sequence[Session]) -> str:
    demand = demand_of(shape).resources
    if run.is_alone and all(session.held for session in taking):
        lost = "a worker" if run.losses == 1 else f"{run.losses} workers"
        return f"it goes alone after losing {lost}: it waits until a worker is empty"
    used = [{SLOTS: s.held * UNIT, **s.used} for s in taking]
    if HTTP_SLOTS in demand:
        return f"all {sum(s.http_slots for s in taking)} http slots are taken"
    rooms = [minus(s.capacity, each) for s, each in zip(taking, used, strict=True)]
    short = {name for room in rooms for name in lacking(demand, room)} - {SLOTS}
    if any(fits(demand, room) for room in rooms) or not short:
        taken, slots = sum(each[SLOTS] for each in used) // UNIT, sum(s.slots for s in taking)
        message = f"{taken} of {slots} slots are taken"
        if taken == slots or len(taking) > 1:
            return message
        [only] = taking  # it may have vanished: it is taken for alive until its lease has ended
        gone = f"if it is gone, that is known by {stamp(only.expires_at)}"
        return f"worker {only.worker} has room ({message}); {gone}"
    needed = ", ".join(f"{format_amount(name, demand[name])} {name}" for name in sorted(short))
    return f"no worker that could take it has room now: it needs {needed}"


def _all_draining(workers: Sequence[str]) -> Reason:
    one, *others = workers
    message = f"worker {one} is draining"
    if others:
        message = f"all workers that fit are draining: {', '.join(workers)}"
    return Reason(Gate.WORKER, message, action=f"rota worker resume {one}")


async def see_runs(engine: Engine, query: RunQuery) -> list[Run]:
    """List the runs of a query in the states that people see; its filter uses these states, too."""
    served = await engine.store.served_pools()
    found = await engine.store.runs(replace(query, served=served))
    return await _seen(engine, found, served)


async def see_run(engine: Engine, run: Run) -> Run:
    """Return a run in the state that people see."""
    if run.state is not RunState.QUEUED:
        return run
    pools = await engine.store.seen_pools(run.project, run.pool)
    return run if pools.is_served else see(run, pools.others)


async def _seen(engine: Engine, runs: Sequence[Run], served: frozenset[str]) -> list[Run]:
    unserved = {run.project for run in runs if _is_unserved(run, served)}
    if not unserved:
        return list(runs)
    # Other pools are named to help, but none that is not for the run's project.
    others = {each: served - await engine.store.closed_pools([each]) for each in unserved}
    return [see(run, others[run.project]) if _is_unserved(run, served) else run for run in runs]


def _is_unserved(run: Run, served: Collection[str]) -> bool:
    return seen_state(run.state, is_served=run.pool in served) is not run.state


def see(run: Run, served: Collection[str]) -> Run:
    """Return a run in the state that people see while these pools have workers."""
    state = seen_state(run.state, is_served=run.pool in served)
    if state is run.state:
        return run
    return replace(run, state=state, reasons=(no_worker(run.pool, served),))


async def holders_by_id(
    engine: Engine, project: str, runs: Collection[RunId]
) -> dict[RunId, Holder]:
    """Return these runs of a project as holders, by id."""
    if not runs:
        return {}
    found = await engine.store.runs(RunQuery(project=project, ids=sorted(runs)))
    return {holder.run: holder for holder in await holders_of(engine, found)}


async def holders_of(engine: Engine, runs: Sequence[Run]) -> list[Holder]:
    """Return runs that were read already as holders."""
    if not runs:
        return []
    store = engine.store
    now = await store.now()
    seconds = await store.latest_durations({run.job_id for run in runs}, REMEMBERED_RUNS)
    documents = await store.documents([(run.job_id, run.job_version) for run in runs])
    holders = []
    for run in runs:
        expect = _expect(documents.get((run.job_id, run.job_version), {}))
        durations = durations_of(seconds.get(run.job_id, ()), expect)
        holders.append(Holder(run.id, run.job, _end(run, durations, now)))
    return holders


def _expect(document: Mapping[str, Any]) -> timedelta | None:
    try:
        return parse_duration(document["expect"])
    except (KeyError, ValueError):  # it says nothing, or nothing that this release can read
        return None


def _end(run: Run, durations: Durations, now: datetime) -> datetime | None:
    if run.started_at is None or durations.source is Source.GUESS:
        return None
    elapsed = max((now - run.started_at).total_seconds(), 0.0)
    return now + timedelta(seconds=durations.left_after(elapsed))


_SHOWN = 10
_GOING = (RunState.CLAIMED, RunState.PROCESSING)


Explainer = Callable[[Engine, Run, Place, Reason], Awaitable[Obstacle]]
_EXPLAINERS: dict[str, Explainer] = {}  # by gate; a gate without one is told by its reason alone


def explains(*gates: Gate) -> Callable[[Explainer], Explainer]:
    """Register an explainer, which looks further into these gates as they stand now."""

    def register(explainer: Explainer) -> Explainer:
        _EXPLAINERS.update(dict.fromkeys(gates, explainer))
        return explainer

    return register


@explains(Gate.OVERLAP, Gate.MAX_CONCURRENCY, Gate.BACKFILL)
async def job_obstacle(engine: Engine, run: Run, place: Place, reason: Reason) -> Obstacle:
    """Explain a gate that other runs of the job, or of the backfill, keep closed."""
    of_backfill = run.backfill if reason.gate == Gate.BACKFILL else None
    query = RunQuery(
        project=run.project,
        job_id=run.job_id,
        backfill=of_backfill,
        states=sorted(SLOT_STATES),
        limit=_SHOWN,
    )
    found = await engine.store.runs(query)
    holders = await holders_of(engine, found[::-1])
    return Obstacle(reason, holders=tuple(holders), before=_before(place, reason))


@explains(Gate.WORKER)
async def wall_obstacle(engine: Engine, run: Run, place: Place, reason: Reason) -> Obstacle:
    """Explain that no worker fits, where walls are asked for: what each misses, and why."""
    if not demand_of(place.shape).offers:
        return Obstacle(reason)
    sessions = await engine.store.sessions(alive_only=True)
    crew = candidates([each for each in sessions if not each.stopping], run.pool, place.shape)
    lacks = [unmet(place.shape, s.all_labels, s.functions, s.capacity, s.offered) for s in crew]
    if not crew or not all(lacks):
        return Obstacle(reason)  # it came a moment ago, or nobody is left
    message = _walls_missing(run.pool, place.shape, crew)
    return Obstacle(replace(reason, message=message, action=_LOOK_AT_ONE))


@explains(Gate.AFTER)
async def upstream_obstacle(engine: Engine, run: Run, place: Place, reason: Reason) -> Obstacle:
    """Explain the gate of a job that has to complete first."""
    name = reason.key.split("/", 1)[1]
    jobs = await engine.store.jobs(JobQuery(project=run.project, names=[name]))
    if not jobs:
        return Obstacle(reason)
    query = RunQuery(project=run.project, job_id=jobs[0].id, states=_GOING, limit=_SHOWN)
    going = await holders_of(engine, (await engine.store.runs(query))[::-1])
    return Obstacle(
        reason, holders=tuple(going), before=_before(place, reason), next_at=jobs[0].next_at
    )


def _before(place: Place, reason: Reason) -> int | None:
    return place.before if reason.key == place.blocked_on else None


_KINDS = tuple(f"{kind}:" for kind in KeyKind)


def is_shared(reason: Reason) -> bool:
    """Return whether the reason is about a key that runs of many jobs share."""
    return reason.key.startswith(_KINDS)


async def key_obstacles(engine: Engine, run: Run, place: Place) -> list[Obstacle]:
    """Explain the shared keys that a run waits for; leave out those that it could have by now."""
    reasons = {reason.key: reason for reason in run.reasons if is_shared(reason)}
    if not reasons:
        return []
    now = await engine.store.now()
    uses = await engine.store.key_uses(reasons)
    held = {holder for use in uses.values() for holder in use.holders}
    holders = await holders_by_id(engine, run.project, held)
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
    """Return the reason as it is by now; a stored turn stays. None: the key is free."""
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


def order_of_service(place: Place) -> OrderOfService:
    """Compute who goes before it, by the code that claims; of a blocked run: if it were queued."""
    own = place.chain
    before = turns_before(own, place.in_chain, place.cost, place.chains)
    chains = {each.chain.id: each.chain for each in place.chains}
    higher = [id_ for id_, chain in chains.items() if chain.priority > own.priority]
    of_higher_priority = sum(before[id_] for id_ in higher)
    position = sum(before.values())
    together = [own, *chains.values()]
    return OrderOfService(
        position=position,
        of_higher_priority=of_higher_priority,
        of_own_line=place.in_chain,
        of_other_shares=position - of_higher_priority - place.in_chain,
        latest_turn=latest_turn(place.older),
        share=place.share,
        tag=own.tag,
        virtual_time=min(chain.tag for chain in together if chain.priority == own.priority),
        cost=place.cost,
        boost=own.priority * BOOST_SECONDS,
        weight=own.weight,
        entitled=_weight(c for c in together if share_of(c.id) == place.share) / _weight(together),
        used=place.used,
        reservation=place.reservation,
    )


def turn_reason(order: OrderOfService) -> Reason | None:
    """Return who goes before a queued run; None: nobody does."""
    if not order.position:
        return None
    groups = (
        (order.of_higher_priority, "of a higher priority"),
        (order.of_own_line, f"of {order.share} came before it"),
        (order.of_other_shares, "of other shares"),
    )
    words = [f"{count:,} {whose}" for count, whose in groups if count]
    verb = "run goes" if order.position == 1 else "runs go"
    message = f"{order.position:,} {verb} first: {', '.join(words)}"
    return Reason("order", message, action="rota share list")


def reservation_reason(run: RunId, reserved: Reserved | None) -> Reason | None:
    """Return for whom a worker of the pool is kept free; None: for nobody."""
    if reserved is None:
        return None
    whom = "it" if reserved.run == run else reserved.run or "a run of another project"
    message = f"worker {reserved.worker} is kept free for {whom} until {stamp(reserved.until)}"
    action = f"rota why {reserved.run}" if reserved.run else ""
    return Reason("reservation", message, action=action)


def not_reasons(order: OrderOfService) -> Iterator[NotReason]:
    """Yield parts of the order that do not hold the run."""
    if not order.position:
        yield NotReason("priority", "first in queue")
    elif not order.of_higher_priority:
        yield NotReason("priority", "nobody with a higher one goes first")
    if not order.of_other_shares:
        at = order.used / order.entitled
        yield NotReason("fair share", f"{order.share} at {at:.1f} of its share")


def _weight(chains: Iterable[Chain]) -> float:
    return sum(chain.weight for chain in chains)


_AHEAD = timedelta(hours=1)
_PATIENCE = timedelta(seconds=1)  # an answer without an estimate is better than none


async def likely_start(engine: Engine, run: Run, sight: Sight = EVERYTHING) -> datetime | None:
    """Return the start by the forecast; None: unknown, or it takes too long to find out."""
    is_member = sight.projects is not None
    forecasts = await forecasts_for(engine, run.project, is_member=is_member)
    forecast = await forecasts.within(_PATIENCE, _AHEAD)
    if forecast is None:
        return None
    known = _known_time(run)
    if known is not None and known >= forecast.until:
        return known
    found = next((each for each in forecast.runs if each.id == run.id), None)
    start = forecast.start_of(found) if found else None
    return None if start is None else max(start, await engine.store.now())


def _known_time(run: Run) -> datetime | None:
    """Return the instant that the run waits for; None: it waits for something else, too."""
    if run.state is RunState.SCHEDULED:
        return run.eligible_at
    times = [reason.eligible_at for reason in run.reasons]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


async def why(engine: Engine, run: Run, sight: Sight = EVERYTHING) -> Explanation:
    """Explain the state of a run by what the store knows of it, and the caller may see."""
    match run.state:
        case RunState.SCHEDULED | RunState.BLOCKED | RunState.QUEUED:
            return await _waits(engine, run, sight)
        case RunState.CLAIMED | RunState.PROCESSING if run.pool == EXTERNAL_POOL:
            summary, reasons = await external.standing(engine, run)
            return _stands(run, summary, *map(Obstacle, reasons))
        case RunState.CLAIMED | RunState.PROCESSING:
            verb = "claimed by" if run.state is RunState.CLAIMED else "running on"
            troubles = await _troubles(engine, run, sight)
            return _stands(run, f"{verb} worker {run.worker}", *troubles)
        case RunState.UNKNOWN:
            probes = await engine.store.probes_about(run.id)
            summary, reason = doubt_about(run.id, external.loss_of(run), probes)
            return _stands(run, summary, Obstacle(reason))
        case _:
            cause = f" ({run.cause})" if run.cause else ""
            return _stands(run, f"it has ended: {run.state.lower()}{cause}")


async def _troubles(engine: Engine, run: Run, sight: Sight) -> list[Obstacle]:
    """Return what the worker of a leased run cannot do at present, such as delivering output."""
    sessions = await engine.store.sessions(alive_only=True)
    troubles = [each.trouble for each in sessions if each.id == run.session and each.trouble]
    told = [f"its worker says: {seen_trouble(sight, trouble)}" for trouble in troubles]
    action = f"rota worker show {run.worker}"
    return [Obstacle(Reason("worker", each, action=action)) for each in told]


def in_short(run: Run) -> str | None:
    """Return what holds a waiting run, in a few words and without reading other runs."""
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


async def _waits(engine: Engine, run: Run, sight: Sight) -> Explanation:
    place = await engine.store.place_of(run.id)
    if place is None:  # it has gone on since it was read
        return Explanation(run, f"{run.state.lower()}: it goes on this very moment")
    place = replace(place, reservation=seen_reservation(sight, place.reservation))
    order, seen = order_of_service(place), await see_run(engine, run)
    if run.state is RunState.QUEUED:
        obstacles = await _queue_obstacles(engine, seen, place, order)
    else:
        obstacles = await _at_gates(engine, run, place)
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
        starts_at=await likely_start(engine, run, sight),
    )


async def _at_gates(engine: Engine, run: Run, place: Place) -> list[Obstacle]:
    if not run.reasons and run.state is RunState.SCHEDULED:
        return [Obstacle(Reason(Gate.TIME, _time_words(run), eligible_at=run.eligible_at))]
    others = [reason for reason in run.reasons if not is_shared(reason)]
    obstacles = [await _obstacle_of(engine, run, place, reason) for reason in others]
    if any(reason.gate == Gate.HOLD for reason in others) and await _comes_later(engine, run):
        obstacles.append(Obstacle(Reason(Gate.TIME, _time_words(run), eligible_at=run.eligible_at)))
    return obstacles + await key_obstacles(engine, run, place)


async def _comes_later(engine: Engine, run: Run) -> bool:
    """Return whether a held run would have to wait for its time even if it were released."""
    return run.eligible_at is not None and run.eligible_at > await engine.store.now()


async def _obstacle_of(engine: Engine, run: Run, place: Place, reason: Reason) -> Obstacle:
    """Explain one gate that the run waits at, as it stands now."""
    explainer = _EXPLAINERS.get(reason.gate)
    return await explainer(engine, run, place, reason) if explainer else Obstacle(reason)


async def _queue_obstacles(
    engine: Engine, run: Run, place: Place, order: OrderOfService
) -> list[Obstacle]:
    """Explain what a queued run waits for."""
    sessions = await engine.store.sessions(alive_only=True)
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
    """Return until when it waits; a spread or jitter moves the release, never the due time."""
    if run.eligible_at is None:
        return "it is due"
    release = stamp(run.eligible_at)
    if run.trigger is Trigger.PROBE:
        return f"it asks what became of another run, after its probe's delay: at {release}"
    if run.attempt:
        return f"its retry's back-off ends at {release}"
    if run.eligible_at <= run.due_at:
        return f"it is due at {release}"
    return f"it is due at {stamp(run.due_at)}, and its spread or jitter releases it at {release}"
