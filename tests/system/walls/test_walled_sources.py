"""Sources that are fetched behind walls: by a worker that is root, and by one that is not."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit.servers.git import GitServer, Repository, git_server
from testkit.waiting import eventually
from testkit.walled import INTERNET, PRIVATE
from tests.system.walls.conftest import USERS, Build, Machine, builder

pytestmark = pytest.mark.timeout(120)

SETTINGS = {
    "git_http": "true",
    # The address of the internet here is one of a range for documentation.
    "outgoing_networks": f"{INTERNET}/32",
    "source_timeout": "30s",
}


@dataclass
class Fetching:
    """A machine, and a server of repositories in the internet."""

    machine: Machine
    server: GitServer
    private: GitServer  # in a private network that the machine reaches
    app: Repository

    def source(self, server: GitServer | None = None) -> dict[str, object]:
        return {"git": {"url": (server or self.server).url(self.app)}}


def fetching(stack: ExitStack, machine: Machine) -> Fetching:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-served-")))
    network = machine.network
    with network.entered(network.world):
        server = stack.enter_context(git_server(folder, address=INTERNET))
        private = stack.enter_context(git_server(folder, address=PRIVATE[0]))
    app = Repository.make(folder, "app")
    app.commit({"run.sh": "#!/bin/sh\ntouch made\nstat -c '%u %U' . run.sh\n", "a": "text"})
    return Fetching(machine, server, private, app)


@pytest.fixture(scope="module", params=list(USERS))
def walled(_programs: None, request: pytest.FixtureRequest) -> Iterator[Fetching]:
    with ExitStack() as stack:
        yield fetching(stack, builder(stack)(USERS[request.param], **SETTINGS))


def test_a_sandbox_without_network_has_code_from_git(walled: Fetching) -> None:
    """Its steps own it and reach nobody; what brought it had a way out."""
    machine = walled.machine
    port = walled.server.port
    script = (
        "./run.sh && git status --short && test -w a && "
        f"! timeout 2 perl -MIO::Socket -e 'IO::Socket::INET->new(\"{INTERNET}:{port}\") or exit 1'"
    )

    run = machine.run(script, source=walled.source())

    printed = machine.printed(run)
    assert run.state == "COMPLETED", printed
    assert run.commit == walled.app.run("rev-parse", "HEAD")
    assert "1000 job" in printed
    assert "no sandbox" not in printed
    machine.assert_nothing_is_left()


def test_again_it_comes_from_the_mirror(walled: Fetching) -> None:
    """Each run has another user; the mirror is the worker's in between."""
    machine = walled.machine
    first = machine.run("./run.sh", source=walled.source())
    second = machine.run("./run.sh", source=walled.source())

    assert (first.state, second.state) == ("COMPLETED", "COMPLETED")
    mirrors = [path for path in machine.rota.home.glob("workers/*/mirrors/*") if path.is_dir()]
    assert len(mirrors) == 1
    assert mirrors[0].stat().st_uid == machine.user
    assert mirrors[0].stat().st_mode & 0o777 == 0o700


def test_a_plain_process_has_what_a_sandbox_fetched(walled: Fetching) -> None:
    machine = walled.machine

    run = machine.run("./run.sh", isolation="process", source=walled.source())

    printed = machine.printed(run)
    assert run.state == "COMPLETED", printed
    owners = {line.split()[-2] for line in printed.splitlines() if line.strip()[:1].isdigit()}
    assert str(machine.user) in owners
    assert "no sandbox" not in printed


def test_a_private_network_is_not_reached(walled: Fetching) -> None:
    for isolation in ("sandbox", "process"):
        run = walled.machine.run("true", isolation=isolation, source=walled.source(walled.private))

        assert f"{PRIVATE[0]} must not be reached" in run.message
        assert walled.private.asked == []


def test_an_upload_and_an_input_are_there(walled: Fetching, tmp_path: Path) -> None:
    machine = walled.machine
    client = machine.rota.client
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        archive.add(walled.app.tree / "run.sh", "run.sh")
    code, table = tmp_path / "code.tar.gz", tmp_path / "table.csv"
    code.write_bytes(data.getvalue())
    table.write_text("1,2\n")
    uploaded, given = client.upload(code), client.upload(table)

    script = 'test -x run.sh && cat "$INPUT_TABLE" && cat table.csv && echo "$INPUT_TABLE"'
    document = {
        "source": {"upload": {"digest": uploaded["digest"], "name": "code.tar.gz"}},
        "inputs": {"table": {"type": "file"}},
    }
    run = machine.start_with({"table": given}, script, **document)

    printed = machine.printed(run)
    assert run.state == "COMPLETED", printed
    assert printed.count("1,2") == 2
    assert "/job/table.csv" in printed


def test_a_hostile_archive_is_refused_with_the_reason(walled: Fetching, tmp_path: Path) -> None:
    client = walled.machine.rota.client
    archive = tmp_path / "bad.tar"
    with tarfile.open(archive, "w") as packed:
        info = tarfile.TarInfo("link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(info)
    upload = {"digest": client.upload(archive)["digest"], "name": "bad.tar"}

    run = walled.machine.run("true", source={"upload": upload})

    assert run.cause == "source"
    assert "leads out of the folder" in run.message


def test_a_machine_without_bubblewrap_fetches_for_processes_and_says_so(build: Build) -> None:
    with ExitStack() as stack:
        it = fetching(stack, build(0, hidden=["/usr/bin/bwrap"], **SETTINGS))
        process = it.machine.run("cat a", isolation="process", source=it.source())
        walled = it.machine.start("cat a", source=it.source())

        printed = it.machine.printed(process)
        assert process.state == "COMPLETED", printed
        assert "this worker has no sandbox (bubblewrap is not installed" in printed
        client = it.machine.rota.client
        eventually(lambda: client.get_run(walled.id).state == "BLOCKED")
        assert "code from git behind walls" in repr(client.explain(walled.id)) or "sandbox" in repr(
            client.explain(walled.id)
        )
