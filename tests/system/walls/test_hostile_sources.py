"""The whole hostile corpus as jobs of a real server and worker, behind a wall and without any."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rota.sdk.answers import RunDetail
from rota.sdk.errors import Conflict
from rota.sources.calls import size_of
from rota.sources.wish import Bounds
from testkit.hostile import (
    Archive,
    Attack,
    bombs,
    hostile_archives,
    hostile_repositories,
    million_tar,
    million_zip,
    zipped,
)
from testkit.servers.git import GitServer, Repository, git_server
from testkit.walled import INTERNET
from tests.system.jobs import Document, apply, job, settle
from tests.system.walls.conftest import Machine, builder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BOUNDS = Bounds(96 * 1024**2, 200)
SLOTS = 4
# A worker that has a sandbox, and one that has none: there the fetching itself is a plain process.
WALLS: Mapping[str, dict[str, Any]] = {"sandbox": {}, "process": {"hidden": ["/usr/bin/bwrap"]}}
MACHINE = ("/etc/passwd", "/etc/shadow")
OUTSIDE = ("/etc/rota-was-here", "/tmp/rota-was-here", "/outside")
# What is above the folder of a job: whatever was written there would be among it.
AROUND = {"name": "look", "run": "cd ..; echo around: *", "if": "always"}


@dataclass
class Ground:
    """A machine, and a server of repositories in its internet."""

    machine: Machine
    walls: str
    folder: Path  # that the server serves
    server: GitServer

    def job(self, name: str, source: Mapping[str, Any]) -> Document:
        walls = {"isolation": "process"}
        if self.walls == "sandbox":
            walls = {"isolation": "sandbox", "network": "none"}
        return job(name, AROUND, source=source, **walls)

    def uploaded(self, archive: Archive) -> Document:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, archive.name)
            path.write_bytes(archive.data)
            sent = self.machine.rota.client.upload(path)
        return {"upload": {"digest": sent["digest"], "name": archive.name}}

    def served(self, repository: Repository, **git: Any) -> Document:
        return {"git": {"url": self.server.url(repository), **git}}

    def run_all(self, sources: Mapping[str, Document]) -> dict[str, RunDetail]:
        """Execute a job for each source, as many at once as the worker has slots."""
        client = self.machine.rota.client
        names = {case: f"case{number}" for case, number in zip(sources, count())}
        apply(client, *(self.job(names[case], source) for case, source in sources.items()))
        runs = {case: client.trigger(name) for case, name in names.items()}
        return {case: settle(client, run) for case, run in runs.items()}

    def around(self, run: RunDetail) -> str:
        lines = self.machine.printed(run).splitlines()
        return next(line for line in lines if line.startswith("around:"))

    def taken(self) -> int:
        """Return how much disk all attempts and mirrors take now."""
        return sum(map(size_of, self.machine.rota.home.glob("workers/*/[rm]o*s")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the repositories, which both machines are served."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def attacks(folder: Path) -> Mapping[str, tuple[Repository, Attack]]:
    every = hostile_repositories(BOUNDS).items()
    return {
        case: (attack.make(folder, f"evil{number}"), attack)
        for number, (case, attack) in enumerate(every)
    }


@pytest.fixture(scope="module", params=WALLS)
def ground(_programs: None, folder: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    with ExitStack() as stack:
        machine = builder(stack)(
            **WALLS[request.param],
            slots=str(SLOTS),
            git_http="true",
            outgoing_networks=f"{INTERNET}/32",
            source_limit=f"{BOUNDS.bytes}B",
            source_files=str(BOUNDS.files),
            source_timeout="60s",
        )
        with machine.network.entered(machine.network.world):
            server = stack.enter_context(git_server(folder, address=INTERNET))
        stack.enter_context(machine.network.entered())
        yield Ground(machine, request.param, folder, server)


def facts() -> list[tuple[int, ...]]:
    """Return what would change if somebody wrote to the machine's files, or linked them."""
    found = [Path(path).stat() for path in MACHINE]
    return [(it.st_mode, it.st_nlink, it.st_size, it.st_mtime_ns, it.st_ctime_ns) for it in found]


@contextmanager
def watched(ground: Ground) -> Iterator[list[int]]:
    """Note how much disk is taken, again and again; what is outside of it stays as it is."""
    seen, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(0.2):
            seen.append(ground.taken())

    before = facts()
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()
    assert facts() == before
    assert [path for path in OUTSIDE if Path(path).exists()] == []
    assert list(ground.machine.rota.home.rglob("outside")) == []


