"""Calls about workers, servers and shards."""

from __future__ import annotations

from rota.api.answers import Page
from rota.api.workers import Cluster, JobType, Server, Shard, Worker
from rota.sdk.exchange import Call, get, path_of, post
from rota.sdk.verbs import Verb


def list_workers(*, all: bool = False) -> Call[Page[Worker]]:  # noqa: A002 (the API's word)
    """List workers that are alive; with `all`, past sessions too."""
    return get(Page[Worker], "/workers", all=all or None)


def drain_worker(worker: str) -> Call[Page[Worker]]:
    """Let a worker finish what it holds and give it nothing new; returns its sessions."""
    return post(Page[Worker], path_of("workers", worker, "drain"))


def resume_worker(worker: str) -> Call[Page[Worker]]:
    """Give a drained worker work again."""
    return post(Page[Worker], path_of("workers", worker, "resume"))


def revoke_worker(worker: str) -> Call[Page[Worker]]:
    """Revoke all credentials of a worker: it gets nothing more at once; returns its sessions."""
    return post(Page[Worker], path_of("workers", worker, "revoke"))


def list_job_types() -> Call[Page[JobType]]:
    """List types of jobs: those that Rota brings, and those of plug-ins that were ever offered."""
    return get(Page[JobType], "/job-types")


def get_job_type(name: str) -> Call[JobType]:
    """Get a type of jobs, with the JSON Schema of its parameters."""
    return get(JobType, path_of("job-types", name))


def get_cluster() -> Call[Cluster]:
    """Get live servers, shards, overdue schedules, and what waits for workers."""
    return get(Cluster, "/cluster")


def list_servers(*, all: bool = False) -> Call[Page[Server]]:  # noqa: A002 (the API's word)
    """List servers that are alive; with `all`, those of the last day."""
    return get(Page[Server], "/servers", all=all or None)


def list_shards() -> Call[Page[Shard]]:
    """List shards by number, with their owners and epochs."""
    return get(Page[Shard], "/shards")


class WorkerVerbs:
    drain_worker = Verb(drain_worker)
    get_cluster = Verb(get_cluster)
    get_job_type = Verb(get_job_type)
    list_job_types = Verb(list_job_types)
    list_servers = Verb(list_servers)
    list_shards = Verb(list_shards)
    list_workers = Verb(list_workers)
    resume_worker = Verb(resume_worker)
    revoke_worker = Verb(revoke_worker)
