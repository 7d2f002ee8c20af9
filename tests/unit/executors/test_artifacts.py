"""What a step leaves behind: found, opened, and nothing that leads its worker astray."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.domain.errors import Invalid
from rota.domain.run import AttemptResult
from rota.domain.spec import Artifacts, JobSpec, Step
from rota.executors import artifacts
from rota.executors.artifacts import Findings, Top, find, open_artifact
from rota.executors.shell import ShellExecutor
from rota.ports.executor import JobBatch
from rota.ports.work import Fence, Outcome, Work, WorkBatch
from tests.unit.executors.test_shell import BAD, FENCE, GOOD, LONG, Reports, Spawner


def found_in(top: Path, *patterns: str, limit: int = 1_000_000) -> Findings:
    return find(Top(top), Artifacts(patterns, limit=limit))


def make(top: Path, *paths: str) -> None:
    for path in paths:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(path)


class TestFinding:
    @pytest.mark.parametrize(
        ("pattern", "paths"),
        [
            ("report.json", ["report.json"]),
            ("./report.json", ["report.json"]),
            ("*.txt", ["a.txt"]),
            ("**/*.txt", ["a.txt", "out/b.txt", "out/deep/c.txt"]),
            ("out", ["out/b.txt", "out/deep/c.txt"]),
            ("out/", ["out/b.txt", "out/deep/c.txt"]),
            ("out/*", ["out/b.txt", "out/deep/c.txt"]),
            ("out/*.txt", ["out/b.txt"]),
            ("out/**", ["out/b.txt", "out/deep/c.txt"]),
            ("?.txt", ["a.txt"]),
            ("[a].txt", ["[a].txt"]),
        ],
    )
    def test_patterns(self, tmp_path: Path, pattern: str, paths: list[str]) -> None:
        make(tmp_path, "report.json", "a.txt", "out/b.txt", "out/deep/c.txt", "[a].txt")
        if pattern in ("*.txt", "**/*.txt"):
            paths = ["[a].txt", *paths]

        found = found_in(tmp_path, pattern)

        assert (sorted(found.paths), found.remarks()) == (sorted(paths), [])

    def test_a_pattern_that_nothing_matches_is_told(self, tmp_path: Path) -> None:
        assert found_in(tmp_path, "a", "b/**").remarks() == [
            'artifacts: nothing matches "a"',
            'artifacts: nothing matches "b/**"',
        ]

    def test_only_plain_files_are_kept_and_the_rest_is_told(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        make(outside, "secret")
        top = tmp_path / "job"
        make(top, "a")
        (top / "link").symlink_to(outside / "secret")
        (top / "folder").symlink_to(outside)
        os.mkfifo(top / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(top / "socket"))

            found = found_in(top, "**")

        assert found.paths == ["a"]
        assert found.remarks() == [
            'artifacts: "folder" was not kept: it is a link',
            'artifacts: "link" was not kept: it is a link',
            'artifacts: "pipe" was not kept: it is a pipe',
            'artifacts: "socket" was not kept: it is a socket',
        ]

    def test_names_that_are_no_text_are_told_as_they_can_be_printed(self, tmp_path: Path) -> None:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("x")
        (tmp_path / "a\x1b\nb").write_text("x")

        found = found_in(tmp_path, "*")

        assert found.paths == []
        assert sorted(found.remarks()) == [
            'artifacts: "\\udcff" was not kept: its name is not UTF-8',
            'artifacts: "a\\x1b\\nb" was not kept: its name has characters that cannot be printed',
        ]

    def test_what_is_beyond_the_limit_is_told(self, tmp_path: Path) -> None:
        for name, size in (("a", 60), ("b", 41), ("c", 40)):
            (tmp_path / name).write_bytes(bytes(size))

        found = found_in(tmp_path, "*", limit=100)

        assert found.paths == ["a", "c"]
        assert found.remarks() == [
            'artifacts: "b" was not kept: its 41 bytes are beyond the limit of 100B'
        ]

    def test_of_very_many_some_are_kept_and_a_few_are_told(self, tmp_path: Path) -> None:
        for number in range(1_200):
            (tmp_path / f"{number:05}").touch()

        found = found_in(tmp_path, "*")

        assert len(found.paths) == 1_000
        assert len(found.remarks()) == 21
        assert found.remarks()[-1] == "artifacts: 180 more were not kept"

    def test_folders_that_no_pattern_reaches_are_not_read(self, tmp_path: Path) -> None:
        make(tmp_path, "out/a")
        (tmp_path / "other").mkdir(mode=0)

        assert found_in(tmp_path, "out/**").remarks() == []

    def test_a_deep_hole_has_a_bottom(self, tmp_path: Path) -> None:
        path = tmp_path
        for _ in range(150):
            path /= "d"
            path.mkdir()

        [remark] = [r for r in found_in(tmp_path, "**").remarks() if "deep" in r]

        assert remark.endswith("it lies too deep")


class TestOpening:
    def read(self, top: Path, path: str, writers: set[int] | None = None) -> bytes:
        descriptor = open_artifact(Top(top), path, writers)
        try:
            return os.read(descriptor, 100)
        finally:
            os.close(descriptor)

    def test_a_file_is_opened(self, tmp_path: Path) -> None:
        make(tmp_path, "out/a")

        assert self.read(tmp_path, "out/a", {os.geteuid()}) == b"out/a"

    def test_what_became_a_link_since_it_was_found_is_not_followed(self, tmp_path: Path) -> None:
        make(tmp_path, "outside/secret", "job/out/a")
        top = tmp_path / "job"
        (top / "out" / "a").unlink()
        (top / "out" / "a").symlink_to(tmp_path / "outside" / "secret")
        (top / "folder").symlink_to(tmp_path / "outside")

        for path in ("out/a", "folder/secret"):
            with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
                self.read(top, path)

    def test_a_link_on_the_way_to_a_shared_folder_is_not_followed(self, tmp_path: Path) -> None:
        """Behind its wall a job may have made it; the worker sees more than the job does."""
        make(tmp_path, "private/inner/secret")
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared" / "link").symlink_to(tmp_path / "private")
        top = Top(tmp_path / "shared" / "link" / "inner", is_shared=True)

        found = find(top, Artifacts(("secret",), limit=100))

        assert found.paths == []
        assert "cannot be read" in found.told[0]
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            open_artifact(top, "secret", None)

    def test_a_shared_folder_without_links_is_read(self, tmp_path: Path) -> None:
        make(tmp_path, "shared/out/a")
        top = Top(tmp_path.resolve() / "shared", is_shared=True)

        assert find(top, Artifacts(("out",), limit=100)).paths == ["out/a"]
        os.close(open_artifact(top, "out/a", None))

    def test_what_became_a_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "a")

        with pytest.raises(OSError, match="no plain file"):
            self.read(tmp_path, "a")

    def test_the_file_of_another_user_is_not_opened(self, tmp_path: Path) -> None:
        make(tmp_path, "a")

        with pytest.raises(OSError, match="another user"):
            self.read(tmp_path, "a", {os.geteuid() + 1})


class Kept:
    """Implements `rota.ports.executor.Files`: remembers what it was given."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, str], bytes] = {}
        self.blocks = asyncio.Event()
        self.blocks.set()
        self.began = asyncio.Event()

    async def fetch(self, fence: Fence, digest: str, into: int, most: int) -> int:
        raise AssertionError("nothing is fetched here")

    async def keep(
        self, fence: Fence, step: int, path: str, source: int, size: int | None = None
    ) -> str:
        self.began.set()
        await self.blocks.wait()
        if path == "refused":
            raise Invalid("the server does not take it")
        self.files[step, path] = os.read(source, 100 if size is None else size)
        return "sha256:0"


