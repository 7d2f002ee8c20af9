"""Programs that submit runs all the time, to whichever server answers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rota.sdk.client import Client
from rota.sdk.errors import Unavailable, Unreachable

_PAUSE_SECONDS = 0.1


class Load:
    """Triggers a job again and again; a submission that failed is repeated with the same key.

    So `submitted` has every run that was acknowledged, once each.
    """

    def __init__(self, clients: Sequence[Client], job: str) -> None:
        self._clients = itertools.cycle(clients)
        self._job = job
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._submit_all, name="load")
        self.submitted: list[str] = []
        self.failures = 0  # submissions that had to be repeated

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _submit_all(self) -> None:
        for number in itertools.count():
            self.submitted.append(self._submit(f"load-{number}"))
            if self._ending.wait(_PAUSE_SECONDS):
                return

    def _submit(self, key: str) -> str:
        while True:
            try:
                return next(self._clients).trigger(self._job, key=key).id
            except (Unavailable, Unreachable):
                self.failures += 1
                self._ending.wait(_PAUSE_SECONDS)
