from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from rota.adapters.store.sqlite.opening import open_sqlite
from rota.domain.errors import Conflict
from rota.runtime.server import Running, Server
from rota.runtime.settings import Settings

pytestmark = pytest.mark.anyio


async def refusal(settings: Settings) -> Conflict:
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    with pytest.raises(Conflict) as refused:
        await Server(settings).run(ready)
    return refused.value


async def test_second_server_on_the_same_data_and_port_is_told_that_one_runs(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(home=tmp_path, listen=f"127.0.0.1:{port}")
        store = await open_sqlite(settings.store_path)

        on_same_data = await refusal(settings)
        await store.close()
        on_free_data = await refusal(settings)

    assert (on_same_data.code, on_free_data.code) == ("already_running", "port_taken")
