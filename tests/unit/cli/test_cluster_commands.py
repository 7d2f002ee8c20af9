"""`rota server status`, and the workers of a cluster: drains and tokens."""

from __future__ import annotations

import io
import os
from datetime import timedelta
from pathlib import Path

import pytest

from rota.api.workers import Cluster
from rota.api.workers import Server as AnsweredServer
from rota.cli import times
from rota.cli.servers import write_cluster
from rota.cli.terminal import Terminal
from rota.domain.access import Role, TokenTerms
from rota.domain.ids import new_server_id
from rota.operations.credentials import Credentials
from rota.operations.tokens import authenticate_worker, create_token
from rota.ports.records import NewServer
from rota.ports.work import JoinWish
from tests.unit.cli.console import Console
from tests.unit.cli.server import Server

TIDY = "jobs: [{name: tidy, steps: [{run: x}]}]"


def join(server: Server, name: str) -> str:
    new = NewServer(
        new_server_id(), name, timedelta(seconds=5), ("scheduler",), zone="fra", version="9.9"
    )
    server.do(server.engine.store.join(new))
    server.do(server.engine.store.keep_shards(new.id, stopping=False))
    return new.id


def _status_at_80(server: AnsweredServer, *, wide: bool) -> list[str]:
    screen = io.StringIO()
    terminal = Terminal(screen, io.StringIO(), False, False, 80)
    write_cluster(terminal, Cluster(now=times.now(), servers=(server,)), {server.id: 1}, wide=wide)
    return screen.getvalue().splitlines()


