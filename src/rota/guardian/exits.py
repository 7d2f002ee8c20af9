"""How a guardian ends: its exit codes, in one table."""

from __future__ import annotations

import contextlib
import os
from enum import IntEnum


class ExitCode(IntEnum):
    """What a launcher can learn from the guardian's exit status; 2 is a usage error."""

    CLEAN = 0  # the worker ended with 0, or all was stopped on request
    WORKER_DIED = 1  # the worker ended by a signal or with another status, unasked
    CANNOT_START = 69  # the required namespace or the worker's program cannot be had
    GUARDIAN_DIED = 70  # the inner process failed, was killed, or the worker asked for that
    LEASE_ENDED = 75  # the deadline passed without a renewal
    LAUNCHER_GONE = 76  # the other end of --parent-fd was closed
    WORKER_REFUSED = 77  # the worker ended with this very status: it would be refused again


class Over(Exception):
    """Raised where it is decided that the guardian ends, after which nothing may live on."""

    def __init__(self, code: ExitCode, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason  # for people; "" when there is nothing to explain

    def explain(self) -> ExitCode:
        """Tells people the reason; the code is for the launcher."""
        if self.reason:
            with contextlib.suppress(OSError):  # who would have read it may be gone as well
                os.write(2, f"rota guardian: {self.reason}\n".encode())
        return self.code
