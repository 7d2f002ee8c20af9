"""Code and files that come from elsewhere, with everything real: servers, worker, sandbox."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.sdk.answers import RunDetail
from testkit.processes import RotaUp
from testkit.servers.git import GitServer, Repository, git_server
from testkit.waiting import eventually
from tests.system.jobs import apply, execute, job, log_of, settle

GO = {
    "go.mod": "module example.org/app\n\ngo 1.19\n",
    "app.go": 'package app\n\nfunc Twice(n int) int { return 2 * n }\n',
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


def test_a_ci_job_of_go_in_the_short_form(
    rota: RotaUp, server: GitServer, app: Repository
) -> None:
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
