"""A bare asyncio loop that runs one program again and again: `asyncio_spawns COUNT WIDTH`.

Prints the runs per second.
"""

from __future__ import annotations

import asyncio
import sys
import time


async def spawn(count: int, width: int) -> None:
    """Run `/bin/true` so many times, so many of them at once, and check every exit code."""
    tickets = iter(range(count))

    async def lane() -> None:
        for _ in tickets:
            process = await asyncio.create_subprocess_exec("/bin/true")
            if await process.wait() != 0:
                raise RuntimeError("/bin/true failed")

    await asyncio.gather(*(lane() for _ in range(width)))


def main() -> None:
    count, width = map(int, sys.argv[1:])
    began = time.perf_counter()
    asyncio.run(spawn(count, width))
    print(count / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
