from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rota.walls import rooms as rooms_module
from rota.walls.rooms import Room, Rooms, Users, folder_below, remove_tree

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
DEEP = 3_000  # folders within one another: past the longest path, and past any stack


def rooms(tmp_path: Path, uids: range = range(70_000, 70_002)) -> Rooms:
    return Rooms(tmp_path / "rooms", uids, may_mount=False, run=tmp_path / "run")


class TestRemoving:
    def test_everything_goes(self, tmp_path: Path) -> None:
        top = tmp_path / "top"
        (top / "a/b").mkdir(parents=True)
        (top / "a/b/file").write_text("x")
        (top / "link").symlink_to("/")
        os.mkfifo(top / "a/pipe")

        remove_tree(top)

        assert not os.path.lexists(top)

    def test_what_a_link_leads_to_stays(self, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        kept.mkdir()
        (kept / "file").touch()
        (tmp_path / "top").mkdir()
        (tmp_path / "top/link").symlink_to(kept)
        (tmp_path / "other").symlink_to(kept)

        remove_tree(tmp_path / "top")
        remove_tree(tmp_path / "other")

        assert [each.name for each in tmp_path.iterdir()] == ["kept"]
        assert (kept / "file").exists()

    def test_folders_of_any_depth_go(self, tmp_path: Path) -> None:
        top = tmp_path / "top"
        top.mkdir()
        here = os.open(top, os.O_RDONLY)
        for _ in range(DEEP):
            os.mkdir("d" * 200, dir_fd=here)
            inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(here)

        remove_tree(top)

        assert not top.exists()

    def test_names_that_it_uses_itself_are_no_hindrance(self, tmp_path: Path) -> None:
        top = tmp_path / "top"
        for number in range(4):
            (top / f".rota-{number}/x/y").mkdir(parents=True)
            (top / f".rota-{number}/x/.rota-{number}").touch()

        remove_tree(top)

        assert not top.exists()

    def test_rights_that_were_taken_away_are_no_hindrance(self, tmp_path: Path) -> None:
        """As root there are none; a worker of another user is in the tests of the system."""
        top = tmp_path / "top"
        (top / "a/b/c").mkdir(parents=True)
        (top / "a/b").chmod(0)
        (top / "a").chmod(0)

        remove_tree(top)

        assert not top.exists()

    def test_link_that_takes_the_place_of_a_folder_leads_nowhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its user may be alive, with another run or of his own."""
        kept = tmp_path / "kept"
        kept.write_text("for all to read")
        kept.chmod(0o644)
        folder = tmp_path / "top/job"
        (folder / "inner").mkdir(parents=True)

        def swapped(entry: os.DirEntry[str]) -> bool:
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and entry.name == "inner":
                (folder / "inner").rmdir()
                (folder / "inner").symlink_to(kept)
            return is_folder

        monkeypatch.setattr(rooms_module, "_is_folder", swapped)

        remove_tree(tmp_path / "top")

        assert stat.S_IMODE(kept.stat().st_mode) == 0o644
        remove_tree(tmp_path / "top")  # what could not be removed stays for the next time
        assert not (tmp_path / "top").exists()

    def test_nothing_to_remove_is_no_error(self, tmp_path: Path) -> None:
        remove_tree(tmp_path / "none")


class TestRooms:
    def test_a_room_has_a_folder_for_everything_that_a_job_writes(self, tmp_path: Path) -> None:
        room = rooms(tmp_path).take()

        parts = (room.job, room.tmp, room.home, room.told)
        assert {stat.S_IMODE(part.stat().st_mode) for part in parts} == {0o700}
        assert stat.S_IMODE(room.top.stat().st_mode) == 0o711

    def test_rooms_of_an_earlier_life_are_removed(self, tmp_path: Path) -> None:
        room = rooms(tmp_path).take()
        (room.job / "left").touch()

        rooms(tmp_path)

        assert list((tmp_path / "rooms").iterdir()) == []

    def test_a_room_is_never_used_twice(self, tmp_path: Path) -> None:
        all_rooms = rooms(tmp_path)
        first = all_rooms.take()
        all_rooms.remove(first)

        assert all_rooms.take().top != first.top
        assert not first.top.exists()

    @AS_ROOT
    def test_its_folders_belong_to_its_user_and_what_holds_them_to_the_worker(
        self, tmp_path: Path
    ) -> None:
        room = rooms(tmp_path).take()

        room.give_to(70_000, 70_001)

        assert (room.job.stat().st_uid, room.job.stat().st_gid) == (70_000, 70_001)
        assert room.top.stat().st_uid == os.geteuid()
        assert room.users == {70_000}

    def test_a_room_has_one_user_of_its_own_until_it_is_removed(self, tmp_path: Path) -> None:
        all_rooms = rooms(tmp_path)
        one, other = all_rooms.take(), all_rooms.take()

        uids = {all_rooms.lend_user(one), all_rooms.lend_user(one), all_rooms.lend_user(other)}
        assert uids == {70_000, 70_001}
        all_rooms.remove(one)

        assert all_rooms.lend_user(all_rooms.take()) == 70_000


class TestUsers:
    def test_two_workers_never_lend_the_same_one(self, tmp_path: Path) -> None:
        one = Users(range(5, 8), tmp_path / "run/users")
        other = Users(range(5, 8), tmp_path / "run/users")

        assert {one.take(), other.take(), one.take()} == {5, 6, 7}
        with pytest.raises(OSError, match="sandbox_uids"):
            other.take()

    def test_a_worker_that_is_gone_holds_none(self, tmp_path: Path) -> None:
        gone = Users(range(5, 6), tmp_path / "run/users")
        gone.take()
        for descriptor in gone._locks.values():  # as the kernel does
            os.close(descriptor)

        assert Users(range(5, 6), tmp_path / "run/users").take() == 5

    @AS_ROOT
    def test_folder_that_somebody_else_prepared_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        os.chown(tmp_path / "run", 65534, 65534)

        with pytest.raises(OSError, match="somebody else"):
            Users(range(5, 6), tmp_path / "run/users").take()


@AS_ROOT
class TestReach:
    def hidden(self, tmp_path: Path) -> Path:
        """A data folder as it is: for its owner alone."""
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        return home

    def test_rooms_that_nobody_could_reach_are_told(self, tmp_path: Path) -> None:
        home = self.hidden(tmp_path)

        closed = Rooms(home / "rooms", range(1), may_mount=False, run=tmp_path / "run")

        assert "other users cannot reach" in closed.trouble
        assert "ROTA_HOME" in closed.trouble

    def test_rooms_below_open_folders_stay_where_they_are(self) -> None:
        import tempfile

        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            Path(folder).chmod(0o755)

            opened = Rooms(Path(folder, "rooms"), range(1), may_mount=False, run=Path(folder))

            assert opened.trouble == ""
            assert opened.take().top.parent == Path(folder, "rooms")


def test_paths_beside_its_folders_are_new_each_time(tmp_path: Path) -> None:
    room = Room(tmp_path)

    assert room.new_path(".sh") != room.new_path(".sh")


class TestFolderOfAStep:
    def test_it_is_told_without_links(self, tmp_path: Path) -> None:
        (tmp_path / "top/releases/42/app").mkdir(parents=True)
        (tmp_path / "top/current").symlink_to("releases/42")
        (tmp_path / "alias").symlink_to("top")

        assert folder_below(str(tmp_path / "top"), "releases/42") == "releases/42"
        assert folder_below(str(tmp_path / "alias"), "current/app") == "releases/42/app"

    @pytest.mark.parametrize("link", ["/", "..", "../other", "releases/../../other", "loop"])
    def test_links_do_not_lead_out(self, tmp_path: Path, link: str) -> None:
        top = tmp_path / "top"
        (top / "releases").mkdir(parents=True)
        (tmp_path / "other").mkdir()
        (tmp_path / "top-secret").mkdir()
        (top / "loop").symlink_to("loop")
        (top / "out").symlink_to(link)

        with pytest.raises(OSError, match=r"leads out of its work folder|there is no folder out"):
            folder_below(str(top), "out")

    def test_a_folder_that_only_begins_alike_is_outside(self, tmp_path: Path) -> None:
        (tmp_path / "top").mkdir()
        (tmp_path / "top-secret").mkdir()
        (tmp_path / "top/out").symlink_to(tmp_path / "top-secret")

        with pytest.raises(OSError, match="the folder out leads out"):
            folder_below(str(tmp_path / "top"), "out")

    def test_what_is_not_there_or_no_folder_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()

        with pytest.raises(OSError, match="there is no folder src/app in its work folder"):
            folder_below(str(tmp_path), "src/app")
        with pytest.raises(OSError, match="file in its work folder is not a folder"):
            folder_below(str(tmp_path), "file")
