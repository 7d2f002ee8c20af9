"""What every blob store promises."""

from __future__ import annotations

import asyncio

import pytest

from rota.domain.errors import Invalid, NotFound
from rota.ports.blobs import Blobs

pytestmark = pytest.mark.anyio


async def keys(blobs: Blobs, prefix: str) -> list[str]:
    return [key async for key in blobs.list(prefix)]


@pytest.mark.parametrize("data", [b"", b"text", bytes(range(256)) * 4096])
async def test_what_was_put_comes_back(blobs: Blobs, data: bytes) -> None:
    await blobs.put("runs/r_1/1-w_1/0", data)

    assert await blobs.get("runs/r_1/1-w_1/0") == data


async def test_the_first_put_of_a_key_wins(blobs: Blobs) -> None:
    await blobs.put("a/b", b"first")
    await blobs.put("a/b", b"second")

    assert await blobs.get("a/b") == b"first"


async def test_many_puts_at_once_are_all_kept(blobs: Blobs) -> None:
    await asyncio.gather(*(blobs.put(f"runs/r_{n % 5}/{n}", b"%d" % n) for n in range(50)))

    assert len(await keys(blobs, "runs")) == 50
    assert await blobs.get("runs/r_2/42") == b"42"


@pytest.mark.parametrize("key", ["a/missing", "missing", "a/b/c", "a"])
async def test_a_missing_key_is_not_found(blobs: Blobs, key: str) -> None:
    await blobs.put("a/b", b"text")

    with pytest.raises(NotFound):
        await blobs.get(key)


async def test_keys_are_listed_in_order(blobs: Blobs) -> None:
    for key in ("p/b", "p/a/2", "p/a/10", "p/a-b", "p/a.b", "q/x"):
        await blobs.put(key, b"")

    assert await keys(blobs, "p") == ["p/a-b", "p/a.b", "p/a/10", "p/a/2", "p/b"]


async def test_a_prefix_ends_where_a_segment_ends(blobs: Blobs) -> None:
    for key in ("runs/r_1/0", "runs/r_10/0"):
        await blobs.put(key, b"")

    assert await keys(blobs, "runs/r_1") == ["runs/r_1/0"]


async def test_nothing_below_a_prefix_is_an_empty_list(blobs: Blobs) -> None:
    assert await keys(blobs, "nothing/here") == []


async def test_a_prefix_is_deleted_and_nothing_beside_it(blobs: Blobs) -> None:
    for key in ("runs/r_1/0", "runs/r_1/1/2", "runs/r_10/0"):
        await blobs.put(key, b"")

    assert await blobs.delete("runs/r_1") == 2

    assert await keys(blobs, "runs") == ["runs/r_10/0"]


async def test_one_key_can_be_deleted_and_put_again(blobs: Blobs) -> None:
    await blobs.put("a/b", b"first")

    assert await blobs.delete("a/b") == 1
    await blobs.put("a/b", b"second")

    assert await blobs.get("a/b") == b"second"


@pytest.mark.parametrize("prefix", ["missing", "a/b/c"])
async def test_deleting_what_is_missing_is_no_error(blobs: Blobs, prefix: str) -> None:
    await blobs.put("a/b", b"text")

    assert await blobs.delete(prefix) == 0
    assert await blobs.get("a/b") == b"text"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "..",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        ".incoming/0",
        "a b",
        "a\\b",
        "a\0b",
        "a\nb",
        "a\n",
        "é",
        "a*",
        "a" * 300,
        "a/" * 600 + "a",
    ],
)
async def test_odd_keys_are_refused(blobs: Blobs, key: str) -> None:
    with pytest.raises(Invalid):
        await blobs.put(key, b"text")
    with pytest.raises(Invalid):
        await blobs.get(key)
    with pytest.raises(Invalid):
        await blobs.delete(key)
    with pytest.raises(Invalid):
        await keys(blobs, key)
