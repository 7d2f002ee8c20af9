"""Code and files that come from elsewhere, with everything real: servers, worker, sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.sdk.answers import RunDetail
from testkit.processes import RotaUp
from testkit.servers.git import GitServer, Repository, git_server
from testkit.waiting import eventually
from tests.system.jobs import Document, apply, job, log_of, settle

GO = {
    "go.mod": "module example.org/app\n\ngo 1.19\n",
    "app.go": "package app\n\nfunc Twice(n int) int { return 2 * n }\n",
    "app_test.go": (
        'package app\n\nimport "testing"\n\nfunc TestTwice(t *testing.T) {\n'
        '\tif Twice(21) != 42 {\n\t\tt.Fatal("no")\n\t}\n}\n'
    ),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitServer]:
    with git_server(tmp_path_factory.mktemp("served")) as serving:
        yield serving


@pytest.fixture(scope="module")
def rota(tmp_path_factory: pytest.TempPathFactory, server: GitServer) -> Iterator[RotaUp]:
    folder = tmp_path_factory.mktemp("rota")
    credentials = folder / "credentials.toml"
    credentials.write_text(
        f'[ours]\nhost = "{server.site}"\nuser = "ci"\npassword = "hunter2hunter2"\n'
        'projects = ["default"]\n'
    )
    credentials.chmod(0o600)
    up = RotaUp(
        folder / "home",
        outgoing_networks="127.0.0.0/8",
        git_http="true",
        git_credentials=str(credentials),
        source_timeout="20s",
    )
    try:
        yield up.start()
    finally:
        up.close()


@pytest.fixture
def app(server: GitServer, request: pytest.FixtureRequest) -> Repository:
    return Repository.make(server.folder, request.node.name.replace("[", "-").replace("]", ""))


def test_a_ci_job_of_go_in_the_short_form(rota: RotaUp, server: GitServer, app: Repository) -> None:
    commit = app.commit(GO)

    rota.client.apply(
        f"jobs: [{{name: ci, url: '{server.url(app)}', task: [build, test], format: go}}]"
    )
    run = settle(rota.client, rota.client.trigger("ci"))

    assert run.state == "COMPLETED", log_of(rota.client, run.id)
    assert run.commit == commit
    steps = [(step.name, step.result) for step in run.attempts[-1].steps]
    assert steps == [("source", "completed"), ("build", "completed"), ("test", "completed")]
    assert "ok  \texample.org/app" in log_of(rota.client, run.id)


# It needs nothing from anywhere: what builds it is in it.
BACKEND = """\
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "app-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("app.py", "NAME = 'app'\\n")
        for file, text in {
            "METADATA": "Metadata-Version: 2.1\\nName: app\\nVersion: 1\\n",
            "WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any\\n",
            "RECORD": "",
        }.items():
            wheel.writestr(f"app-1.dist-info/{file}", text)
    return name
"""
PYTHON = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
    'backend-path = ["."]\n',
    "backend.py": BACKEND,
    "pytest.py": "import app, sys\nprint('tested', app.NAME, 'in', sys.prefix)\n",
}
NODE = {
    "package.json": '{"name": "app", "version": "1.0.0", "scripts": {"test": "node app.js"}}',
    "package-lock.json": '{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "packages":'
    ' {"": {"name": "app", "version": "1.0.0"}}}',
    "app.js": "console.log('tested app of node')\n",
}
MAKE = {"Makefile": "check-all: ; @echo tested app of make\n"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "files", "tasks", "printed"),
    [
        ("python", PYTHON, ["install", "test", "build"], "tested app in"),
        ("node", NODE, ["install", "test"], "tested app of node"),
        ("make", MAKE, ["check-all"], "tested app of make"),
    ],
    ids=["python", "node", "make"],
)
def test_ci_jobs_of_other_formats(
    rota: RotaUp,
    server: GitServer,
    app: Repository,
    kind: str,
    files: dict[str, str],
    tasks: list[str],
    printed: str,
) -> None:
    app.commit(files)
    fields = {"name": f"ci-{kind}", "url": server.url(app), "task": tasks, "format": kind}

    apply(rota.client, fields)
    run = settle(rota.client, rota.client.trigger(f"ci-{kind}"))

    assert run.state == "COMPLETED", log_of(rota.client, run.id)
    assert [step.name for step in run.attempts[-1].steps] == ["source", *tasks]
    assert printed in log_of(rota.client, run.id)


def test_the_file_of_the_specification_runs_as_it_is(rota: RotaUp) -> None:
    """Its jobs fail, as there is no code for them; one of them is told why."""
    rota.client.apply(SPECIFIED)

    build = settle(rota.client, rota.client.trigger("BuildAndTest"))
    cleanup = settle(rota.client, rota.client.trigger("NightlyCleanup"))

    assert build.attempts[-1].steps[0].name == "Set up Go"
    assert cleanup.exit_code == 127
    assert "each run begins in a fresh, empty folder" in cleanup.message
    assert "source (path: ." in log_of(rota.client, cleanup.id)


SPECIFIED = """
jobs:
  - name: BuildAndTest
    schedule: "0 0 * * *"  # Every day at midnight
    run_once: false         # Run multiple times
    steps:
      - name: Set up Go
        run: go mod
      - name: Build
        run: go build -v ./...
      - name: Test
        run: go test -v ./...
  - name: NightlyCleanup
    schedule: "0 2 * * *"  # Every day at 2 AM
    run_once: true          # Run only once
    steps:
      - name: Cleanup
        run: ./cleanup_script.sh
