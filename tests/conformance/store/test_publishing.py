"""Whom each write of the store concerns is told after its commit, by the store itself."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import pytest

from rota.domain.access import Role
from rota.domain.carts.definition import CartRules
from rota.domain.errors import Conflict
from rota.domain.external import Notice, ReportState, StatusReport
from rota.domain.identity import EndedSession, Person
from rota.domain.ids import JobId, RunId, SessionId, new_run_id
from rota.domain.keys import KeyKind, Resource
from rota.domain.lateness import Congestion
from rota.domain.policy import Policy
from rota.domain.run import Trigger
from rota.domain.spec import EXTERNAL_POOL, Delivery, Isolation, JobType, Overlap
from rota.domain.states import RunState
from rota.domain.walls import NEW_CLUSTER
from rota.ports.carts import DueTemplate, MissedCarts, NewTemplate, PauseCart, TemplateChanges
from rota.ports.credentials import NewCredential, NewJoinToken
from rota.ports.external import Reporting, Sent
from rota.ports.files import KeptFile, SourceCommit
from rota.ports.forecasts import PredictedStart
from rota.ports.logins import DeviceGrant, LoginAttempt, ProviderFacts, Resealed, SealedValue
from rota.ports.projects import NewProject, PrincipalKind, PrincipalRef
from rota.ports.queue import (
    CALLERS,
    CANCELLED,
    CARTS,
    EVENTS,
    FOLLOWED,
    KEYS,
    TIMES,
    WORKERS,
    Wakes,
    publish,
)
from rota.ports.records import NewRun, NewToken, Rearmed, StoredChunk
from rota.ports.store import Store
from rota.ports.work import ChunkMeta, Progress, RemoteHandle, StepNote, Work
from rota.queue.local import LocalQueue
from rota.store.script import LookAgain, Many, Script
from rota.store.store import SqlStore
from rota.store.tx import Tx
from testkit.builders import (
    LEASE,
    MINUTE,
    SERVER,
    Scene,
    firing_of,
    hello,
    new_calendar,
    new_server,
)
from testkit.cart_scenes import CartScene
from tests.conformance.store.test_probes import ask, lost

pytestmark = pytest.mark.anyio

OFFER = "an offer"  # of runs to the workers of a pool
Act: TypeAlias = Callable[[], Awaitable[object]]
LICENSE = Resource("default", "license", 1)


class RecordingQueue(LocalQueue):
    """Remembers what was announced and offered."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def announce(self, topic: str, payload: str = "") -> None:
        self.told.append(topic)

    def offer(self, pool: str, runs: Sequence[str] = ()) -> None:
        self.told.append(OFFER)


@pytest.fixture
def queue(store: Store) -> RecordingQueue:
    queue = RecordingQueue()
    assert isinstance(store, SqlStore)
    store.publish_with(partial(publish, queue))
    return queue


async def claimed(scene: Scene, **rules: Any) -> tuple[SessionId, Work]:
    await scene.trigger(await scene.job(**rules))
    worker = await scene.worker()
    [work] = await scene.claim(worker)
    return worker, work


async def queued(scene: Scene) -> RunId:
    [run] = await scene.trigger(await scene.job())
    return run


async def new_run(scene: Scene, job: JobId) -> NewRun:
    return NewRun(new_run_id(scene.clock.instant), job, 1, Trigger.MANUAL, "user")


# Each verb that writes: what has to be there, then the call.


async def save_jobs(scene: Scene) -> Act:
    return lambda: scene.job()


async def move_schedules(scene: Scene) -> Act:
    job = await scene.job()
    return lambda: scene.move("paused", job)


async def save_calendars(scene: Scene) -> Act:
    return lambda: scene.store.save_calendars([new_calendar()], actor="ann")


async def delete_calendar(scene: Scene) -> Act:
    await scene.store.save_calendars([new_calendar()], actor="ann")
    return lambda: scene.store.delete_calendar("default", "nights", expected_version=1, actor="ann")


async def fire(scene: Scene) -> Act:
    job = await scene.show_job(await scene.job(next_at=scene.clock.instant))
    ownership = await scene.ownership()
    return lambda: scene.store.fire([firing_of(job)], ownership)


