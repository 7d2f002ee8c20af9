"""`rota server` and `rota worker --server` on one machine: roles, tokens, TLS, and their ends."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.domain.key_ring import Key
from rota.runtime import machine
from rota.runtime.settings import Settings
from rota.sdk.client import Client
from rota.sdk.errors import NotFound
from testkit.certificates import make_certificate
from testkit.checker import check
from testkit.evidence import Evidence
from testkit.nodes import Node, ServerNode, WorkerNode
from testkit.processes import cmdline, environment, processes_of, run_rota
from testkit.servers.ports import free_ports
from testkit.waiting import eventually
from tests.system.jobs import apply, job, log_of, settle

Start = Callable[..., Any]


class Site:
    """A server on SQLite, and workers that dial in."""

    def __init__(self, folder: Path, **settings: str) -> None:
        rest, grpc = free_ports(2)
        self._folder = folder
        self._settings = settings
        self._nodes: list[Node] = []
        self.server = ServerNode("server", folder / "server", (rest, grpc), **settings)
        self._nodes.append(self.server)
        offline = Settings(home=self.server.home)
        _, self.token = machine.create(offline, "tests", "admin")
        self.client = Client(self.server.url, self.token)

    def worker(self, name: str = "far", home: str = "", **settings: str) -> WorkerNode:
        """With a token of its own and a data folder like its name, not started yet."""
        told = {"server": self.server.grpc} | settings
        told.setdefault("worker_token", "" if "join_token" in told else self.worker_token(name))
        node = WorkerNode(name, self._folder / (home or name), self.client, **told)
        self._nodes.append(node)
        return node

    def worker_token(self, name: str, pool: str | None = None) -> str:
        return machine.create_for_worker(Settings(home=self.server.home), name, pool)[1]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        told = {"ROTA_URL": self.server.url, "ROTA_TOKEN": self.token}
        return run_rota(*words, environ=self.server.environ | told)

    def close(self) -> None:
        self.client.close()
        for node in reversed(self._nodes):
            node.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Start]:
    sites: list[Site] = []

    def make(**settings: str) -> Site:
        sites.append(Site(tmp_path, **settings))
        return sites[-1]

    yield make
    for each in sites:
        each.close()


class TestWorkers:
    def test_worker_dials_in_and_works(self, site: Start) -> None:
        here: Site = site()
        here.server.start()
        here.worker(pool="far", labels="site=fra", zone="eu").start()
        apply(here.client, job("hello", "echo hello", pool="far"))

        run = settle(here.client, here.client.trigger("hello"))

        [worker] = here.client.list_workers()
        assert (run.state, log_of(here.client, run.id)) == ("COMPLETED", "hello\n")
        assert (worker.worker, worker.pool) == ("far", "far")
        assert worker.labels == {"site": "fra", "zone": "eu"}

    def test_secret_is_in_no_argument_and_not_with_the_jobs(self, site: Start) -> None:
        here: Site = site()
        here.server.start()
        worker = here.worker()
        worker.start()
        secret = worker.environ["ROTA_WORKER_TOKEN"]
        apply(here.client, job("look", "env; tr '\\0' ' ' </proc/self/environ"))

        printed = log_of(here.client, settle(here.client, here.client.trigger("look")).id)

        assert "ROTA_RUN_ID" in printed
        assert secret not in printed
        assert all(secret.encode() not in cmdline(pid) for pid in processes_of(worker.home))
        assert secret not in worker.printed()

    def test_worker_without_a_token_says_how_to_get_one(self, tmp_path: Path, site: Start) -> None:
        refused = run_rota(
            "worker",
            "--server=127.0.0.1:1",
            environ={"ROTA_HOME": str(tmp_path), "PATH": "/usr/bin", "HOME": str(tmp_path)},
        )

        assert refused.returncode == 2
        assert "rota worker token create" in refused.stderr

    def test_worker_with_another_s_token_is_refused_once_and_for_good(self, site: Start) -> None:
        here: Site = site()
        here.server.start()
        worker = here.worker("impostor", worker_token=here.worker_token("somebody"))

        refused = run_rota("worker", "--name=impostor", environ=worker.environ)

        assert refused.returncode == 4
        assert refused.stderr.count("this token is for the worker somebody") == 1
        assert "killed everything" not in refused.stdout + refused.stderr
        assert not here.client.list_workers().items

    def test_worker_whose_authorities_cannot_be_read_says_so(self, site: Start) -> None:
        worker = site().worker(tls_ca="absent.pem")

        refused = run_rota("worker", environ=worker.environ)

        assert refused.returncode == 2
        assert "absent.pem cannot be read" in refused.stderr
        assert "ROTA_TLS_CA" in refused.stderr

    def test_revoked_worker_is_sent_away_with_its_next_beat(self, site: Start) -> None:
        here: Site = site(lease="2s")
        here.server.start()
        worker = here.worker()
        worker.start()
        [token] = here.client.list_worker_tokens()

        assert here.command("worker", "token", "revoke", token.id, "--yes").returncode == 0

        assert worker.process.wait(timeout=20) == 4
        assert "not valid (any more)" in worker.printed()
        eventually(lambda: not here.client.list_workers().items)

    def test_attempt_survives_a_restart_of_its_server(self, site: Start, tmp_path: Path) -> None:
        here: Site = site()
        here.server.start()
        here.worker().start()
        gate = tmp_path / "gate"
        apply(here.client, job("long", f"until [ -e {gate} ]; do sleep 0.05; done; echo through"))
        run = here.client.trigger("long")
        eventually(lambda: here.client.get_run(run.id).state == "PROCESSING")

        here.server.restart()
        gate.touch()
        done = settle(here.client, run)

        assert (done.state, len(done.attempts)) == ("COMPLETED", 1)
        assert log_of(here.client, run.id) == "through\n"

    def test_another_of_its_name_leaves_it_alone(self, site: Start, evidence: Evidence) -> None:
        here: Site = site(lease="1h")
        here.server.start()
        here.worker("twin").start()
        apply(here.client, job("long", evidence.script(evidence.beats(40))))
        run = here.client.trigger("long")
        eventually(lambda: here.client.get_run(run.id).state == "PROCESSING")

        here.worker("twin", home="fresh").start()
        done = settle(here.client, run)

        assert (done.state, done.attempt, done.losses) == ("COMPLETED", 1, 0)
        assert check(evidence.marks(), [run.id]) == []


class TestJoining:
    def joining(self, here: Site, name: str = "far", **settings: str) -> WorkerNode:
        token = json.loads(here.command("worker", "join-token", "create", "--json").stdout)
        return here.worker(name, join_token=token["secret"], **settings)

    def test_worker_joins_once_and_keeps_what_it_got(self, site: Start) -> None:
        here: Site = site()
        here.server.start()
        worker = self.joining(here)
        secret = worker.environ["ROTA_JOIN_TOKEN"]
        worker.start()
        apply(here.client, job("look", "env; tr '\\0' ' ' </proc/self/environ"))
        printed = log_of(here.client, settle(here.client, here.client.trigger("look")).id)
        inherited = Path(f"/proc/{worker.worker_pid}/environ").read_bytes()
        worker.stop()
        del worker.environ["ROTA_JOIN_TOKEN"]

        worker.start()

        [file] = worker.home.rglob("credential.json")
        [shown] = here.client.list_workers()
        assert file.stat().st_mode & 0o777 == 0o600
        assert json.loads(file.read_text())["token"] not in printed
        assert secret not in printed + worker.printed()
        assert secret.encode() not in inherited
        assert shown.credential_expires_at is not None
        page = here.command("worker", "show", "far").stdout
        assert f"{shown.credential}, until {shown.credential_expires_at:%Y-%m-%d}" in page

    def test_join_token_is_good_for_one_and_a_name_for_one(self, site: Start) -> None:
        here: Site = site()
        here.server.start()
        first = self.joining(here)
        first.start()
        used_up = here.worker("late", join_token=first.environ["ROTA_JOIN_TOKEN"])
        twin = self.joining(here, home="elsewhere")

        refused = [run_rota("worker", environ=each.environ) for each in (used_up, twin)]

        assert [each.returncode for each in refused] == [4, 4]
        assert "used up" in refused[0].stderr
        assert "--replace" in refused[1].stderr
        twin.command.append("--replace")
        twin.launch()
        assert first.process.wait(timeout=20) == 4
        assert "not valid (any more)" in first.printed()
        both = ["alive", "revoked"]
        eventually(lambda: sorted(each.state for each in here.client.list_workers()) == both)

    def test_revoked_worker_ends_at_once_and_does_not_come_back(self, site: Start) -> None:
        here: Site = site(lease="1h")
        here.server.start()
        worker = self.joining(here)
        worker.start()

        revoked = here.command("worker", "revoke", "far", "--yes")

        assert revoked.returncode == 0, revoked.stderr
        assert worker.process.wait(timeout=20) == 4  # long before its next beat
        assert "not valid (any more)" in worker.printed()
        [shown] = here.client.list_workers()
        assert shown.state == "revoked"
        again = run_rota("worker", environ=worker.environ)
        assert again.returncode == 4
        assert "--replace" in again.stderr


def test_doctor_asks_the_server_that_the_command_line_talks_to(site: Start) -> None:
    here: Site = site()
    here.server.start()

    examined = here.command("doctor", "--json")

    found = {each["subject"]: each for each in json.loads(examined.stdout)}
    assert found["server"]["message"] == f"{here.server.url} is ready"
    assert found["token"]["message"] == "tests, admin"


class TestWalls:
    def test_a_new_cluster_walls_jobs_that_name_no_isolation(self, site: Start) -> None:
        here: Site = site(default_isolation="")
        here.server.start()
        apply(here.client, job("look", "true"))

        shown = json.loads(here.command("server", "defaults", "--json").stdout)
        found = here.client.get_job("look")

        assert shown == {
            "isolation": "sandbox",
            "network": "outbound",
            "has_shared_process": False,
        }
        assert (found.isolation, found.network) == ("sandbox", "outbound")
        assert "jobs that name no isolation run in a sandbox" in here.server.printed()

    def test_a_run_waits_for_a_worker_that_offers_what_it_asks_for(self, site: Start) -> None:
        """A worker that tells no such offer is never given less."""
        here: Site = site()
        here.server.start()
        here.worker("plain").start()
        apply(here.client, job("look", "true", run_as="nobody-of-theirs"))

        run = here.client.trigger("look")
        eventually(lambda: here.client.get_run(run.id).state == "BLOCKED")
        why = here.client.explain(run.id)

        assert "worker plain has no user nobody-of-theirs (run_as)" in why.reasons[0].message

    def test_the_store_keeps_what_its_first_server_wrote(self, site: Start) -> None:
        here: Site = site(default_isolation="process")
        here.server.start()
        here.server.stop()
        here.server.environ["ROTA_DEFAULT_ISOLATION"] = "sandbox"
        here.server.start()

        assert here.client.get_defaults().isolation == "process"
        assert not here.client.get_defaults().has_shared_process


class TestRoles:
    def test_server_without_the_gateway_has_health_and_no_api(self, site: Start) -> None:
        here: Site = site(roles="scheduler,dispatcher")
        here.server.start()
        headers = {"Authorization": f"Bearer {here.token}"}

        metrics = httpx.get(f"{here.server.url}/metrics", headers=headers, trust_env=False)

        assert metrics.status_code == 200
        with pytest.raises(NotFound):
            here.client.list_jobs()

    def test_server_that_only_answers_fires_nothing(self, site: Start) -> None:
        here: Site = site(roles="gateway")
        here.server.start()
        apply(here.client, job("due", "true", schedule="every 100ms"))

        eventually(lambda: here.client.get_cluster().overdue_seconds > 1)

        [server] = here.client.get_cluster().servers
        assert (server.roles, server.shards) == (("gateway",), 0)
        assert not here.client.list_runs().items

    def test_second_server_on_sqlite_is_refused(self, site: Start) -> None:
        here: Site = site()
        here.server.start()

        refused = run_rota("server", environ=here.server.environ | {"ROTA_LISTEN": "127.0.0.1:0"})

        assert refused.returncode == 5
        assert f"pid {here.server.pid}" in refused.stderr


class TestTls:
    def test_everything_is_reached_by_tls(self, site: Start, tmp_path: Path) -> None:
        made = make_certificate(tmp_path)
        authorities = str(made.certificate)
        here: Site = site(tls_cert=authorities, tls_key=str(made.key))
        here.server.url = here.server.url.replace("http:", "https:")
        here.server.launch()
        told = {"ROTA_URL": here.server.url, "ROTA_TOKEN": here.token, "ROTA_TLS_CA": authorities}
        environ = here.server.environ | told

        eventually(lambda: run_rota("worker", "list", environ=environ).returncode == 0)
        worker = here.worker(tls_ca=authorities)
        Node.launch(worker)

        def has_worker() -> bool:
            return "far" in run_rota("worker", "list", environ=environ).stdout

        eventually(has_worker, within=timedelta(seconds=30))
        del environ["ROTA_TLS_CA"]
        untrusting = run_rota("worker", "list", environ=environ)
        assert untrusting.returncode == 7
        assert "certificate" in untrusting.stderr

    def test_authorities_of_the_current_folder_do_not_vouch_for_a_server_named_elsewhere(
        self, site: Start, tmp_path: Path
    ) -> None:
        made = make_certificate(tmp_path)
        here: Site = site(tls_cert=str(made.certificate), tls_key=str(made.key))
        here.server.url = here.server.url.replace("http:", "https:")
        here.server.launch()
        environ = here.server.environ | {
            "HOME": str(tmp_path / "me"),
            "ROTA_URL": here.server.url,
            "ROTA_TOKEN": here.token,
        }
        (tmp_path / "me" / ".config" / "rota").mkdir(parents=True)
        theirs, ours = tmp_path / "folder", tmp_path / "me" / ".config" / "rota"
        theirs.mkdir()
        settings = f'tls_ca = "{made.certificate}"\n'

        (ours / "rota.toml").write_text(settings)
        eventually(lambda: run_rota("worker", "list", environ=environ).returncode == 0)
        (ours / "rota.toml").rename(theirs / "rota.toml")
        untrusting = run_rota("worker", "list", environ=environ, cwd=theirs)

        assert untrusting.returncode == 7
        assert "certificate" in untrusting.stderr
        assert "ROTA_TLS_CA" in untrusting.stderr


def test_a_hangup_renews_the_key_ring(site: Start, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    ring.write_text(f"{Key('old', b'o' * 32).line()}\n")
    here: Site = site(secrets_key_file=str(ring), log_level="info")
    here.server.start()

    ring.write_text(f"{Key('new', b'n' * 32).line()}\n{ring.read_text()}")
    here.server.process.send_signal(signal.SIGHUP)

    eventually(lambda: '"keys": ["new", "old"]' in here.server.printed())
    assert here.server.is_running


def test_a_key_ring_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    environ = environment(tmp_path / "home", secrets_key_command="false")

    ended = run_rota("server", environ=environ)

    assert ended.returncode != 0
    assert "secrets_key_command" in ended.stderr