class TestStatus:
    def test_servers_shards_and_lag(self, rota: Console, server: Server) -> None:
        join(server, "one")
        server.define(TIDY)
        rota("trigger", "tidy")

        shown = rota("server", "status").lines

        assert shown[1].split()[:5] == ["one", "alive", "scheduler", "fra", "9.9"]
        assert "256 of 256 have an owner" in "\n".join(shown)
        assert any(line.startswith("overdue  nothing") for line in shown)
        assert any(line.startswith("queued   default 1 (the oldest for ") for line in shown)

    def test_servers_fit_80_columns_and_wide_has_all(self) -> None:
        url = "http://127.0.0.1:7700"
        roles = ("gateway", "scheduler", "dispatcher")
        one = AnsweredServer(
            id="s_z8zv6xnb7ty6", name="fra-1", state="alive", roles=roles, version="0.1.0", url=url
        )

        narrow, wide = (_status_at_80(one, wide=wide) for wide in (False, True))

        assert max(map(len, narrow)) <= 80
        assert narrow[1].split()[:3] == ["fra-1", "alive", "all"]
        assert narrow[1].endswith(url)
        assert "gateway,scheduler,dispatcher" in wide[1]
        assert wide[1].endswith("s_z8zv6xnb7ty6")

    def test_shards_with_their_owners(self, rota: Console, server: Server) -> None:
        owner = join(server, "one")

        shown = rota("server", "status", "--shards").lines

        assert len(shown) == 257
        assert shown[1].split()[:3] == ["0", owner, "1"]

    def test_programs_get_all_of_it(self, rota: Console, server: Server) -> None:
        join(server, "one")

        assert rota("server", "status", "--json").json["servers"][0]["name"] == "one"

    def test_member_of_a_project_sees_how_late_it_is_and_no_servers(
        self, rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        join(server, "one")
        made = create_token(
            server.engine.store,
            name="member",
            role=Role.ADMIN,
            actor="x",
            terms=TokenTerms("default"),
        )
        monkeypatch.setenv("ROTA_TOKEN", server.do(made)[1])

        shown, shards = rota("server", "status"), rota("server", "status", "--shards")

        assert [line.split()[0] for line in shown.lines] == ["overdue", "queued"]
        assert shards.code == 4
        assert "needs the role viewer in the installation" in shards.err

    def test_verb_that_goes_without_saying(self, rota: Console) -> None:
        assert "did you mean: rota server" in rota("server", "start").err


class TestDraining:
    @pytest.fixture(autouse=True)
    def _worker(self, rota: Console, server: Server) -> None:
        server.define(TIDY)
        rota("trigger", "tidy")
        self.work = server.claim()

    def test_drain_and_back(self, rota: Console) -> None:
        drained = rota("worker", "drain", "worker-1")
        [_, during] = rota("worker", "list").lines
        resumed = rota("worker", "drain", "worker-1", "--off")
        [_, after] = rota("worker", "list").lines

        assert "which holds 1" in drained.err
        assert during.split()[1] == "draining"
        assert "resumed" in resumed.err
        assert after.split()[1] == "alive"

    def test_waiting_ends_when_it_holds_nothing(self, rota: Console, server: Server) -> None:
        server.finish(self.work)

        assert "holds nothing" in rota("worker", "drain", "worker-1", "--wait").err

    def test_dry_run_changes_nothing(self, rota: Console) -> None:
        assert "would drain" in rota("worker", "drain", "worker-1", "--dry-run").err

        assert "alive" in rota("worker", "list").out

    def test_worker_that_was_not_drained_is_not_said_to_be_resumed(self, rota: Console) -> None:
        assert "worker worker-1 was not drained" in rota("worker", "resume", "worker-1").err

    @pytest.mark.parametrize("verb", ["drain", "resume"])
    def test_unknown_worker(self, rota: Console, verb: str) -> None:
        ended = rota("worker", verb, "nobody")

        assert ended.code == 3
        assert "no worker is named nobody" in ended.err
        assert "rota worker list --all" in ended.err


class TestJoinTokens:
    def test_made_listed_and_revoked(self, rota: Console, server: Server) -> None:
        words = ("--pool", "fra", "--uses", "3", "--expires", "2h")
        made = rota("worker", "join-token", "create", *words, "--json").json

        listed = rota("worker", "join-token", "list").lines[1].split()
        refused = rota("worker", "join-token", "revoke", made["id"])
        revoked = rota("worker", "join-token", "revoke", made["id"], "--yes")

        assert (made["pool"], made["uses"]) == ("fra", 3)
        assert listed[:4] == [made["id"], "fra", "valid", "3"]
        assert (refused.code, revoked.code) == (2, 0)
        assert "revoked" in rota("worker", "join-token", "list").out

    def test_secret_alone_is_on_standard_output_and_good_once(
        self, rota: Console, server: Server
    ) -> None:
        [secret] = rota("worker", "join-token", "create").lines
        desk = Credentials(server.engine)

        credential = server.do(desk.join(secret, JoinWish("fra-1", "fra")))

        assert server.do(desk.authenticate(credential.token)).name == "fra-1"
        assert "used up" in rota("worker", "join-token", "list").out

    def test_without_a_server_it_is_written_to_the_store(self, rota: Console) -> None:
        made = rota("worker", "join-token", "create")

        assert made.code == 0
        assert made.out.startswith("rotaj_")
        assert "written to the store" in made.err

    def test_whoever_replaces_needs_one(self, rota: Console) -> None:
        refused = rota("worker", "--server", "127.0.0.1:1", "--replace")

        assert refused.code == 2
        assert "ROTA_JOIN_TOKEN" in refused.err


class TestWorkerTokens:
    def test_made_listed_and_revoked(self, rota: Console, server: Server) -> None:
        made = rota("worker", "token", "create", "fra-1", "--pool", "fra", "--json").json

        listed = rota("worker", "token", "list").lines[1].split()
        refused = rota("worker", "token", "revoke", made["id"])
        revoked = rota("worker", "token", "revoke", made["id"], "--yes")

        identity = made["name"], made["pool"]
        assert identity == ("fra-1", "fra")
        assert listed[:4] == [made["id"], "fra-1", "fra", "valid"]
        assert (refused.code, revoked.code) == (2, 0)
        assert "revoked" in rota("worker", "token", "list").out

    def test_secret_alone_is_on_standard_output(self, rota: Console, server: Server) -> None:
        made = rota("worker", "token", "create", "fra-1")

        [secret] = made.lines
        assert server.do(authenticate_worker(server.engine, secret)).name == "fra-1"

    def test_without_a_server_it_is_written_to_the_store(self, rota: Console) -> None:
        made = rota("worker", "token", "create", "fra-1")

        assert made.code == 0
        assert made.out.startswith("rotaw_")
        assert "written to the store" in made.err
        assert str(Path(os.environ["ROTA_HOME"], "rota.db")) in made.err

    @pytest.mark.parametrize(
        "words",
        [
            ["worker", "token", "create", "fra-1"],
            ["worker", "join-token", "create"],
            ["token", "create", "--name", "me", "--role", "admin"],
        ],
    )
    def test_no_store_is_made_where_nobody_said_so(
        self, rota: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
    ) -> None:
        """No server would know its tokens."""
        monkeypatch.delenv("ROTA_HOME")

        refused = rota(*words)
        monkeypatch.setenv("ROTA_HOME", ".rota")
        first = rota(*words)
        monkeypatch.delenv("ROTA_HOME")

        assert refused.code == 3
        assert f"there is no store in {tmp_path / '.rota'}" in refused.err
        assert "ROTA_HOME" in refused.err
        assert (first.code, rota(*words).code) == (0, 0)

    def test_name_that_is_none(self, rota: Console) -> None:
        assert rota("worker", "token", "create", "a b").code == 2

    def test_viewer_may_not(
        self, rota: Console, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ROTA_TOKEN", server.secrets[Role.VIEWER])

        assert rota("worker", "token", "create", "fra-1").code == 4