async def rearm(scene: Scene) -> Act:
    job = await scene.show_job(await scene.job(next_at=scene.clock.instant))
    return lambda: scene.store.rearm([Rearmed(job.id, job.schedule_version, None)])


async def mark_stuck(scene: Scene) -> Act:
    job = await scene.job()
    seen = Congestion(9, True, scene.clock.instant, 1.0)
    return lambda: scene.store.mark_stuck({job: seen}, [job])


async def release_eligible(scene: Scene) -> Act:
    await scene.trigger(await scene.job(), at=scene.clock.instant + MINUTE)
    scene.advance(MINUTE)
    return lambda: scene.store.release_eligible(10)


async def release_forgotten(scene: Scene) -> Act:
    await scene.trigger(await scene.job(deadline=MINUTE))
    scene.advance(2 * MINUTE)
    return lambda: scene.store.release_forgotten(10)


async def submit(scene: Scene) -> Act:
    run = await new_run(scene, await scene.job())
    return lambda: scene.store.submit([run])


async def submit_one(scene: Scene) -> Act:
    run = await new_run(scene, await scene.job())
    return lambda: scene.store.submit_one(run)


async def submit_backfill(scene: Scene) -> Act:
    job = await scene.job()
    return lambda: scene.backfill(job, [scene.clock.instant - timedelta(days=1)])


async def claim(scene: Scene) -> Act:
    await queued(scene)
    worker = await scene.worker()
    return lambda: scene.claim(worker)


