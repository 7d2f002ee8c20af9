"""Programs that use servers all the time: one that submits runs, and many clients."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rota.sdk.client import Client
from rota.sdk.errors import Unavailable, Unreachable
from rota.sdk.exchange import Call

NO_ANSWER = 0  # in place of a status
_PAUSE_SECONDS = 0.1
_MOST_REQUESTS = 100_000  # of each in a crowd, if nobody ends it


class Load:
    """Triggers a job again and again; a failed submission is repeated with the same key.

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


class Crowd:
    """Many clients of one server at once, each as fast as it is answered.

    `next_call` is given the number of a request among all of them.
    """

    def __init__(
        self, size: int, connect: Callable[[], Client], next_call: Callable[[int], Call[Any]]
    ) -> None:
        self._connect = connect
        self._next_call = next_call
        self._ending = threading.Event()
        self._numbers = itertools.count()
        self._counting = threading.Lock()
        self._threads = [threading.Thread(target=self._use, name="crowd") for _ in range(size)]
        self.answers: Counter[int] = Counter()  # by status

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _use(self) -> None:
        with self._connect() as client:
            for _ in range(_MOST_REQUESTS):
                status = _status(client, self._next_call(next(self._numbers)))
                with self._counting:
                    self.answers[status] += 1
                if self._ending.is_set():
                    return


def _status(client: Client, call: Call[Any]) -> int:
    try:
        return client.exchange(call).status
    except Unreachable:
        return NO_ANSWER
