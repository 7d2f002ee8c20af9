"""Ports that nobody listens on."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# Below those that systems give to outgoing connections, any of which could take one meanwhile.
_PORTS = range(15_000, 32_000)
_random = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Return different free ports of loopback. Another process may still take one first."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = _random.choice(_PORTS)
            try:
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
