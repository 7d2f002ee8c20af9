"""Whether the object store answers, asked once beside the start of a server."""

from __future__ import annotations

import structlog

from rota.domain.errors import NotFound, Unavailable
from rota.ports.blobs import Blobs

log = structlog.get_logger()

_NO_SUCH_BLOB = "probe/looks-for-nothing"


async def ask_for_nothing(blobs: Blobs) -> None:
    """`Unavailable` if the store cannot be used; nothing is written."""
    try:
        await blobs.get(_NO_SUCH_BLOB)
    except NotFound:
        return


class BlobProbe:
    """A service that ends at once: a server starts, and runs go on, without an object store."""

    name = "blob-probe"

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def run(self) -> None:
        try:
            await ask_for_nothing(self._blobs)
        except Unavailable as error:
            log.warning(
                "blobs.away",
                error=error.message,
                hint=error.hint,
                effect="output waits on the workers",
            )
