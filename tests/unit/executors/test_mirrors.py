"""Mirrors of repositories on a worker: one user at a time, and not too many."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.executors import source
from rota.executors.source import Mirrors
from rota.sources.calls import size_of
from rota.walls.rooms import remove_tree

pytestmark = pytest.mark.anyio


def mirrors(folder: Path, most: int = 1_000) -> Mirrors:
    folder.mkdir(exist_ok=True)
    return Mirrors(folder, folder, folder, most, SystemClock())


async def use(them: Mirrors, url: str, size: int, at: int) -> Path:
    async with them.taken(("project", url, "")) as folder:
        (folder / "pack").write_bytes(bytes(size))
    os.utime(folder, (at, at))
    return folder


async def test_each_project_url_and_credential_has_its_own(tmp_path: Path) -> None:
    them, found = mirrors(tmp_path / "mirrors"), set()
    for key in (("a", "u", ""), ("b", "u", ""), ("a", "v", ""), ("a", "u", "c"), ("a", "u", "")):
        async with them.taken(key) as folder:
            found.add(folder)
            assert folder.stat().st_mode & 0o777 == 0o700

    assert len(found) == 4


async def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    them = mirrors(tmp_path / "mirrors")
    old = await use(them, "old", 400, 1_000)
    new = await use(them, "new", 400, 2_000)
    newest = await use(them, "newest", 400, 3_000)

    assert [path.exists() for path in (old, new, newest)] == [False, True, True]


async def test_others_may_remove_some_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    them = mirrors(tmp_path / "mirrors")
    old = await use(them, "old", 400, 1_000)

    def sized(folder: Path) -> int:
        if old.exists():
            remove_tree(old)
        return size_of(folder)

    monkeypatch.setattr(source, "size_of", sized)
    new = await use(them, "new", 400, 2_000)

    assert new.exists()


async def test_one_that_is_in_use_stays(tmp_path: Path) -> None:
    them = mirrors(tmp_path / "mirrors", 100)
    async with them.taken(("project", "first", "")) as first:
        (first / "pack").write_bytes(bytes(90))
        os.utime(first, (1_000, 1_000))
        async with them.taken(("project", "second", "")) as second:
            (second / "pack").write_bytes(bytes(90))
        assert first.exists()
        assert second.exists()  # just used: the next attempt at the run may want it


async def test_a_second_user_waits_for_the_first(tmp_path: Path) -> None:
    """Also one of another process: an earlier life of the worker may still be ending."""
    one, other = mirrors(tmp_path / "mirrors"), mirrors(tmp_path / "mirrors")
    order: list[str] = []

    async def second() -> None:
        async with other.taken(("project", "url", "")):
            order.append("second")

    async with one.taken(("project", "url", "")):
        waiting = asyncio.create_task(second())
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
        order.append("first")
    await waiting

    assert order == ["first", "second"]


async def test_locks_of_mirrors_that_are_gone_are_removed_at_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "mirrors"
    await use(mirrors(folder), "url", 10, 1_000)
    (folder / "gone.lock").touch()

    mirrors(folder)

    assert not (folder / "gone.lock").exists()
    assert len(list(folder.glob("*.lock"))) == 1
