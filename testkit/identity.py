"""Projects, principals and roles for tests, written as rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import resources
from typing import cast

from rota.domain.access import INSTALLATION, Role
from rota.ports.store import Store
from rota.store.script import Many, Script, Statement, load, shared_statements, statements_of
from rota.store.store import SqlStore
from rota.store.tx import Tx

# Drivers prepare all statements when the first store is opened: those of tests are known by then.
cast("dict[str, Statement]", shared_statements()).update(load(resources.files("testkit")))
statements_of.cache_clear()  # a test module that was collected before may have asked for them

_FOR_EVER = 200 * 366 * 24 * 3_600_000_000  # some day in the 22nd century, in microseconds


async def make_project(store: Store, *names: str) -> None:
    """Make projects of these names."""
    await _write(store, "testkit_make_project", lambda now: [(name, now) for name in names])


async def end_project(store: Store, name: str) -> None:
    """Delete a project, as if nothing of it were left."""
    await _write(store, "testkit_end_project", lambda now: [(now, name)], tells=True)


async def make_principal(
    store: Store, handle: str, kind: str = "service", *, issuer: str = "", subject: str = ""
) -> None:
    """Make somebody who has no role anywhere."""
    values = (handle, kind, issuer, subject)
    await _write(store, "testkit_make_principal", lambda now: [(*values, now)])


async def bind(store: Store, handle: str, role: Role, scope: str = INSTALLATION) -> None:
    """Give somebody a role in a project, or in all."""
    values = (handle, scope, role, "test")
    await _write(store, "put_binding", lambda now: [(*values, now)], tells=True)


async def unbind(store: Store, handle: str, scope: str = INSTALLATION) -> None:
    """Take a role from somebody."""
    await _write(store, "testkit_unbind", lambda _: [(handle, scope)], tells=True)


async def disable(store: Store, handle: str) -> None:
    """Let somebody do nothing any more."""
    await _write(store, "testkit_disable", lambda now: [(now, handle)], tells=True)


async def tell_groups(store: Store, token: str, issuer: str, groups: Sequence[str]) -> None:
    """Say of the person of a session what their provider said of them."""
    values = (token, issuer, "somebody", json.dumps(groups))
    await _write(store, "testkit_log_in", lambda now: [(*values, now, _FOR_EVER)])


async def _write(
    store: Store,
    statement: str,
    rows: Callable[[int], Sequence[tuple[object, ...]]],
    *,
    tells: bool = False,
) -> None:
    def script(tx: Tx) -> Script[None]:
        yield Many(statement, rows(tx.now))
        tx.effects.callers = tells

    assert isinstance(store, SqlStore)
    await store.write(script)
