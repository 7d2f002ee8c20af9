"""Fetching from real servers: what comes, what is refused, and what nobody gets to see."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota.sources import calls, git
from rota.sources.__main__ import fulfil
from rota.sources.calls import size_of
from rota.sources.wish import Bounds, GitLogin, GitWish, SourceRefused, SourceWish
from testkit.certificates import make_certificate
from testkit.hostile import hostile_repositories
from testkit.servers.git import GitServer, Repository, git_server, ssh_server

NEAR = ("127.0.0.0/8",)
BOUNDS = Bounds(16 * 1024**2, 1_000)
SMALL = Bounds(1024**2, 1_000)
ATTACKS = hostile_repositories(SMALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    with git_server(folder) as serving:
        yield serving


@pytest.fixture
def app(server: GitServer) -> Repository:
    return Repository.make(server.folder, "app")


class Worker:
    """What the worker has: a mirror, and a new folder for each attempt."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.mirror = top / "mirror"
        self.mirror.mkdir()
        self.numbers = iter(range(1_000))

    def wish(self, url: str, **fields: object) -> GitWish:
        usual = GitWish(url, str(self.mirror), allows_http=True, opened=NEAR)
        return replace(usual, **fields)  # type: ignore[arg-type]

    def fetch(self, url: str, bounds: Bounds = BOUNDS, **fields: object) -> tuple[Path, str]:
        folder = self.top / f"job{next(self.numbers)}"
        folder.mkdir()
        return folder, git.fetch(self.wish(url, **fields), str(folder), bounds)

    def refused(self, url: str, bounds: Bounds = BOUNDS, **fields: object) -> str:
        with pytest.raises(SourceRefused) as refused:
            self.fetch(url, bounds, **fields)
        return str(refused.value)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


