"""`after`: jobs that follow others.

A run leaves an end if somebody follows such ends of its job. A loop answers each end once: with a
run of every job that has no schedule of its own, which is handed what it asks for, and for the due
runs of the others by letting them pass the gates again. When an upstream was completed is kept
apart, so that nobody has to look through its history, and is written under the gates of those that
follow it: a run that comes to its gate sees it, or is seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from rota.domain.errors import Conflict, Invalid
from rota.domain.files import INPUT_KEPT_FOR
from rota.domain.following import EndedRun, files_of, is_followed, values_of
from rota.domain.gates import after_key, cycle_text, find_cycle
from rota.domain.ids import JobId, RunId, following_run_id
from rota.domain.job import RunRules
from rota.domain.jobfile.rules import parse_handed
from rota.domain.run import Trigger
from rota.domain.states import RunState
from rota.ports.records import FollowingRun, NewJob
from rota.store.files import touch
from rota.store.gates import LockGates
from rota.store.keys import lock_keys
from rota.store.rows import by_kind, from_json, rules_from, to_json
from rota.store.script import Many, Row, Script, query
from rota.store.submissions import Draft, insert_drafts
from rota.store.tx import Tx
from rota.store.waits import leave_ends, let_runs_go, let_waiters_go

_AFTER = after_key("", "").removesuffix("/")  # what all keys of upstreams begin with
_MOST_TOLD = 1_000  # runs: the reasons of others change when they are looked at next
_Followers = Mapping[tuple[str, str], Sequence[Row]]  # by project and upstream


def any_ends() -> Script[bool]:
    """Whether completed runs are to be followed."""
    return bool((yield query("any_upstream_end")))


def follow(tx: Tx, limit: int, locking: LockGates) -> Script[int]:
    """Answer ends of runs, each once; those whose followers are busy stay for the next time."""
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
    """One run for each end and each job that follows it without a schedule."""
    pairs = {
        following_run_id(JobId(row["id"]), RunId(end["run_id"])): (end, row)
        for end in ends
        for row in followers[_source(end)]
        if row["enabled"] and _starts(rules_from(row["rules"]), end)
    }
    if pairs:
        for row in (yield query("known_runs", ids=pairs)):
            del pairs[row["id"]]
    runs = yield from _ended_runs(tx, [pair for pair in pairs.values() if _is_handed(*pair)])
    drafts = [_draft(run, end, row, runs) for run, (end, row) in pairs.items()]
    yield from insert_drafts(tx, drafts, actor="scheduler")
    failed = {draft.id: draft.failure for draft in drafts if draft.failure}
    if failed:
        yield Many("tell_not_handed", [(text, run) for run, text in failed.items()])
        yield from leave_ends(tx, list(failed))


def _starts(rules: RunRules, end: Row) -> bool:
    """Whether a job follows such an end with a run."""
    when = rules.follow(end["job"]).when
    return not rules.is_scheduled and is_followed(when, RunState(end["state"]))


def _is_handed(end: Row, follower: Row) -> bool:
    return bool(rules_from(follower["rules"]).follow(end["job"]).gives)


def _ended_runs(tx: Tx, pairs: Sequence[tuple[Row, Row]]) -> Script[dict[str, EndedRun]]:
    """The runs of which something is handed on, with what they left; given are ends and followers.

    Files that are handed on are kept for as long as those that somebody gives.
    """
    ids = {end["run_id"] for end, _ in pairs}
    rows = (yield query("outputs_of", ids=ids)) if ids else ()
    outputs = {row["id"]: from_json(row["outputs"]) for row in rows}
    paths = {
        path
        for end, follower in pairs
        for path in files_of(rules_from(follower["rules"]).follow(end["job"]))
    }
    found = (yield query("artifacts_of", ids=ids, paths=paths)) if paths else ()
    artifacts: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in found:  # of a later step, if two left the same
        value = {"file": PurePosixPath(row["path"]).name, "digest": row["digest"]}
        artifacts[row["run_id"]][row["path"]] = value | {"size": row["size"]}
    for project, same in sorted(by_kind(found, lambda row: row["project"]).items()):
        yield from touch(tx, project, {row["digest"] for row in same}, INPUT_KEPT_FOR)
    return {
        run: EndedRun(run, end["job"], RunState(end["state"]), outputs.get(run), artifacts[run])
        for end, _ in pairs
        for run in [end["run_id"]]
    }


def _draft(run: RunId, end: Row, follower: Row, runs: Mapping[str, EndedRun]) -> Draft:
    upstream, inputs, failure = RunId(end["run_id"]), None, ""
    if _is_handed(end, follower):
        rules = rules_from(follower["rules"])
        try:
            values = values_of(rules.follow(end["job"]), runs[upstream])
            inputs = to_json(parse_handed(rules.handed, values))
        except Invalid as error:
            failure = "; ".join(problem.message for problem in error.problems)
    return Draft(
        id=run,
        job_id=follower["id"],
        job_version=follower["version"],
        trigger=Trigger.AFTER,
        due_at=end["ended_at"],
        release_at=end["ended_at"],
        created_by="scheduler",
        inputs=inputs,
        follows=upstream,
        failure=failure,
    )


def _let_due_runs_go(tx: Tx, ends: Sequence[Row], limit: int) -> Script[set[tuple[str, str]]]:
    """Due runs that waited for these jobs; returns the jobs that more of them wait for."""
    completed: dict[tuple[str, str], int] = {}
    for end in ends:
        if end["state"] == RunState.COMPLETED:
            completed[_source(end)] = max(end["ended_at"], completed.get(_source(end), 0))
    if not completed:
        return set()
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


def runs_following(run: RunId, limit: int) -> Script[list[FollowingRun]]:
    """The runs of jobs that follow its job now: no index of the rest, which every run would pay."""
    jobs = yield query("followers_of_run", run=run, limit=limit)
    ids = [following_run_id(JobId(row["job_id"]), run) for row in jobs]
    rows = (yield query("following_runs", ids=ids)) if ids else ()
    return [FollowingRun(RunId(row["id"]), row["job"], RunState(row["state"])) for row in rows]


def save_dependencies(tx: Tx, jobs: Sequence[NewJob]) -> Script[None]:
    """Save what jobs follow; their due runs that waited for others pass the gates again."""
    changed = [job.id for job in jobs if job.expected_version]
    if changed:
        yield query("forget_dependencies", ids=changed)
        waiting = yield query("waiters_of_jobs", jobs=changed)
        yield from let_runs_go(tx, [row["id"] for row in waiting], _AFTER)
    pairs = [(job, upstream) for job in jobs for upstream in job.rules.after]
    if pairs:
        rows = [
            (job.id, job.project, upstream, job.rules.follow(upstream).when)
            for job, upstream in pairs
        ]
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
