"""A guardian for each test, once in a namespace and once without."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.guardian import NamespaceWish, guardian_command
from tests.system.guardian.guarded import Guarded

Guard = Callable[..., Guarded]


@functools.cache
def is_permitted(wish: NamespaceWish) -> bool:
    return subprocess.run(guardian_command(["true"], namespace=wish), check=False).returncode == 0


@pytest.fixture(params=["require", "off"])
def wish(request: pytest.FixtureRequest) -> NamespaceWish:
    wish: NamespaceWish = request.param
    if not is_permitted(wish):
        pytest.skip("this machine permits no pid namespace")
    return wish


@pytest.fixture
def guard(wish: NamespaceWish, tmp_path: Path) -> Iterator[Guard]:
    opened: list[Guarded] = []

    def open_one(**options: Any) -> Guarded:
        opened.append(Guarded(tmp_path, wish, **options))
        return opened[-1]

    yield open_one
    for guarded in opened:
        guarded.close()


@pytest.fixture
def guarded(guard: Guard) -> Guarded:
    guarded = guard()
    guarded.lease()
    return guarded