class TestWhatComes:
    def test_the_head_unless_a_ref_is_named(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        first = app.commit({"run.sh": "#!/bin/sh\n"})

        folder, commit = worker.fetch(server.url(app))

        assert commit == first
        assert os.access(folder / "run.sh", os.X_OK)
        told = subprocess.run(
            ["git", "remote", "get-url", "origin"], cwd=folder, capture_output=True, check=True
        )
        assert told.stdout.decode().strip() == server.url(app)

    def test_a_branch_a_tag_or_a_commit(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        first = app.commit({"a": "1"})
        app.run("tag", "-a", "-m", "first", "v1")
        app.run("checkout", "-q", "-b", "feature/x")
        second = app.commit({"a": "2"})

        assert worker.fetch(server.url(app), ref="v1")[1] == first
        assert worker.fetch(server.url(app), ref="feature/x")[1] == second
        assert worker.fetch(server.url(app), ref="refs/heads/main")[1] == first
        assert worker.fetch(server.url(app), ref=first)[1] == first

    def test_a_branch_that_was_moved(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        old = app.commit({"a": "1"})
        worker.fetch(server.url(app), ref="main")
        app.run("checkout", "-q", "--orphan", "other")
        app.run("branch", "-D", "main")
        app.run("branch", "-m", "main")
        new = app.commit({"a": "2"})

        folder, commit = worker.fetch(server.url(app), ref="main")

        assert (commit, (folder / "a").read_text()) == (new, "2")
        # Another attempt at the run before has what that began with, though no branch has it.
        assert worker.fetch(server.url(app), ref="main", commit=old)[1] == old

    def test_the_recorded_commit_needs_nobody(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        commit = app.commit({"a": "1"})
        worker.fetch(server.url(app))
        server.asked.clear()

        worker.fetch(server.url(app), commit=commit)

        assert server.asked == []

    def test_another_worker_gets_the_recorded_commit_too(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        old = app.commit({"a": "1"})
        app.commit({"a": "2"})

        folder, commit = worker.fetch(server.url(app), ref="main", commit=old)

        assert (commit, (folder / "a").read_text()) == (old, "1")

    def test_branches_that_become_folders(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        app.commit({"a": "1"})
        app.run("checkout", "-q", "-b", "x")
        app.commit({"a": "2"})
        worker.fetch(server.url(app), ref="x")
        app.run("branch", "-m", "x", "x/y")
        app.run("push", "-q", "origin", ":x")
        moved = app.commit({"a": "3"})

        assert worker.fetch(server.url(app), ref="x/y")[1] == moved

    def test_a_mirror_that_a_killed_fetch_left(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        app.commit({"a": "1"})
        worker.fetch(server.url(app))
        mirror = worker.mirror / "main.git"
        (mirror / "packed-refs.lock").touch()
        (mirror / "objects/pack/tmp_pack_x").write_bytes(b"half")
        second = app.commit({"a": "2"})

        assert worker.fetch(server.url(app))[1] == second

    def test_https_with_the_authorities_of_the_settings(
        self, worker: Worker, tmp_path: Path
    ) -> None:
        served = tmp_path / "secure"
        served.mkdir()
        certificate = make_certificate(tmp_path)
        app = Repository.make(served, "app")
        commit = app.commit({"a": "1"})
        with git_server(served, certificate) as server:
            authorities = certificate.certificate.read_text()

            assert worker.fetch(server.url(app), authorities=authorities)[1] == commit
            (worker.mirror / "main.git").rename(worker.mirror / "old")
            assert "certificate" in worker.refused(server.url(app))


class TestCredentials:
    LOGIN = GitLogin("ci", "hunter2hunter2", name="ours")

    def test_a_password_is_shown_to_its_host_and_is_nowhere_else(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        commit = app.commit({"a": "1"})
        server.passwords["app.git"] = "ci:hunter2hunter2"
        seen: list[bytes] = []
        is_over = threading.Event()
        watching = threading.Thread(target=watch_processes, args=(seen, is_over))
        watching.start()

        folder, found = worker.fetch(server.url(app), login=replace(self.LOGIN, origin=server.site))
        is_over.set()
        watching.join()

        assert found == commit
        assert any(b"fetch" in each for each in seen)
        assert not any(b"hunter2" in each for each in seen)
        assert not contains(folder, b"hunter2")
        assert not contains(worker.mirror, b"hunter2")

    def test_without_one_it_is_told_what_to_do(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        app.commit({"a": "1"})
        server.passwords["app.git"] = "ci:hunter2hunter2"

        assert "wants a login: name one" in worker.refused(server.url(app))

    def test_a_wrong_one(self, worker: Worker, server: GitServer, app: Repository) -> None:
        app.commit({"a": "1"})
        server.passwords["app.git"] = "ci:another-password"
        login = replace(self.LOGIN, origin=server.site)

        assert "refuses the credential ours" in worker.refused(server.url(app), login=login)

    @pytest.mark.parametrize("name", ["app", "hunter2hunter2"])
    def test_a_server_that_repeats_one_brings_it_nowhere(
        self,
        worker: Worker,
        server: GitServer,
        capfd: pytest.CaptureFixture[str],
        name: str,
    ) -> None:
        """Neither as it is nor as HTTP carries it, in what is printed and what is told."""
        app = Repository.make(server.folder, name)
        app.commit({"a": "1"})
        server.passwords[app.bare.name] = "ci:hunter2hunter2"
        server.echoes.add(app.bare.name)
        login = replace(self.LOGIN, origin=server.site)
        folder = worker.top / "job"
        folder.mkdir()

        told = fulfil(SourceWish(str(folder), BOUNDS, worker.wish(server.url(app), login=login)))

        printed = "".join(capfd.readouterr())
        assert "remote: ci:*** may not enter" in printed
        assert "remote: Basic ***" in printed
        assert "refuses the credential ours (403)" in told.error
        for said in (printed, told.error):
            assert "hunter2" not in said
            assert "aHVudGVy" not in said

    def test_another_host_is_shown_nothing(
        self, worker: Worker, server: GitServer, tmp_path: Path, app: Repository
    ) -> None:
        """A submodule may be anywhere; the credential is for one host and port."""
        served = tmp_path / "foreign"
        served.mkdir()
        library = Repository.make(served, "library")
        below = library.commit({"b": "1"})
        with git_server(served) as foreign:
            foreign.passwords["library.git"] = "ci:what-only-they-know"
            app.add_submodule("library", foreign.url(library), below)
            app.commit_index()
            login = replace(self.LOGIN, origin=server.site)

            assert "wants a login" in worker.refused(server.url(app), login=login, submodules=True)
            assert {shown for _, shown in foreign.asked} == {""}


def watch_processes(seen: list[bytes], is_over: threading.Event) -> None:
    """Note arguments and variables of all processes of git, as all on the machine see them."""
    while not is_over.is_set():
        for pid in (path.name for path in Path("/proc").iterdir()):
            if pid.isdecimal():
                try:
                    command = Path("/proc", pid, "cmdline").read_bytes()
                    if b"git" in command:
                        seen.append(command)
                        seen.append(Path("/proc", pid, "environ").read_bytes())
                except OSError:
                    continue


def contains(folder: Path, secret: bytes) -> bool:
    return any(secret in path.read_bytes() for path in folder.rglob("*") if path.is_file())


class TestAddresses:
    def test_a_machine_of_a_private_network_is_not_reached(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        app.commit({"a": "1"})

        reason = worker.refused(server.url(app), opened=())

        assert "127.0.0.1 must not be reached" in reason
        assert "outgoing_networks" in reason
        assert server.asked == []

    def test_http_only_where_it_is_allowed(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        assert "http is not" in worker.refused(server.url(app), allows_http=False)
        assert server.asked == []

    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc",
            "/etc",
            "ext::sh -c id",
            "git://127.0.0.1/app.git",
            "--upload-pack=id",
            "http://user:secret@127.0.0.1/app.git",
            "http://0x7f.1/app.git",
        ],
    )
    def test_what_is_no_address_for_git(self, worker: Worker, url: str) -> None:
        reason = worker.refused(url)

        assert "no address to go to" in reason
        assert "secret" not in reason

    def test_a_name_is_looked_up_once_and_that_very_address_used(
        self,
        worker: Worker,
        server: GitServer,
        app: Repository,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """No resolver knows this name: whoever asked one again would find nothing."""
        commit = app.commit({"a": "1"})
        looked_up: list[str] = []

        def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
            looked_up.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        url = server.url(app).replace("127.0.0.1", "git.invalid")

        assert worker.fetch(url)[1] == commit
        assert looked_up == ["git.invalid"]

    def test_a_git_that_would_look_it_up_again_is_not_used(
        self,
        worker: Worker,
        server: GitServer,
        app: Repository,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app.commit({"a": "1"})
        old = tmp_path / "bin" / "git"
        old.parent.mkdir()
        old.write_text("#!/bin/sh\necho git version 2.34.1\n")
        old.chmod(0o755)
        monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")

        reason = worker.refused(server.url(app))

        assert reason == "git version 2.34.1 is too old on this worker: 2.37 or newer is needed"
        assert server.asked == []

    def test_one_bad_address_spoils_all(
        self, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = [(2, 1, 6, "", (address, 443)) for address in ("192.88.98.1", "169.254.169.254")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

        assert "169.254.169.254" in worker.refused("https://git.example.org/app.git")

    def test_a_redirect_is_refused_and_names_its_target(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        app.commit({"a": "1"})
        server.redirects["moved"] = "http://169.254.169.254"

        reason = worker.refused(f"{server.site}/moved/app.git")

        assert 'redirects to "http://169.254.169.254/moved/app.git' in reason


class TestSubmodules:
    def test_only_when_asked(self, worker: Worker, server: GitServer, app: Repository) -> None:
        library = Repository.make(server.folder, "library")
        below = library.commit({"b": "1"})
        app.add_submodule("lib/one", "../library.git", below)
        app.commit_index()

        plain, _ = worker.fetch(server.url(app))
        whole, _ = worker.fetch(server.url(app), submodules=True)

        assert not list((plain / "lib/one").iterdir())
        assert (whole / "lib/one/b").read_text() == "1"

    def test_below_one_another(self, worker: Worker, server: GitServer, app: Repository) -> None:
        deepest = Repository.make(server.folder, "deepest")
        bottom = deepest.commit({"c": "1"})
        library = Repository.make(server.folder, "library")
        library.add_submodule("deep", "../deepest.git", bottom)
        below = library.commit_index()
        app.add_submodule("library", "../library.git", below)
        app.commit_index()

        folder, _ = worker.fetch(server.url(app), submodules=True)

        assert (folder / "library/deep/c").read_text() == "1"

    def test_one_that_contains_itself_comes_to_an_end(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        first = app.commit({"a": "1"})
        app.add_submodule("me", "./", first)
        again = app.commit_index()
        app.run("update-index", "--cacheinfo", f"160000,{again},me")
        app.commit_index()

        folder, _ = worker.fetch(server.url(app), submodules=True)

        assert (folder / "me/me/a").read_text() == "1"

    def test_in_the_place_of_a_link(
        self, worker: Worker, server: GitServer, app: Repository, tmp_path: Path
    ) -> None:
        """Otherwise it would be written where the link leads."""
        outside = tmp_path / "outside"
        outside.mkdir()
        library = Repository.make(server.folder, "library")
        below = library.commit({"b": "1"})
        (app.tree).mkdir(exist_ok=True)
        (app.tree / "way").symlink_to(outside)
        app.run("add", "way")
        app.commit_index()
        link_tree = app.run("ls-tree", "HEAD", "way").split()[2]
        text = '[submodule "x"]\n\tpath = way/x\n\turl = ../library.git\n'
        (app.tree / ".gitmodules").write_text(text)
        app.run("add", ".gitmodules")
        app.run("rm", "-q", "--cached", "way")
        app.run("update-index", "--add", "--cacheinfo", f"160000,{below},way/x")
        app.run("update-index", "--add", "--cacheinfo", f"120000,{link_tree},WAY")
        app.commit_index()

        folder, _ = worker.fetch(server.url(app), submodules=True)

        assert list(outside.iterdir()) == []
        assert (folder / "way/x/b").exists()


class TestHostileRepositories:
    def test_no_filter_and_no_hook_is_executed(
        self, worker: Worker, server: GitServer, app: Repository, tmp_path: Path
    ) -> None:
        mark = tmp_path / "executed"
        evil = f"#!/bin/sh\ntouch {mark}\n"
        app.commit(
            {
                ".gitattributes": "* filter=evil diff=evil merge=evil\n*.bin filter=lfs\n",
                ".gitconfig": f'[filter "evil"]\n\tsmudge = touch {mark}\n\trequired\n',
                "hooks/post-checkout.sh": evil,
                "a": "text",
            }
        )

        folder, _ = worker.fetch(server.url(app))

        assert (folder / "a").read_text() == "text"
        assert not mark.exists()
        assert not (folder / ".git/hooks").exists()

    def test_lfs_is_said_not_to_be_fetched(
        self, worker: Worker, server: GitServer, app: Repository, capsys: pytest.CaptureFixture[str]
    ) -> None:
        app.commit({".gitattributes": "*.bin filter=lfs\n", "a.bin": "version https://git-lfs\n"})

        worker.fetch(server.url(app))

        assert "files of Git LFS are not fetched" in capsys.readouterr().out

    def test_settings_of_the_machine_do_not_count(
        self,
        worker: Worker,
        server: GitServer,
        app: Repository,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        home, mark = tmp_path / "home", tmp_path / "executed"
        home.mkdir()
        (home / ".gitconfig").write_text(
            f'[core]\n\tfsmonitor = touch {mark}\n[url "http://127.0.0.1:1/"]\n\tinsteadOf = http://\n'
        )
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.setenv("GIT_EXEC_PATH", str(tmp_path))
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        commit = app.commit({"a": "1"})

        assert worker.fetch(server.url(app))[1] == commit
        assert not mark.exists()

    @pytest.mark.parametrize("case", ATTACKS)
    def test_it_is_refused_with_the_reason(
        self, worker: Worker, server: GitServer, case: str
    ) -> None:
        attack = ATTACKS[case]
        repository = attack.make(server.folder, "evil")

        assert attack.reason in worker.refused(server.url(repository), SMALL, **attack.git)

    def test_many_times_the_same_submodule(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        """Each is within the limit, and a small fetch."""
        library = Repository.make(server.folder, "library")
        below = library.commit({"zeros": bytes(600 * 1024)})
        for name in ("one", "two"):
            app.add_submodule(name, "../library.git", below)
        app.commit_index()

        reason = worker.refused(server.url(app), Bounds(1024**2, 100), submodules=True)

        assert "with what was fetched before it is larger than 1 MiB" in reason
        assert size_of(worker.top / "job0") < 1024**2

    def test_names_of_submodules_that_are_no_text(
        self,
        worker: Worker,
        server: GitServer,
        app: Repository,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(git, "_MOST_SUBMODULES", 2)
        first = app.commit({"a": "1"})
        for number in range(3):
            app.add_submodule(f"\x1b[31m{number}", "../app.git", first)
        app.commit_index()
        folder = worker.top / "job"
        folder.mkdir()

        wish = worker.wish(server.url(app), submodules=True)
        told = fulfil(SourceWish(str(folder), Bounds(16 * 1024**2, 100_000), wish))

        assert 'more than 2 submodules, at "\\x1b[31m2"' in told.error

    def test_a_mirror_that_became_too_large_begins_anew(
        self,
        worker: Worker,
        server: GitServer,
        app: Repository,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        app.commit({"a": "1"})
        worker.fetch(server.url(app))
        (worker.mirror / "of-long-ago.git").write_bytes(bytes(40 * 1024**2))
        monkeypatch.setattr(calls, "_LOOK_EVERY", 0.001)
        commit = app.commit({"a": "2"})

        folder, found = worker.fetch(server.url(app))

        assert (found, (folder / "a").read_text()) == (commit, "2")

    def test_larger_than_it_may_be_packed(
        self, worker: Worker, server: GitServer, app: Repository
    ) -> None:
        app.commit({"noise": os.urandom(4 * 1024**2)})

        reason = worker.refused(server.url(app), Bounds(1024**2, 100))

        assert "is larger than 1 MiB" in reason
        assert size_of(worker.mirror) < 3 * 1024**2

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"ref": "nowhere"}, 'has no branch, tag or commit "nowhere"'),
            ({"ref": "0" * 40}, "has no branch, tag or commit"),
            ({"commit": "1" * 40}, "trigger the job anew"),
        ],
    )
    def test_what_is_not_there(
        self,
        worker: Worker,
        server: GitServer,
        app: Repository,
        fields: dict[str, Any],
        reason: str,
    ) -> None:
        app.commit({"a": "1"})

        assert reason in worker.refused(server.url(app), **fields)

    def test_an_empty_repository(self, worker: Worker, server: GitServer, app: Repository) -> None:
        assert "has no HEAD: it is empty" in worker.refused(server.url(app))

    def test_no_repository_at_all(self, worker: Worker, server: GitServer) -> None:
        assert "is not there (404)" in worker.refused(f"{server.site}/nothing.git")


class TestSsh:
    def test_with_strict_keys_of_hosts(self, worker: Worker, tmp_path: Path) -> None:
        served = tmp_path / "served"
        served.mkdir()
        app = Repository.make(served, "app")
        commit = app.commit({"a": "1"})
        with ssh_server(tmp_path / "ssh") as server:
            url, known = server.url(app), server.known_hosts.read_text()
            origin = f"ssh://127.0.0.1:{server.port}"
            login = GitLogin(key=server.key.read_text(), origin=origin, name="deploy")
            stranger = replace(login, key=server.other_key.read_text())
            changed = known.replace(known.split()[-1], stranger_key(server.other_key))

            folder, found = worker.fetch(url, login=login, known_hosts=known)

            assert found == commit
            assert not contains(folder, b"PRIVATE KEY")
            assert "knows no keys of hosts" in worker.refused(url, login=login)
            assert "needs a key" in worker.refused(url, known_hosts=known)
            reason = worker.refused(url, login=login, known_hosts=changed)
            assert "not in the worker's git_known_hosts" in reason
            reason = worker.refused(url, login=stranger, known_hosts=known)
            assert "refuses the key of the credential deploy" in reason


def stranger_key(path: Path) -> str:
    return path.with_suffix(".pub").read_text().split()[1]