"""


def git_job(server: GitServer, app: Repository, *steps: str, **fields: Any) -> Document:
    git = {"url": server.url(app)} | fields.pop("git", {})
    return job("tried", *steps, source={"git": git}, **fields)


def run_of(rota: RotaUp, document: Document) -> RunDetail:
    apply(rota.client, document)
    return settle(rota.client, rota.client.trigger(document["name"]))


def test_all_attempts_have_the_code_of_the_first(
    rota: RotaUp, server: GitServer, app: Repository
) -> None:
    """The branch is moved while the first attempt goes on; the mirror has both commits."""
    first = app.commit({"number": "1"})
    mark, moved = (server.folder / f"{app.bare.name}.{name}" for name in ("begun", "moved"))
    wait = f"touch {mark}; until test -e {moved}; do sleep 0.1; done; exit 1"
    script = f"cat number; test -e {mark} || {{ {wait}; }}"
    document = git_job(server, app, script, git={"ref": "main"}, retry={"attempts": 2})
    apply(rota.client, document)
    run = rota.client.trigger("tried")
    eventually(mark.exists)
    app.commit({"number": "2"})
    moved.touch()

    ended = settle(rota.client, run)
    another = settle(rota.client, rota.client.trigger("tried"))

    assert (ended.state, ended.attempt, ended.commit) == ("COMPLETED", 2, first)
    assert log_of(rota.client, run.id, 2).splitlines()[-1].endswith("1")
    assert another.commit != first


def test_a_credential_is_for_its_projects(rota: RotaUp, server: GitServer, app: Repository) -> None:
    app.commit({"a": "text"})
    server.passwords[app.bare.name] = "ci:hunter2hunter2"

    ours = run_of(rota, git_job(server, app, "cat a", git={"credential": "ours"}))
    without = run_of(rota, git_job(server, app, "cat a"))
    unknown = run_of(rota, git_job(server, app, "cat a", git={"credential": "theirs"}))

    assert ours.state == "COMPLETED", log_of(rota.client, ours.id)
    assert "wants a login" in without.message
    assert without.cause == "source"
    assert "has no credential theirs for the project default" in unknown.message
    assert not [path for path in rota.home.rglob("*") if is_file_with(path, b"hunter2")]


def is_file_with(path: Path, secret: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and secret in path.read_bytes()


def test_a_repository_that_hangs_ends_at_the_limit_or_at_a_cancel(
    rota: RotaUp, server: GitServer, app: Repository
) -> None:
    app.commit({"a": "text"})
    server.hangs.add(app.bare.name)
    apply(rota.client, git_job(server, app, "cat a", timeout="3s", grace="1s"))
    slow = rota.client.trigger("tried")
    timed_out = settle(rota.client, slow)
    apply(rota.client, git_job(server, app, "cat a", grace="1s"))
    run = rota.client.trigger("tried")
    eventually(lambda: len([1 for path, _ in server.asked if app.bare.name in path]) > 1)
    rota.client.cancel_run(run.id)

    assert timed_out.state == "TIMED_OUT"
    assert settle(rota.client, run).state == "CANCELLED"


def test_the_environment_stays_clean(rota: RotaUp, server: GitServer, app: Repository) -> None:
    app.commit({"a": "text"})

    run = run_of(rota, git_job(server, app, "env | grep -c ^GIT_ || true; git status --short"))

    assert run.state == "COMPLETED"
    assert log_of(rota.client, run.id).splitlines()[-1].endswith("0")


def test_a_step_of_a_failed_source_is_skipped_unless_it_wants_to_run(
    rota: RotaUp, server: GitServer, app: Repository
) -> None:
    document = git_job(server, app, "cat a")
    document["steps"].append({"run": "echo cleaned", "if": "always"})

    run = run_of(rota, document)

    steps = [(step.name, step.result) for step in run.attempts[-1].steps]
    assert steps == [("source", "failed"), ("step 1", "skipped"), ("step 2", "completed")]
    assert (run.state, run.cause) == ("FAILED", "source")