async def start(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    return lambda: scene.start(worker, [work])


async def finish(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    return lambda: scene.finish(worker, [work])


async def cancel(scene: Scene) -> Act:
    _, work = await claimed(scene)
    return lambda: scene.store.cancel([RunId(work.run)], actor="ann")


async def resolve(scene: Scene) -> Act:
    worker, work = await claimed(scene, delivery=Delivery.AT_MOST_ONCE)
    await scene.start(worker, [work])
    await scene.vanish(worker)
    return lambda: scene.store.resolve(RunId(work.run), RunState.SCHEDULED, actor="ann")


async def record_progress(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    progress = Progress(work.run, work.number, 1, 2, "")
    return lambda: scene.store.record_progress(worker, [progress])


async def note_commits(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    commit = SourceCommit(work.run, work.number, "a" * 40)
    return lambda: scene.store.note_commits(worker, [commit])


async def keep_handles(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    return lambda: scene.store.keep_handles(worker, [RemoteHandle(work.run, work.number, "{}")])


EXTERNAL: dict[str, Any] = {
    "kind": JobType.EXTERNAL,
    "pool": EXTERNAL_POOL,
    "timeout": MINUTE,
    "tells": (Notice.ANNOUNCE,),
}


async def outside(scene: Scene) -> RunId:
    """A run that another system does."""
    [run] = await scene.trigger(await scene.job(**EXTERNAL))
    await scene.store.begin_external(10)
    return run


async def begin_external(scene: Scene) -> Act:
    await scene.trigger(await scene.job(**EXTERNAL))
    return lambda: scene.store.begin_external(10)


async def report_external(scene: Scene) -> Act:
    run = await outside(scene)
    report = StatusReport(ReportState.PROCESSING)
    return lambda: scene.store.report_external(Reporting(run, report, "ci"))


async def end_silent(scene: Scene) -> Act:
    await outside(scene)
    scene.advance(2 * MINUTE)
    return lambda: scene.store.end_silent(10)


async def lease_announcements(scene: Scene) -> Act:
    await outside(scene)
    return lambda: scene.store.lease_announcements(["digest"], MINUTE)


async def settle_announcements(scene: Scene) -> Act:
    await outside(scene)
    [(announced, _)] = await scene.store.lease_announcements(["digest"], MINUTE)
    return lambda: scene.store.settle_announcements([Sent(announced.id)])


async def forget_report_tokens(scene: Scene) -> Act:
    return lambda: scene.store.forget_report_tokens(10)


async def tell_notes(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    return lambda: scene.store.tell_notes(worker, [StepNote(work.run, work.number, 1)])


async def forget_notes(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    await scene.store.tell_notes(worker, [StepNote(work.run, work.number, 1)])
    await scene.finish(worker, [work])
    return lambda: scene.store.forget_notes(10)


async def hold_run(scene: Scene) -> Act:
    run = await queued(scene)
    return lambda: scene.store.hold_run(run, actor="ann")


async def let_go(scene: Scene) -> Act:
    run = await queued(scene)
    await scene.store.hold_run(run, actor="ann")
    return lambda: scene.store.let_go(run, actor="ann")


async def set_priority(scene: Scene) -> Act:
    run = await queued(scene)
    return lambda: scene.store.set_priority(run, 7, actor="ann")


async def follow_ends(scene: Scene) -> Act:
    upstream = await scene.job("extract")
    await scene.job("load", after=("extract",))
    await scene.trigger(upstream)
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker))
    return lambda: scene.store.follow_ends(10)


async def release_fitting(scene: Scene) -> Act:
    await scene.worker("near")
    await scene.trigger(await scene.job(needs={"site": "far"}))
    await scene.worker("far", labels={"site": "far"})
    return lambda: scene.store.release_fitting(10)


async def set_share_weight(scene: Scene) -> Act:
    return lambda: scene.store.set_share_weight("team", 2.0, actor="ann")


async def save_declarations(scene: Scene) -> Act:
    return lambda: scene.store.save_declarations([LICENSE], actor="ann")


async def delete_declaration(scene: Scene) -> Act:
    await scene.store.save_declarations([LICENSE], actor="ann")
    kind = KeyKind.RESOURCE
    return lambda: scene.store.delete_declaration(kind, "default", "license", actor="ann")


async def release_keys(scene: Scene) -> Act:
    await scene.store.save_declarations([LICENSE], actor="ann")
    await scene.trigger(await scene.job(uses={"license": 1}, overlap=Overlap.ALLOW), 2)
    worker = await scene.worker()
    await scene.finish(worker, await scene.claim(worker))
    return lambda: scene.store.release_keys(10)


async def forget_keys(scene: Scene) -> Act:
    return lambda: scene.store.forget_keys(10)


async def filled_cart(scene: Scene) -> Any:
    return await CartScene(scene).fill(await scene.job(), CartRules(), items=1)


async def create_cart(scene: Scene) -> Act:
    job = await scene.job()
    return lambda: CartScene(scene).fill(job, CartRules(), items=1)


async def submit_cart(scene: Scene) -> Act:
    cart = await filled_cart(scene)
    return lambda: scene.store.submit_cart(cart)


async def discard_cart(scene: Scene) -> Act:
    cart = await filled_cart(scene)
    return lambda: scene.store.discard_cart(cart)


async def forget_loading_carts(scene: Scene) -> Act:
    await filled_cart(scene)
    return lambda: scene.store.forget_loading_carts(scene.clock.instant + MINUTE)


async def command_cart(scene: Scene) -> Act:
    cart = await CartScene(scene).submit(await scene.job())
    return lambda: scene.store.command_cart(cart, PauseCart(), actor="ann")


async def advance_cart(scene: Scene) -> Act:
    cart = await CartScene(scene).submit(await scene.job())
    return lambda: CartScene(scene).advance(cart)


async def pass_template(scene: Scene) -> Act:
    now, document = scene.clock.instant, {"name": "rollout", "job": "job", "items": []}
    new = NewTemplate("default", "rollout", document, "1", "file", now, now)
    changes = TemplateChanges([new])
    await scene.store.save_jobs([], removed=(), actor="ann", templates=changes)
    due = DueTemplate("default", "rollout", 1, now, now + MINUTE)
    return lambda: scene.store.pass_template(due, MissedCarts("downtime", now, 1))


async def add_chunks(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    chunk = StoredChunk(ChunkMeta(0, 0, 1, 10, 1, 2), "key")
    return lambda: scene.store.add_chunks(worker, [(work.fence, chunk)])


async def register(scene: Scene) -> Act:
    return lambda: scene.store.register(hello(), LEASE)


async def resume(scene: Scene) -> Act:
    worker = await scene.worker()
    return lambda: scene.store.resume(hello(resumes=worker))


async def renew(scene: Scene) -> Act:
    worker = await scene.worker()
    return lambda: scene.store.renew(worker, stopping=False)


async def reap(scene: Scene) -> Act:
    worker, _ = await claimed(scene)
    return lambda: scene.vanish(worker)


async def lose(scene: Scene) -> Act:
    worker, work = await claimed(scene)
    return lambda: scene.store.lose(worker, [work.fence])


async def end_session(scene: Scene) -> Act:
    worker, _ = await claimed(scene)
    return lambda: scene.store.end_session(worker)


async def forget_sessions(scene: Scene) -> Act:
    await scene.worker()
    return lambda: scene.store.forget_sessions(10)


async def drain_worker(scene: Scene) -> Act:
    await scene.worker("w1")
    return lambda: scene.store.drain_worker("w1", actor="ann")


async def undrain_worker(scene: Scene) -> Act:
    await scene.worker("w1")
    await scene.store.drain_worker("w1", actor="ann")
    return lambda: scene.store.undrain_worker("w1", actor="ann")


async def join(scene: Scene) -> Act:
    return lambda: scene.store.join(new_server())


async def keep_shards(scene: Scene) -> Act:
    await scene.store.join(new_server())
    return lambda: scene.store.keep_shards(SERVER, stopping=False)


async def leave_cluster(scene: Scene) -> Act:
    await scene.store.join(new_server())
    return lambda: scene.store.leave_cluster(SERVER)


TOKEN = NewToken("t_ci", "ci", Role.EDITOR, "digest", "api", "admin", None)


async def add_token(scene: Scene) -> Act:
    return lambda: scene.store.add_token(TOKEN)


async def token_by_digest(scene: Scene) -> Act:
    await scene.store.add_token(TOKEN)
    return lambda: scene.store.token_by_digest("digest")


JOIN = NewJoinToken("t_join", "join", "digest of join", "rotaj_", 1, LEASE, None)
CREDENTIAL = NewCredential("t_w1", "w1", "default", "digest of w1", "rotaw_", LEASE)


async def add_join_token(scene: Scene) -> Act:
    return lambda: scene.store.add_join_token(JOIN, actor="ann")


async def join_worker(scene: Scene) -> Act:
    await scene.store.add_join_token(JOIN, actor="ann")
    return lambda: scene.store.join_worker("digest of join", CREDENTIAL)


async def renew_credential(scene: Scene) -> Act:
    await (await join_worker(scene))()
    return lambda: scene.store.renew_credential("t_w1", "the next")


async def begin_renewal(scene: Scene) -> Act:
    await (await renew_credential(scene))()
    return lambda: scene.store.begin_renewal("the next")


async def revoke_worker(scene: Scene) -> Act:
    await (await join_worker(scene))()
    await scene.store.register(hello("w1"), LEASE, credential="t_w1")
    return lambda: scene.store.revoke_worker("w1", actor="ann")


async def record_refusals(scene: Scene) -> Act:
    return lambda: scene.store.record_refusals("w_1", "w1", "start", 1)


async def revoke_token(scene: Scene) -> Act:
    await scene.store.add_token(TOKEN)
    return lambda: scene.store.revoke_token("t_ci", actor="ann")


SHOP = NewProject("shop", policy=Policy(priority=5))
TEAM = PrincipalRef(PrincipalKind.GROUP, "https://login.example.org/", "team", "team")


async def add_project(scene: Scene) -> Act:
    return lambda: scene.store.add_project(SHOP, actor="ann")


async def change_project(scene: Scene) -> Act:
    await scene.project("shop")
    return lambda: scene.store.change_project(SHOP, expected_version=1, actor="ann")


async def delete_project(scene: Scene) -> Act:
    await scene.project("shop")
    return lambda: scene.store.delete_project("shop", actor="ann")


async def give_pool(scene: Scene) -> Act:
    return lambda: scene.store.give_pool("gpu", ["default"], actor="ann")


async def settle_probes(scene: Scene) -> Act:
    await lost(scene)
    session, [probe] = await ask(scene)
    await scene.finish(session, [probe], exit_code=0)
    return lambda: scene.store.settle_probes(100)


async def settle_walls(scene: Scene) -> Act:
    return lambda: scene.store.settle_walls(NEW_CLUSTER)


async def change_walls(scene: Scene) -> Act:
    return lambda: scene.store.change_walls(Isolation.SANDBOX, None, actor="ann")


async def bind(scene: Scene) -> Act:
    return lambda: scene.store.bind(TEAM, "default", Role.VIEWER, actor="ann")


async def unbind(scene: Scene) -> Act:
    await scene.store.bind(TEAM, "default", Role.VIEWER, actor="ann")
    return lambda: scene.store.unbind("team", "default", actor="ann")


async def disable_principal(scene: Scene) -> Act:
    await scene.store.bind(TEAM, "default", Role.VIEWER, actor="ann")
    return lambda: scene.store.disable_principal("team", disabled=True, actor="ann")


ANN = Person("https://login.example.org", "u1", "ann", groups=("ops",))
SESSION = NewToken(
    "t_s", "ann", Role.ADMIN, "digest of s", "session", "ann", MINUTE, principal="ann"
)
ATTEMPT = LoginAttempt("state", "browser", "nonce", "verifier")
DEVICE = DeviceGrant("device", "BCDFGHJK", "laptop", "192.0.2.7")
TERMINAL = NewToken("t_c", "", Role.VIEWER, "digest of c", "terminal", "", MINUTE)


async def logged_in(scene: Scene) -> None:
    await scene.store.sign_in(ANN)
    await scene.store.open_login(SESSION, ProviderFacts(ANN, "sealed"), MINUTE)


async def begin_login(scene: Scene) -> Act:
    return lambda: scene.store.begin_login(ATTEMPT, MINUTE)


async def finish_login(scene: Scene) -> Act:
    await scene.store.begin_login(ATTEMPT, MINUTE)
    return lambda: scene.store.finish_login("state", "browser")


async def sign_in(scene: Scene) -> Act:
    return lambda: scene.store.sign_in(ANN)


async def bind_admin_groups(scene: Scene) -> Act:
    return lambda: scene.store.bind_admin_groups(ANN.issuer, frozenset({"ops"}))


async def open_login(scene: Scene) -> Act:
    await scene.store.sign_in(ANN)
    return lambda: scene.store.open_login(SESSION, ProviderFacts(ANN), MINUTE)


async def keep_login(scene: Scene) -> Act:
    await logged_in(scene)
    return lambda: scene.store.keep_login("t_s", MINUTE, MINUTE, MINUTE)


async def take_refresh(scene: Scene) -> Act:
    await logged_in(scene)
    return lambda: scene.store.take_refresh("t_s", timedelta(0), MINUTE)


async def refresh_login(scene: Scene) -> Act:
    await logged_in(scene)
    return lambda: scene.store.refresh_login("t_s", ProviderFacts(replace(ANN, groups=())))


async def reseal_logins(scene: Scene) -> Act:
    await logged_in(scene)
    value = SealedValue("t_s", "sealed", is_refresh_token=True)
    return lambda: scene.store.reseal_logins([Resealed(value, "again")])


async def end_refused_login(scene: Scene) -> Act:
    await logged_in(scene)
    return lambda: scene.store.end_refused_login("t_s")


async def end_logins(scene: Scene) -> Act:
    await logged_in(scene)
    ended = EndedSession(ANN.issuer, "", "u1", scene.clock.instant)
    return lambda: scene.store.end_logins(ended)


async def begin_device(scene: Scene) -> Act:
    return lambda: scene.store.begin_device(DEVICE, MINUTE, MINUTE)


async def decide_device(scene: Scene) -> Act:
    await scene.store.begin_device(DEVICE, MINUTE, MINUTE)
    return lambda: scene.store.decide_device(DEVICE.code, "t_s", is_approved=True)


async def poll_device(scene: Scene) -> Act:
    await logged_in(scene)
    await scene.store.begin_device(DEVICE, MINUTE, MINUTE)
    await scene.store.decide_device(DEVICE.code, "t_s", is_approved=True)
    return lambda: scene.store.poll_device(DEVICE.device, TERMINAL)


async def save_predictions(scene: Scene) -> Act:
    start = PredictedStart(await queued(scene), scene.clock.instant)
    return lambda: scene.store.save_predictions([start])


async def forget_predictions(scene: Scene) -> Act:
    return lambda: scene.store.forget_predictions(scene.clock.instant)


FILE = KeptFile("f_1", "default", f"sha256:{'0' * 64}", 3)


async def begin_file(scene: Scene) -> Act:
    return lambda: scene.store.begin_file(FILE, None)


async def grow_file(scene: Scene) -> Act:
    await scene.store.begin_file(FILE, None)
    return lambda: scene.store.grow_file(FILE, 1, None)


async def finish_file(scene: Scene) -> Act:
    await scene.store.begin_file(FILE, None)
    return lambda: scene.store.finish_file(FILE)


async def touch_files(scene: Scene) -> Act:
    await (await finish_file(scene))()
    return lambda: scene.store.touch_files("default", [FILE.digest], timedelta(days=9))


async def doom_files(scene: Scene) -> Act:
    await (await finish_file(scene))()
    scene.advance(timedelta(days=9))
    return lambda: scene.store.doom_files([FILE.id])


async def forget_files(scene: Scene) -> Act:
    await (await doom_files(scene))()
    return lambda: scene.store.forget_files([FILE.id])


async def forget_artifacts(scene: Scene) -> Act:
    return lambda: scene.store.forget_artifacts(10)


async def check(scene: Scene) -> Act:
    return lambda: scene.store.check()


WRITES: dict[Callable[[Scene], Awaitable[Act]], set[str]] = {
    save_jobs: {TIMES, EVENTS},
    move_schedules: {TIMES, EVENTS},
    save_calendars: {TIMES, EVENTS},
    delete_calendar: {TIMES, EVENTS},
    fire: {OFFER, EVENTS},
    rearm: {TIMES},
    mark_stuck: {EVENTS},
    release_eligible: {OFFER, EVENTS},
    release_forgotten: {EVENTS},
    submit: {OFFER, EVENTS},
    submit_one: {OFFER, EVENTS},
    submit_backfill: {OFFER, EVENTS},
    claim: set(),
    start: set(),
    finish: {EVENTS},
    cancel: {CANCELLED, EVENTS},
    resolve: {TIMES, EVENTS},
    record_progress: set(),
    note_commits: set(),
    keep_handles: set(),
    begin_external: {EVENTS},
    report_external: {EVENTS},
    end_silent: {EVENTS},
    lease_announcements: set(),
    settle_announcements: set(),
    forget_report_tokens: set(),
    tell_notes: set(),
    forget_notes: set(),
    hold_run: {EVENTS},
    let_go: {TIMES, EVENTS},
    set_priority: {OFFER, EVENTS},
    follow_ends: {OFFER, EVENTS},
    release_fitting: {OFFER, EVENTS},
    set_share_weight: {EVENTS},
    save_declarations: {KEYS, EVENTS},
    delete_declaration: {KEYS, EVENTS},
    release_keys: {OFFER, EVENTS},
    forget_keys: set(),
    create_cart: set(),  # and `add_items`
    submit_cart: {CARTS, EVENTS},
    discard_cart: set(),
    forget_loading_carts: set(),
    command_cart: {CARTS, EVENTS},
    advance_cart: {OFFER, EVENTS},
    pass_template: {EVENTS},
    add_chunks: set(),
    register: {WORKERS, EVENTS},
    resume: set(),
    renew: set(),
    reap: {TIMES, WORKERS, EVENTS},
    lose: {TIMES, EVENTS},
    end_session: {TIMES, WORKERS, EVENTS},
    forget_sessions: set(),
    drain_worker: {EVENTS},
    undrain_worker: {OFFER, EVENTS},
    join: {EVENTS},
    keep_shards: {EVENTS},
    leave_cluster: {EVENTS},
    add_join_token: {EVENTS},
    join_worker: {EVENTS},
    renew_credential: {EVENTS},
    begin_renewal: set(),
    revoke_worker: {CANCELLED, EVENTS},
    record_refusals: {EVENTS},
    add_token: {EVENTS},
    token_by_digest: set(),
    revoke_token: {EVENTS, CALLERS},
    begin_login: set(),
    finish_login: set(),
    sign_in: {EVENTS},
    bind_admin_groups: {CALLERS, EVENTS},
    open_login: {EVENTS},
    keep_login: set(),
    take_refresh: set(),
    refresh_login: {CALLERS},  # the groups are others
    end_logins: {EVENTS, CALLERS},
    reseal_logins: set(),
    end_refused_login: {EVENTS, CALLERS},
    begin_device: set(),
    decide_device: set(),
    poll_device: {EVENTS},
    add_project: {EVENTS},
    change_project: {EVENTS},
    delete_project: {CALLERS, EVENTS},
    give_pool: {EVENTS},
    settle_probes: {EVENTS},
    settle_walls: set(),
    change_walls: {EVENTS},
    bind: {CALLERS, EVENTS},
    unbind: {CALLERS, EVENTS},
    disable_principal: {CALLERS, EVENTS},
    save_predictions: set(),
    forget_predictions: set(),
    begin_file: set(),
    grow_file: set(),
    finish_file: set(),
    touch_files: set(),
    doom_files: set(),
    forget_files: set(),
    forget_artifacts: set(),
    check: set(),
}
READS = [
    "any_queued",
    "arrived_output",
    "artifacts",
    "attempts",
    "bindings",
    "bytes_of_files",
    "calendars",
    "cancels",
    "carts",
    "carts_to_advance",
    "cells",
    "chains_of_pool",
    "chunks",
    "closed_pools",
    "coming_jobs",
    "completions",
    "congested_jobs",
    "counts",
    "declarations",
    "deleted_job",
    "device_by_code",
    "documents",
    "due_runs",
    "due_schedules",
    "due_templates",
    "ended_pauses",
    "ended_waits",
    "events",
    "existing_projects",
    "external_attempt",
    "external_due",
    "failure_groups",
    "find_person",
    "followers",
    "foreign_attempts",
    "heartbeats",
    "held_attempt",
    "id_token_of",
    "inline_output",
    "items",
    "job_types",
    "jobs",
    "jobs_beyond",
    "key_uses",
    "keys_of_logins",
    "last_event",
    "last_runs",
    "late_results",
    "latest_durations",
    "ledger",
    "most_of_pools",
    "names",
    "names_of_jobs",
    "needed_digests",
    "next_cart_look",
    "next_eligible_at",
    "next_key_at",
    "next_pause_end",
    "next_template_due",
    "notes",
    "now",
    "old_tokens",
    "open_carts",
    "open_outputs",
    "open_runs",
    "orphaned_jobs",
    "overview",
    "place_of",
    "pool_group",
    "pools",
    "position_before_latest",
    "predicted_starts",
    "principals",
    "probed_by",
    "probes_about",
    "project_counts",
    "project_facts",
    "projects",
    "report_token",
    "rights_changes",
    "runs",
    "runs_following",
    "sealed_logins",
    "seen_pools",
    "served_pools",
    "servers",
    "sessions",
    "shards",
    "share_weights",
    "spent_files",
    "start_delays",
    "templates",
    "tokens",
    "tokens_left",
    "versions_of_items",
    "wall_defaults",
    "waves",
]


def test_every_verb_of_the_port_is_known_here() -> None:
    verbs = {name for name, _ in inspect.getmembers(Store, inspect.isfunction)}

    known = {prepare.__name__ for prepare in WRITES} | set(READS) | {"add_items", "close"}

    assert {verb for verb in verbs if not verb.startswith("_")} == known


@pytest.mark.parametrize("prepare", WRITES, ids=lambda prepare: prepare.__name__)
async def test_a_write_tells_whom_it_concerns(
    prepare: Callable[[Scene], Awaitable[Act]], scene: Scene, queue: RecordingQueue
) -> None:
    act = await prepare(scene)
    queue.told.clear()

    await act()

    assert set(queue.told) == WRITES[prepare]


async def test_the_end_of_a_run_tells_those_who_wait_for_it(
    scene: Scene, queue: RecordingQueue
) -> None:
    await scene.store.save_declarations([LICENSE], actor="ann")
    job = await scene.job("extract", uses={"license": 1})
    await scene.job("load", after=("extract",))
    await scene.trigger(job)
    worker = await scene.worker()
    works = await scene.claim(worker)
    queue.told.clear()

    await scene.finish(worker, works)

    assert set(queue.told) == {KEYS, FOLLOWED, EVENTS}


def recording(kind: str, *, wait: Callable[[], None] = lambda: None) -> Callable[[Tx], Script[int]]:
    """A transaction with an event."""

    def script(tx: Tx) -> Script[int]:
        tx.record(kind, [], actor="ann")
        yield from ()
        wait()
        return tx.now

    return script


async def test_what_was_undone_is_told_nobody(scene: Scene, published: list[Wakes]) -> None:
    assert isinstance(scene.store, SqlStore)

    def script(tx: Tx) -> Script[None]:
        tx.record("test", [], actor="ann")
        yield Many("set_meta", [("checked_at", "1")])
        tx.effects.times = True
        raise Conflict("no")

    with pytest.raises(Conflict):
        await scene.store.write(script)

    assert published == []


async def test_a_caller_that_is_cancelled_does_not_keep_others_from_hearing(
    scene: Scene, published: list[Wakes]
) -> None:
    store = scene.store
    assert isinstance(store, SqlStore)
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def script(tx: Tx) -> Script[None]:
        tx.record("test", [], actor="ann")
        loop.call_soon_threadsafe(begun.set)
        tx.effects.times = True
        yield Many("set_meta", [("checked_at", "1")])

    caller = asyncio.create_task(store.write(script))
    await begun.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    async with asyncio.timeout(10):  # the write goes on without its caller
        while not any(wakes.times for wakes in published):
            await store.check()

    assert [wakes for wakes in published if wakes.times] == [Wakes(times=True, events=True)]
    assert [event.kind for event in await store.events(0, 10)] == ["test"]


async def test_a_caller_that_does_not_wait_at_all_is_served_too(
    scene: Scene, published: list[Wakes]
) -> None:
    assert isinstance(scene.store, SqlStore)
    caller = asyncio.create_task(scene.store.write(recording("test")))
    await asyncio.wait([caller], timeout=0)
    caller.cancel()
    await asyncio.wait([caller])
    await scene.store.close()

    assert published == [Wakes(events=True)]


async def test_a_failing_queue_fails_no_write(scene: Scene) -> None:
    assert isinstance(scene.store, SqlStore)

    def refuse(wakes: Wakes) -> None:
        raise ValueError("a queue that breaks its promise")

    scene.store.publish_with(refuse)

    assert await scene.store.write(recording("test"))


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_a_transaction_that_is_tried_again_is_told_once(
    scene: Scene, published: list[Wakes]
) -> None:
    assert isinstance(scene.store, SqlStore)
    tries: list[Tx] = []

    def script(tx: Tx) -> Script[None]:
        tries.append(tx)
        tx.effects.times = len(tries) == 1
        tx.record("test", [], actor="ann")
        yield Many("set_meta", [("checked_at", "1")])
        if len(tries) < 3:
            raise LookAgain("somebody was quicker")

    await scene.store.write(script)

    assert (len(tries), published) == (3, [Wakes(events=True)])
    assert len(await scene.store.events(0, 10)) == 1


async def test_handles_on_one_driver_tell_their_own_queues(
    scene: Scene, published: list[Wakes]
) -> None:
    assert isinstance(scene.store, SqlStore)
    elsewhere: list[Wakes] = []
    other = scene.store.shared_with(elsewhere.append)

    await other.write(recording("test"))

    assert (published, elsewhere) == ([], [Wakes(events=True)])
