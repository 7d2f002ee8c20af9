"""A look at NATS servers that changes nothing."""

from __future__ import annotations

import asyncio

from nats.aio.client import Client
from nats.errors import Error as NatsError

from rota.adapters.queue.nats_connection import GONE, parse_address
from rota.domain.errors import Unavailable

_ANSWER_SECONDS = 3


async def inspect_nats(address: str) -> str:
    """Which server answers, in words. `Unavailable` if none does, or none with JetStream."""
    servers, _ = parse_address(address)
    client = Client()
    try:
        async with asyncio.timeout(2 * _ANSWER_SECONDS):
            await client.connect(
                servers, connect_timeout=_ANSWER_SECONDS, allow_reconnect=False, error_cb=_ignore
            )
            await client.jetstream(timeout=_ANSWER_SECONDS).account_info()
        known = len(client.servers)
        return f"NATS {client.connected_server_version} with JetStream, {known} servers known"
    except NatsError as error:
        hint = "start nats-server with --jetstream" if client.is_connected else ""
        raise Unavailable(f"no NATS server answers: {error}", hint=hint) from error
    except GONE as error:
        raise Unavailable(f"no NATS server answers: {error}") from error
    finally:
        await client.close()


async def _ignore(error: Exception) -> None:
    """The connection's own end tells the same."""
