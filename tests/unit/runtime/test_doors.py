"""What a server imports for its listeners."""

from __future__ import annotations

import os
import subprocess
import sys

_FORKING = """
import asyncio, os, time
from rota.runtime.doors import without_fork_handlers

with without_fork_handlers():
    import grpc.aio

async def main():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await channel.channel_ready()
        child = os.fork()
        if not child:
            time.sleep(0.05)
            os._exit(len(os.listdir("/proc/self/task")))
        threads = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(threads, os.environ.get("GRPC_ENABLE_FORK_SUPPORT"))
    await server.stop(0)

asyncio.run(main())
"""


def test_grpc_starts_no_threads_in_processes_that_a_server_starts() -> None:
    # Our tests fork with gRPC in their process, and have it off.
    environ = {name: it for name, it in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}

    answer = subprocess.run(
        [sys.executable, "-c", _FORKING],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env=environ,
    )

    assert answer.stdout == "1 None\n"
