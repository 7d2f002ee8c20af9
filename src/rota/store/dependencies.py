"""`after`: jobs that follow others.

A run that completes leaves an end if somebody follows its job. A loop answers each end once: with
a run of every job that has no schedule of its own, and for the due runs of the others by letting
them pass the gates again. When an upstream was completed is kept apart, so that nobody has to look
through its history, and is written under the gates of those that follow it: a run that comes to its
gate sees it, or is seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from rota.domain.errors import Conflict
from rota.domain.gates import after_key, cycle_text, find_cycle
from rota.domain.ids import JobId, RunId, following_run_id
from rota.domain.run import Trigger
from rota.ports.records import NewJob
from rota.store.gates import LockGates
from rota.store.keys import lock_keys
from rota.store.rows import rules_from
from rota.store.script import Many, Row, Script, query
from rota.store.submissions import Draft, insert_drafts
from rota.store.tx import Tx
from rota.store.waits import let_runs_go, let_waiters_go

_AFTER = after_key("", "").removesuffix("/")  # what all keys of upstreams begin with
_MOST_TOLD = 1_000  # runs: the reasons of others change when they are looked at next
_Followers = Mapping[tuple[str, str], Sequence[Row]]  # by project and upstream


def any_ends() -> Script[bool]:
    """Whether completed runs are to be followed."""
    return bool((yield query("any_upstream_end")))


def follow(tx: Tx, limit: int, locking: LockGates) -> Script[int]:
    """Answer completed runs, each once; those whose followers are busy stay for the next time."""
    # Locks the ends and skips those of others, before any gate: two followers never share one.
    ends = yield query("upstream_ends", limit=limit)
    found = yield from _followers(ends)
    locked = yield from locking({row["id"] for rows in found.values() for row in rows})
    followers = yield from _followers(ends)  # again, now that they stay as they are
    ends = [end for end in ends if {row["id"] for row in followers[_source(end)]} <= locked]
    yield from _start(tx, ends, followers)
    crowded = yield from _let_due_runs_go(tx, ends, limit)
    yield from _tell_followers(tx, followers)
    over = [end["run_id"] for end in ends if _source(end) not in crowded]
    if over:
        yield query("forget_ends", ids=over)
    return len(ends)


def followers(project: str, upstreams: Collection[str]) -> Script[dict[str, tuple[str, ...]]]:
    rows = (yield query("followers", project=project, names=upstreams)) if upstreams else ()
    names: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        names[row["upstream"]].append(rules_from(row["rules"]).name)
    return {upstream: tuple(sorted(found)) for upstream, found in names.items()}


def _source(end: Row) -> tuple[str, str]:
    return end["project"], end["job"]


def _followers(ends: Sequence[Row]) -> Script[_Followers]:
    names: dict[str, set[str]] = defaultdict(set)
    for end in ends:
        names[end["project"]].add(end["job"])
    followers: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for project, upstreams in names.items():
        for row in (yield query("followers", project=project, names=upstreams)):
            followers[project, row["upstream"]].append(row)
    return followers


def _start(tx: Tx, ends: Sequence[Row], followers: _Followers) -> Script[None]:
    """One run for each end and each job that follows without a schedule."""
    drafts = {
        draft.id: draft
        for end in ends
        for row in followers[_source(end)]
        if row["enabled"] and not rules_from(row["rules"]).is_scheduled
        for draft in [_draft(end, row)]
    }
    if drafts:
        for row in (yield query("known_runs", ids=drafts)):
            del drafts[row["id"]]
    yield from insert_drafts(tx, list(drafts.values()), actor="scheduler")


def _draft(end: Row, follower: Row) -> Draft:
    upstream = RunId(end["run_id"])
    return Draft(
        id=following_run_id(JobId(follower["id"]), upstream),
        job_id=follower["id"],
        job_version=follower["version"],
        trigger=Trigger.AFTER,
        due_at=end["ended_at"],
        release_at=end["ended_at"],
        created_by="scheduler",
        follows=upstream,
    )


def _let_due_runs_go(tx: Tx, ends: Sequence[Row], limit: int) -> Script[set[tuple[str, str]]]:
    """Due runs that waited for these jobs; returns the jobs that more of them wait for."""
    completed: dict[tuple[str, str], int] = {}
    for end in ends:
        completed[_source(end)] = max(end["ended_at"], completed.get(_source(end), 0))
    yield Many("keep_completion", [(*source, at) for source, at in sorted(completed.items())])
    crowded = set()
    for source in sorted(completed):
        gone = yield from let_waiters_go(tx, after_key(*source), limit)
        if gone == limit:
            crowded.add(source)
    return crowded


def _tell_followers(tx: Tx, followers: _Followers) -> Script[None]:
    """Due runs that wait for other jobs as well look again: their reasons have become fewer."""
    jobs, others = set(), set()
    for (project, upstream), rows in followers.items():
        for row in rows:
            rules = rules_from(row["rules"])
            if rules.is_scheduled and len(rules.after) > 1:
                jobs.add(row["id"])
                others |= {after_key(project, name) for name in rules.after if name != upstream}
    waiting = (yield query("waiters_of_keys", keys=others, limit=_MOST_TOLD)) if others else ()
    runs = [row["id"] for row in waiting if row["job_id"] in jobs]
    yield from let_runs_go(tx, runs, _AFTER)


def leave_ends(tx: Tx, runs: Sequence[str]) -> Script[None]:
    """These runs have completed, and others follow their jobs."""
    if runs:
        yield query("leave_ends", ids=runs)
        tx.effects.followed = True


def save_dependencies(tx: Tx, jobs: Sequence[NewJob]) -> Script[None]:
    """Save what jobs follow; their due runs that waited for others pass the gates again."""
    changed = [job.id for job in jobs if job.expected_version]
    if changed:
        yield query("forget_dependencies", ids=changed)
        waiting = yield query("waiters_of_jobs", jobs=changed)
        yield from let_runs_go(tx, [row["id"] for row in waiting], _AFTER)
    pairs = [(job, upstream) for job in jobs for upstream in job.rules.after]
    if pairs:
        rows = [(job.id, job.project, upstream) for job, upstream in pairs]
        yield Many("insert_dependency", rows)
        sources = sorted({(job.project, upstream) for job, upstream in pairs})
        yield Many("seed_completion", sources, exactly=False)
    created = [(job.project, job.name) for job in jobs if not job.expected_version]
    yield from _tell_waiters(tx, created)


def refuse_rings(jobs: Sequence[NewJob]) -> Script[None]:
    """`Conflict` if saved jobs wait for each other, by way of what others saved meanwhile.

    The last lock but those of chains: one transaction at a time looks, and sees those before.
    """
    projects = sorted({job.project for job in jobs if job.rules.after})
    if not projects:
        return
    yield from lock_keys([f"{_AFTER}{project}" for project in projects])
    for project in projects:
        edges: dict[str, list[str]] = defaultdict(list)
        for row in (yield query("dependencies_of", project=project)):
            edges[row["name"]].append(row["upstream"])
        if cycle := find_cycle(edges):
            raise Conflict(
                f"these jobs would wait for each other: {cycle_text(cycle)}",
                code="dependency_cycle",
                hint="one of them was changed by someone else meanwhile: look and apply again",
            )


def _tell_waiters(tx: Tx, sources: Iterable[tuple[str, str]]) -> Script[None]:
    """Due runs that wait for jobs which came or went look again, to tell what they wait for."""
    keys = [after_key(*source) for source in sources]
    if keys:
        waiting = yield query("waiters_of_keys", keys=keys, limit=_MOST_TOLD)
        yield from let_runs_go(tx, [row["id"] for row in waiting], _AFTER)


def forget_jobs(tx: Tx, gone: Sequence[Row]) -> Script[None]:
    """Forget what deleted jobs follow; runs that wait for them by name show that they are gone."""
    yield query("forget_dependencies", ids=[row["id"] for row in gone])
    sources = sorted((row["project"], row["name"]) for row in gone)
    yield Many("forget_completion", sources, exactly=False)
    yield from _tell_waiters(tx, sources)