class KeepingScene:
    def __init__(self, folder: Path) -> None:
        self.reports, self.spawner, self.kept = Reports(), Spawner(), Kept()
        self.folder = folder
        self.executor = ShellExecutor(
            self.reports, self.spawner, SystemClock(), folder / "work", files=self.kept
        )

    def start(self, *steps: Step, **fields: timedelta) -> None:
        spec = JobSpec("tidy", steps=steps, path=str(self.folder), grace=fields.get("grace", LONG))
        batch = WorkBatch.of([Work(FENCE.run, FENCE.number, "j_1", 1, 0)])
        self.executor.start([JobBatch(spec, batch, [FENCE])])

    async def outcome(self) -> Outcome:
        return await self.reports.outcome()

    @property
    def told(self) -> str:
        return "".join(data.decode() for _, _, data in self.reports.sink.fed)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[KeepingScene]:
    scene = KeepingScene(tmp_path)
    yield scene
    scene.spawner.kill_all()
    scene.kept.blocks.set()
    await scene.executor.close()


@pytest.mark.anyio
class TestSteps:
    async def test_each_step_s_are_kept_also_of_one_that_failed(self, scene: KeepingScene) -> None:
        declared = Artifacts(("*.log",))
        scene.start(Step("a", "x", artifacts=declared), Step("b", "y"), Step("c", "z"))
        make(scene.folder, "a.log")

        (await scene.spawner.next()).end(BAD)
        outcome = await scene.outcome()

        assert outcome.result == AttemptResult.FAILED
        assert scene.kept.files == {(0, "a.log"): b"a.log"}

    async def test_what_the_server_refuses_is_told_and_fails_nothing(
        self, scene: KeepingScene
    ) -> None:
        scene.start(Step("a", "x", artifacts=Artifacts(("*",))))
        make(scene.folder, "good", "refused")

        (await scene.spawner.next()).end(GOOD)
        outcome = await scene.outcome()

        assert outcome.result == AttemptResult.COMPLETED
        assert (0, "good") in scene.kept.files
        assert '"refused" was not kept: the server does not take it' in scene.told

    async def test_no_more_of_a_file_is_kept_than_was_found(
        self, scene: KeepingScene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a step leaves running in a container may let it grow meanwhile."""

        def opened(top: Top, path: str, writers: Collection[int] | None) -> int:
            with (scene.folder / path).open("a") as file:
                file.write(" and more")
            return open_artifact(top, path, writers)

        monkeypatch.setattr(artifacts, "open_artifact", opened)
        scene.start(Step("a", "x", artifacts=Artifacts(("good",))))
        make(scene.folder, "good")

        (await scene.spawner.next()).end(GOOD)
        await scene.outcome()

        assert scene.kept.files == {(0, "good"): b"good"}

    async def test_a_cancel_does_not_wait_for_them_beyond_the_grace(
        self, scene: KeepingScene
    ) -> None:
        step = Step("a", "x", artifacts=Artifacts(("good",)))
        scene.start(step, Step("b", "y"), grace=timedelta(milliseconds=10))
        make(scene.folder, "good")
        scene.kept.blocks.clear()
        (await scene.spawner.next()).end(GOOD)
        await scene.kept.began.wait()

        scene.executor.cancel([FENCE])

        assert (await scene.outcome()).result == AttemptResult.CANCELLED
        assert scene.kept.files == {}
        assert "there was no time to keep them all" in scene.told
