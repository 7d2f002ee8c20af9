"""tenants: what a call costs where very many programs of very many projects call in turn."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlsplit

from bench import processes
from bench.contest import Contestant, Figures, Plan, take_turns
from bench.figures import Comparison, at_most_times
from bench.machine import counted_as_own
from bench.rota_up import Server, rota_up, temporary_home
from bench.schedules import define_one
from rota.domain.credentials import SecretKind, compose
from rota.store.sqlite.opening import open_sqlite

JOBS = 100  # of each project
_CONNECTIONS = 8
_GOALS = {1_000: 1.05, 10_000: 1.25}  # times as dear as with one token, by how many take turns
_ONE = "one token"
_UNIT = "µs"
# Rows like those of the one job that was defined as any job is; `n` is the number of a job.
_FILL = """
CREATE TEMP TABLE number AS WITH RECURSIVE number (n) AS (
    SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < {jobs} - 1) SELECT n FROM number;
INSERT INTO project (name, title, defaults, policy, bounds, version, created_by, created_at,
    updated_by, updated_at)
SELECT 'project-' || n, '', '{{}}', '{{}}', '', 1, 'bench', 1, 'bench', 1 FROM number
WHERE n < {projects};
CREATE TEMP TABLE copied AS
SELECT job.*, 'j_' || printf('%012d', n) AS new_id, 'project-' || (n / {each}) AS new_project,
    'job-' || (n % {each}) AS new_name FROM job CROSS JOIN number;
INSERT INTO job (id, project, name, version, shard, set_name, created_by, created_at, updated_at,
    enabled)
SELECT new_id, new_project, new_name, version, shard, set_name, created_by, created_at, updated_at,
    enabled FROM copied;
INSERT INTO job_version (job_id, version, document, digest, rules, created_by, created_at)
SELECT new_id, 1, document, digest, replace(rules, '"default"', '"' || new_project || '"'),
    'bench', 1 FROM copied JOIN job_version ON job_version.job_id = copied.id;
INSERT INTO schedule (job_id, shard, next_at, anchor, version)
SELECT new_id, shard, 4000000000000000, 1, 1 FROM copied;
"""
_PROGRAMS = (
    """
INSERT INTO token (id, name, role, digest, kind, created_by, created_at, principal, project, shown)
VALUES (:id, :name, 'operator', :digest, 'api', 'bench', 1, :name, :project, 'bench')
""",
    """
INSERT INTO principal (handle, kind, issuer, subject, title, email, created_by, created_at)
VALUES (:name, 'service', '', '', '', '', 'bench', 1)
""",
    """
INSERT INTO binding (principal, scope, role, created_by, created_at)
SELECT :name, name, 'operator', 'bench', 1 FROM project
WHERE name = :project OR (:project IS NULL AND name <> 'default')
""",
)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who there is: programs with a token each, spread over projects with as many jobs each."""

    projects: int
    tokens: int

    def secret(self, number: int) -> str:
        return compose(SecretKind.PROGRAM, f"{number:032}")

    def project(self, number: int) -> str:
        return f"project-{number % self.projects}"

    @property
    def everywhere(self) -> int:
        """The number of one more program, with a role in each of the projects."""
        return self.tokens


def run(plan: Plan) -> list[Comparison]:
    crowd = Crowd(plan.pick(full=1_000, quick=100), plan.pick(full=100_000, quick=10_000))
    calls = plan.pick(full=12_000, quick=1_000)
    with temporary_home() as home:
        print(f"   {crowd.tokens:,} tokens, {crowd.projects:,} projects …", flush=True)
        asyncio.run(fill(home.store, crowd))
        with rota_up(home, slots=1) as server, counted_as_own(lambda: server.pid):
            results = take_turns(
                [
                    Contestant(name, partial(_measure, server, crowd, calls, callers))
                    for name, callers in ((_ONE, 1), *((f"{it:,}", it) for it in _GOALS))
                ],
                plan,
            )
    alone = results[_ONE]
    return [
        Comparison(
            "tenants",
            f"{what}, {callers:,} of {crowd.tokens:,} tokens in turn",
            results[f"{callers:,}"].sample(what, _UNIT),
            _ONE,
            alone.sample(what, _UNIT),
            at_most_times(goal),
            max(alone.foreign_cores, results[f"{callers:,}"].foreign_cores),
        )
        for callers, goal in _GOALS.items()
        for what in ("look at a job", "trigger a job")
    ]


async def fill(path: Path, crowd: Crowd) -> None:
    """Make a store with all projects, their jobs, of which none is due, and all tokens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    store = await open_sqlite(path)
    try:
        await define_one(store, path.parent / "blobs")
    finally:
        await store.close()
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        jobs = crowd.projects * JOBS
        connection.executescript(_FILL.format(jobs=jobs, projects=crowd.projects, each=JOBS))
        for statement in _PROGRAMS:
            connection.executemany(statement, _programs(crowd))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()


def _programs(crowd: Crowd) -> Iterator[dict[str, str | None]]:
    for number in range(crowd.tokens + 1):
        digest = hashlib.sha256(crowd.secret(number).encode()).hexdigest()
        is_everywhere = number == crowd.everywhere
        name, project = f"program-{number}", None if is_everywhere else crowd.project(number)
        yield {"id": f"t_{number:012x}", "name": name, "digest": digest, "project": project}


def _measure(server: Server, crowd: Crowd, calls: int, callers: int) -> Figures:
    """What a call costs the server, as so many programs take turns."""
    figures: dict[str, float] = {}
    ways = {"look at a job": ("GET", ""), "trigger a job": ("POST", "/runs")}
    for what, (method, end) in ways.items():
        requests = _requests(server, crowd, callers, method, end)
        asyncio.run(_call_all(server, islice(requests, max(callers, crowd.projects))))  # once: warm
        before = processes.cpu_seconds(server.pid)
        asyncio.run(_call_all(server, islice(requests, calls)))
        figures[what] = (processes.cpu_seconds(server.pid) - before) / calls * 1e6
    return figures


def _requests(server: Server, crowd: Crowd, callers: int, method: str, end: str) -> Iterator[bytes]:
    """Calls of one program after another, each about a job of its project; or all of the same."""
    place = urlsplit(server.client.server.url)
    heads = [
        (
            f"?project={crowd.project(number)} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            f"Authorization: Bearer {crowd.secret(crowd.everywhere if callers == 1 else number)}"
            "\r\nContent-Length: 0\r\n\r\n"
        )
        for number in range(max(callers, crowd.projects))
    ]
    for number, head in enumerate(cycle(heads)):
        yield f"{method} /api/v1/jobs/job-{number % JOBS}{end}{head}".encode()


async def _call_all(server: Server, requests: Iterator[bytes]) -> None:
    await asyncio.gather(*(_call(server, requests) for _ in range(_CONNECTIONS)))


async def _call(server: Server, requests: Iterator[bytes]) -> None:
    """One connection, by hand: a client library costs more than the call."""
    place = urlsplit(server.client.server.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        status, *headers = head.decode().lower().split("\r\n")
        if " 20" not in status:
            raise RuntimeError(f"a call was refused: {status}")
        [length] = [line for line in headers if line.startswith("content-length:")]
        await reader.readexactly(int(length.partition(":")[2]))
    writer.close()
    await writer.wait_closed()
