"""Types of jobs from a package that was installed from its folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

import pytest

from rota.clock import SystemClock
from rota.domain.spec import JobSpec
from rota.plugins import Place
from rota.ports.executor import Executor
from rota.sdk.client import Client
from rota.sdk.errors import Invalid
from rota.testing.executors import Behaviour, ExecutorConformance, Reports
from testkit.processes import RotaUp
from testkit.waiting import eventually
from tests.system.jobs import apply, log_of, settle

pytestmark = pytest.mark.timeout(120)

PACKAGE = Path(__file__).parent / "package"
BROKEN = ("tomorrow", "nameless", "schemaless", "crashing", "absent")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the package was installed, with nothing from any network."""
    target = tmp_path_factory.mktemp("installed")
    uv = which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None
    options = ["--offline", "--no-index", "--no-deps", "--no-build-isolation"]
    python = ["--python", sys.executable]
    subprocess.run(
        [uv, "pip", "install", *python, "--quiet", *options, f"--target={target}", PACKAGE],
        check=True,
    )
    return target


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Where tickets lie; whoever closes one writes into its file."""
    folder = tmp_path / "desk"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


class Starting:
    def __init__(self, home: Path, installed: Path) -> None:
        self.home, self.environ = home, {"PYTHONPATH": str(installed)}
        self.started: list[RotaUp] = []

    def __call__(self, **settings: Any) -> RotaUp:
        rota = RotaUp(self.home, environ=self.environ, **settings)
        self.started.append(rota)
        return rota.start()


@pytest.fixture
def up(home: Path, installed: Path) -> Iterator[Starting]:
    starting = Starting(home, installed)
    try:
        yield starting
    finally:
        for rota in starting.started:
            rota.close()


def ticket(desk: Path, **fields: Any) -> dict[str, Any]:
    parameters = {"desk": str(desk), "queue": "OPS"}
    inputs = {"title": {"type": "string", "default": "a lamp"}}
    return {
        "name": "open",
        "type": "ticket",
        "parameters": parameters,
        "inputs": inputs,
        **fields,
    }


def opened(desk: Path) -> list[str]:
    file = desk / "opened"
    return file.read_text().split() if file.exists() else []


def close(desk: Path, run: str, words: str) -> None:
    (desk / f"OPS-{run}").write_text(words)


def is_looked_after(client: Client, run: str) -> bool:
    found = client.get_run(run)
    return found.note is not None and found.note.step == "status" and found.progress is not None


def offers(client: Client) -> dict[str, str]:
    [worker] = client.list_workers()
    return {offer.name: offer.reason for offer in worker.offers if offer.kind == "type"}


def test_a_plugin_is_loaded_once_it_is_named(up: Starting, desk: Path) -> None:
    rota = up(executors=f"ticket,drum,{','.join(BROKEN)}")
    found = offers(rota.client)

    assert {name for name, reason in found.items() if not reason} >= {"shell", "ticket", "drum"}
    assert found["tomorrow"] == "it has api_version 2, and this release of Rota has 1"
    assert found["nameless"] == (
        "its entry point is nameless, and its type other: they must be equal"
    )
    assert found["schemaless"] == (
        "its schema cannot be used: /patternProperties is not a keyword that is checked; "
        'did you mean "properties"?'
    )
    assert "no licence for this machine" in found["crashing"]
    assert "no installed package has the entry point rota.executors absent" in found["absent"]
    assert rota.client.get_job_type("ticket").schema is not None

    apply(rota.client, ticket(desk), {"name": "beat", "type": "drum"})
    run = rota.client.trigger("open", {"title": "a bulb"})
    eventually(lambda: is_looked_after(rota.client, run.id))
    close(desk, run.id, "done jane")
    ended = settle(rota.client, run)
    beaten = settle(rota.client, rota.client.trigger("beat"))

    assert (ended.state, ended.outputs) == ("COMPLETED", {"by": "jane"})
    assert log_of(rota.client, run.id) == "opened for a bulb\nrunning\n"
    assert ended.progress is not None
    assert (ended.progress.done, ended.progress.message) == (0.4, "somebody looks at it")
    assert beaten.state == "COMPLETED"

    with pytest.raises(Invalid) as refused:
        apply(rota.client, ticket(desk, parameters={"desk": str(desk), "queue": "OPSS"}))
    [problem] = refused.value.errors
    assert problem.message == 'open: queue must be OPS or DEV, not "OPSS"'


def test_what_is_installed_but_not_named_is_not_loaded(up: Starting, desk: Path) -> None:
    rota = up()

    assert "ticket" not in offers(rota.client)
    with pytest.raises(Invalid) as refused:
        apply(rota.client, ticket(desk))
    [problem] = refused.value.errors
    assert 'no worker has ever offered jobs of type "ticket"' in problem.message


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_lost_worker_costs_the_work_nothing(up: Starting, desk: Path, delivery: str) -> None:
    """The next attempt goes on with what the one before had submitted, and submits nothing."""
    rota = up(executors="ticket", lease="3s")
    apply(rota.client, ticket(desk, delivery=delivery))
    run = rota.client.trigger("open")
    eventually(lambda: is_looked_after(rota.client, run.id))

    kill_worker(rota)
    eventually(lambda: rota.client.get_run(run.id).attempt == 2)
    close(desk, run.id, "done joe")
    ended = settle(rota.client, run)

    assert (ended.state, ended.outputs, ended.attempt) == ("COMPLETED", {"by": "joe"}, 2)
    assert opened(desk) == [run.id]


def test_a_probe_tells_what_became_of_what_may_have_been_submitted(
    up: Starting, desk: Path
) -> None:
    """It is a command, which knows the run that it asks about."""
    rota = up(executors="ticket")
    desk.rmdir()  # so nobody can open a ticket
    asks = f'test "$INPUT_TITLE" = "a bulb" && mkdir {desk} && echo $ROTA_RUN_ID && exit 2'
    probe = {"run": asks, "delay": "0s"}
    apply(rota.client, ticket(desk, delivery="at_most_once", probe=probe))
    run = rota.client.trigger("open", {"title": "a bulb"})

    eventually(lambda: is_looked_after(rota.client, run.id))
    close(desk, run.id, "done jane")
    ended = settle(rota.client, run)

    [asked] = ended.probes
    assert (ended.state, ended.attempt, opened(desk)) == ("COMPLETED", 2, [run.id])
    assert (asked.answer, log_of(rota.client, asked.id)) == ("retry", f"{run.id}\n")


def test_a_cancel_reaches_the_other_system(up: Starting, desk: Path) -> None:
    rota = up(executors="ticket")
    apply(rota.client, ticket(desk))
    run = rota.client.trigger("open")
    eventually(lambda: is_looked_after(rota.client, run.id))

    rota.client.cancel_run(run.id)
    ended = settle(rota.client, run)

    assert (ended.state, ended.message) == (
        "CANCELLED",
        "cancelled: the work there was told to stop",
    )
    assert (desk / f"OPS-{run.id}").read_text() == "closed"


def kill_worker(rota: RotaUp) -> None:
    """Kill the worker's process: its guardian ends, and another one is started."""
    home = f"--home={rota.home.absolute()}"
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if folder.name.isdecimal() and "rota.runtime.worker_process" in words and home in words:
            os.kill(int(folder.name), signal.SIGKILL)
            return
    raise AssertionError("the worker has no process")


class TestDrum(ExecutorConformance):
    """The plug-in with an executor of its own passes the public suite."""

    has_exit_codes = False
    lacks: ClassVar[Mapping[Behaviour, str]] = {
        Behaviour.DEAF: "it always obeys",
        Behaviour.STEPS: "it has none",
        Behaviour.POUR: "it says little",
        Behaviour.LEAVE: "it starts nothing",
    }

    @pytest.fixture(autouse=True)
    def _from_its_folder(self, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(installed)

    @asynccontextmanager
    async def executor(self, reports: Reports, folder: Path) -> AsyncIterator[Executor]:
        plugin = import_module("rota_trial.drum").plugin
        yield plugin.build(
            Place(reports, reports, SystemClock(), NO_PROCESSES, folder, lambda: True)
        )

    def spec(self, behaviour: Behaviour) -> JobSpec:
        return JobSpec("any", type="drum", parameters={"beat": str(behaviour)})

    def leftovers(self) -> Sequence[object]:
        return ()


class _NoProcesses:
    def spawn(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("it starts no processes")


NO_PROCESSES = _NoProcesses()
