"""A database that cannot be used is named, and whoever may use it is not."""

from __future__ import annotations

import pytest

from rota.domain.errors import Unavailable
from rota.store.postgres.connections import place_of
from rota.store.postgres.opening import open_postgres
from testkit.servers.ports import free_ports


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgresql://rota:secret@db:5432/rota?sslmode=require", "db:5432/rota"),
        ("postgresql://rota:s@cr@t@db/rota", "db/rota"),
        ("postgresql://rota:se/cr@db/rota", "db/rota"),
        ("postgresql://a:1,b:2/rota", "a:1,b:2/rota"),
        ("postgresql:///rota?password=secret", "/rota"),
    ],
)
def test_place_has_no_secrets(address: str, place: str) -> None:
    assert place_of(address) == place


@pytest.mark.anyio
async def test_store_that_is_down_is_named() -> None:
    [port] = free_ports(1)

    with pytest.raises(Unavailable) as refused:
        await open_postgres(f"postgresql://rota:secret@127.0.0.1:{port}/jobs")

    assert f"the store at 127.0.0.1:{port}/jobs cannot be used" in refused.value.message
    assert "secret" not in refused.value.message
