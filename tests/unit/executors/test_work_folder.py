from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rota.executors.work_folder import FoundEmpty, RoomFolder, WorkFolder, WorkFolders
from rota.walls.rooms import Rooms
from testkit.clock import FakeClock, FakeTicker

pytestmark = pytest.mark.anyio

LATER = timedelta(seconds=1)


class Scene:
    """A pool of folders, with time that a test moves."""

    def __init__(self, root: Path) -> None:
        self._ticker = FakeTicker()
        self.folders = WorkFolders(root, FakeClock(self._ticker))

    def use(self, act: Callable[[WorkFolder], object] = lambda _: None) -> Path:
        """Let an attempt act in a folder, and return which one it was."""
        folder = self.folders.take()
        act(folder)
        self.folders.give_back(folder)
        return folder.path

    def later(self) -> None:
        self._ticker.advance(LATER)


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "work")


def leave_a_file(folder: WorkFolder) -> None:
    (folder.path / ".hidden").touch()


def leave_a_file_and_set_its_time_back(folder: WorkFolder) -> None:
    status = folder.path.stat()
    leave_a_file(folder)
    os.utime(folder.path, ns=(status.st_atime_ns, status.st_mtime_ns))


def open_to_all(folder: WorkFolder) -> None:
    folder.path.chmod(0o777)


def replace_by_a_link(folder: WorkFolder) -> None:
    folder.path.rmdir()
    folder.path.symlink_to("/")


def write_outputs(folder: WorkFolder) -> None:
    folder.output.write_text("{}")


def write_progress(folder: WorkFolder) -> None:
    folder.progress.write_text("1/2")


def write_a_script(folder: WorkFolder) -> None:
    folder.write_script(0, ".sh", "true")


TRACES = [
    leave_a_file,
    leave_a_file_and_set_its_time_back,
    open_to_all,
    replace_by_a_link,
    write_outputs,
    write_progress,
    write_a_script,
]


async def test_folder_that_nobody_touched_is_used_again(scene: Scene) -> None:
    first = scene.use()
    scene.later()

    assert [scene.use(), scene.use()] == [first, first]


async def test_folder_that_is_empty_again_is_used_again(scene: Scene) -> None:
    def come_and_go(folder: WorkFolder) -> None:
        leave_a_file(folder)
        (folder.path / ".hidden").unlink()

    first = scene.use(come_and_go)
    scene.later()

    assert [scene.use(come_and_go), scene.use()] == [first, first]


@pytest.mark.parametrize("leave", TRACES)
async def test_folder_with_traces_of_an_attempt_is_not_given_to_the_next(
    scene: Scene, leave: Callable[[WorkFolder], object]
) -> None:
    first = scene.use()
    scene.later()
    assert scene.use() == first

    scene.use(leave)

    assert scene.use() != first
    await asyncio.get_running_loop().shutdown_default_executor()


@pytest.mark.parametrize(
    ("seen_ns", "changed_ns", "taken_at", "proves"),
    [
        (5_000_000_001, 5_000_000_001, 9.0, True),
        (5_000_000_001, 5_000_000_002, 9.0, False),
        (5_000_000_001, 5_000_000_001, 7.05, False),  # the file system's clock may not have moved
        (5_000_000_000, 5_000_000_000, 9.0, False),  # it seems to count whole seconds
    ],
)
def test_same_change_time_proves_nothing_unless_another_would_differ(
    seen_ns: int, changed_ns: int, taken_at: float, proves: bool
) -> None:
    assert FoundEmpty(seen_ns, at=7.0).still_holds(changed_ns, taken_at) is proves


async def test_folder_is_private(scene: Scene) -> None:
    assert scene.use().stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
class TestRooms:
    """Folders of jobs that are other users than the worker, which is root and reads them."""

    def folder(self, tmp_path: Path) -> RoomFolder:
        room = Rooms(tmp_path / "rooms", range(70_000, 70_001), may_mount=False).take()
        room.give_to(70_000, 70_000)
        return RoomFolder(room)

    def test_what_its_user_wrote_is_read(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        folder.output.write_text("[1]")
        os.chown(folder.output, 70_000, 70_000)

        assert folder.read_outputs() == ([1], "")

    def test_a_second_name_of_the_workers_own_file_is_not(self, tmp_path: Path) -> None:
        """No link that could be refused: whose file it is tells it."""
        folder = self.folder(tmp_path)
        (tmp_path / "secret").write_text("[1]")
        folder.output.hardlink_to(tmp_path / "secret")
        folder.progress.hardlink_to(tmp_path / "secret")

        outputs, complaint = folder.read_outputs()
        assert outputs is None
        assert "the file of another user" in complaint
        assert folder.read_progress() == ""

    def test_once_a_step_was_the_worker_its_files_are_the_attempts(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        folder.output.write_text("[1]")

        folder.room.note_worker()

        assert folder.read_outputs() == ([1], "")