def test_hostile_archives_are_refused_with_the_reason(ground: Ground) -> None:
    """Tar files packed at one of the machines, as they are at the other."""
    left_out = " packed" if ground.walls == "sandbox" else " plain"
    every = {**hostile_archives(BOUNDS), **bombs()}
    archives = {case: archive for case, archive in every.items() if not case.endswith(left_out)}
    sources = {case: ground.uploaded(archive) for case, archive in archives.items()}
    usual = ground.uploaded(Archive("code.sh", b"#!/bin/sh\n", ""))

    with watched(ground) as taken:
        runs = ground.run_all({"usual": usual, **sources})

    around = ground.around(runs.pop("usual"))
    assert "job" in around.split()
    told = {case: (run.state, run.cause, run.message) for case, run in runs.items()}
    wrong = {
        case: each
        for case, each in told.items()
        if each[:2] != ("FAILED", "source") or archives[case].reason not in each[2]
    }
    assert wrong == {}
    assert {case for case, run in runs.items() if ground.around(run) != around} == set()
    assert max(taken) < SLOTS * 2 * BOUNDS.bytes
    ground.machine.assert_nothing_is_left()


def test_hostile_repositories_are_refused_with_the_reason(
    ground: Ground, attacks: Mapping[str, tuple[Repository, Attack]]
) -> None:
    sources = {
        case: ground.served(repository, **attack.git)
        for case, (repository, attack) in attacks.items()
    }
    app = Repository.make(ground.folder, f"usual-{ground.walls}")
    app.commit({"a": "1"})

    with watched(ground) as taken:
        runs = ground.run_all({"usual": ground.served(app), **sources})

    around = ground.around(runs.pop("usual"))
    assert "job" in around.split()
    told = {case: (run.state, run.cause, run.message) for case, run in runs.items()}
    wrong = {
        case: each
        for case, each in told.items()
        if each[:2] != ("FAILED", "source") or attacks[case][1].reason not in each[2]
    }
    assert wrong == {}
    assert {case for case, run in runs.items() if ground.around(run) != around} == set()
    # Each has a mirror and a work tree, and is ended once both are twice what one may be.
    assert max(taken) < SLOTS * 4 * BOUNDS.bytes
    ground.machine.assert_nothing_is_left()


def test_what_a_repository_names_is_not_executed(ground: Ground) -> None:
    mark = "touch /tmp/rota-was-here"
    app = Repository.make(ground.folder, f"naming-{ground.walls}")
    app.commit(
        {
            ".gitattributes": "* filter=evil diff=evil merge=evil\n*.bin filter=lfs\n",
            ".gitconfig": f'[filter "evil"]\n\tsmudge = {mark}\n\tprocess = {mark}\n\trequired\n',
            ".lfsconfig": f"[lfs]\n\turl = ext::sh -c '{mark}'\n",
            "hooks/post-checkout.sh": f"#!/bin/sh\n{mark}\n",
            "a": "text",
        }
    )

    with watched(ground):
        run = ground.run_all({"naming": ground.served(app)})["naming"]

    assert run.state == "COMPLETED"
    assert "files of Git LFS are not fetched" in ground.machine.printed(run)


@pytest.fixture(scope="module")
def millions() -> Mapping[str, Archive]:
    many = f"more than {BOUNDS.files:,} entries"
    return {
        "tar": Archive("code.tar.gz", million_tar(), many),
        "zip": Archive("code.zip", million_zip(), many),
        "zip that tells of ten": Archive("code.zip", million_zip(told=10), many),
    }


def test_a_million_files_are_refused_at_once(
    ground: Ground, millions: Mapping[str, Archive]
) -> None:
    sources = {case: ground.uploaded(archive) for case, archive in millions.items()}

    with watched(ground) as taken:
        runs = ground.run_all(sources)

    told = {case: run.message for case, run in runs.items()}
    assert {c: words for c, words in told.items() if millions[c].reason not in words} == {}
    seconds = {case: run.attempts[-1].steps[0].seconds for case, run in runs.items()}
    assert {case: each for case, each in seconds.items() if each > 20} == {}
    assert max(taken) < SLOTS * 2 * BOUNDS.bytes


def test_the_quota_of_a_project_holds_for_what_is_hostile(ground: Ground) -> None:
    """What is refused takes no more than it had as it was uploaded, and nothing beyond is taken."""
    client = ground.machine.rota.client
    bomb = Archive("code.zip", zipped(("more zeros", bytes(70 * 1024**2))), "a bomb")
    before = client.get_quota().file_bytes_now
    client.put_quota(file_bytes=before + len(bomb.data) + 10)

    source = ground.uploaded(bomb)
    with pytest.raises(Conflict) as refused:
        ground.uploaded(Archive("code.tar", b"x" * 11, ""))
    run = ground.run_all({"bomb": source})["bomb"]
    after = client.get_quota().file_bytes_now
    client.delete_quota()

    assert refused.value.code == "file_quota"
    assert bomb.reason in run.message
    assert after == before + len(bomb.data)
