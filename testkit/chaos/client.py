"""Programs that use a cluster during faults and record every answer.

A missing answer means nothing: the request may or may not have been carried out.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from rota.sdk.client import Client
from rota.sdk.errors import Conflict, RotaApiError, Unavailable, Unreachable
from rota.sdk.exchange import Call
from testkit.chaos.history import ClientLog, Refusal, Sight, Submission
from testkit.chaos.workload import Promise
from testkit.waiting import boottime

T = TypeVar("T")

AWAY = (Unavailable, Unreachable)
_ANSWER_SECONDS = 3.0
_SUBMIT_SECONDS = 0.5
_LOOK_SECONDS = 0.1
_GIVEN_UP = 0.1  # part of the submissions without an answer that are not repeated
_REPEATED = 0.1  # part of the acknowledged ones that are submitted once more
_MAX_TRIES = 1_000
_WATCHED = 40  # of the latest runs


class AnyServer:
    """Client that calls the servers in turn until one answers."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self._clients = clients
        self._turns = itertools.count()

    @classmethod
    def of(cls, urls: Sequence[str], token: str) -> AnyServer:
        return cls([Client(url, token, timeout_seconds=_ANSWER_SECONDS) for url in urls])

    def at(self, url: str) -> Client:
        """Return the client of one server, for what it alone can answer."""
        return next(client for client in self._clients if client.server.url == url)

    def besides(self, url: str) -> AnyServer:
        """Return a client of the other servers, over the same connections."""
        return AnyServer([client for client in self._clients if client.server.url != url])

    def next(self) -> Client:
        return self._clients[next(self._turns) % len(self._clients)]

    def send(self, call: Call[T]) -> T:
        """Send a call; raise `Unreachable` or `Unavailable` if none of them could answer."""
        for client in [self.next() for _ in self._clients[1:]]:
            try:
                return client.send(call)
            except AWAY:
                continue
        return self.next().send(call)

    def close(self) -> None:
        for client in self._clients:
            client.close()


class Users:
    """Three users: one submits, one cancels, one watches; each has its own connections."""

    def __init__(
        self, connect: Callable[[], AnyServer], promises: Sequence[Promise], random: Random
    ) -> None:
        self.log = ClientLog()
        self._connect = connect
        self._promises = promises
        self._random = random
        self._submitting = threading.Event()
        self._working = threading.Event()
        self._to_cancel: deque[str] = deque()
        self._open = ExitStack()
        duties = (self._submit_all, self._cancel_all, self._watch_all)
        self._threads = [threading.Thread(target=duty, name=duty.__name__) for duty in duties]

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
        self.stop_submitting()
        self._working.set()
        for thread in self._threads:
            thread.join()
        self._open.close()

    def stop_submitting(self) -> None:
        """Stop submitting; what was submitted is still cancelled and watched."""
        self._submitting.set()
        self._threads[0].join()

    def _server(self) -> AnyServer:
        server = self._connect()
        self._open.callback(server.close)
        return server

    def _submit_all(self) -> None:
        server = self._server()
        for number in itertools.count():
            promise = self._random.choice(self._promises)
            submission = Submission(promise.job, f"chaos-{number}")
            self.log.submissions.append(submission)
            self._submit(server, submission, may_give_up=not promise.is_cancelled)
            if promise.is_cancelled and submission.run:
                self._to_cancel.append(submission.run)
            if self._submitting.wait(_SUBMIT_SECONDS):
                return

    def _submit(self, server: AnyServer, submission: Submission, *, may_give_up: bool) -> None:
        """Submit; some are submitted again although acknowledged, which must have no effect."""
        for _ in range(_MAX_TRIES):
            if submission.answers and self._random.random() > _REPEATED:
                return
            submission.tries += 1
            call = Client.trigger(submission.job, key=submission.key)
            answer = self._ask(server.next(), call, submission.key)
            if answer is not None:
                submission.answers.append(answer.id)
            elif may_give_up and self._random.random() < _GIVEN_UP:
                return

    def _cancel_all(self) -> None:
        server = self._server()
        while not self._working.wait(_SUBMIT_SECONDS):
            while self._to_cancel:
                self._cancel(server, self._to_cancel.popleft())

    def _cancel(self, server: AnyServer, run: str) -> None:
        while True:
            try:
                server.next().cancel_run(run)
            except AWAY:
                self.log.unanswered += 1
                if self._working.wait(_LOOK_SECONDS):
                    return
                continue
            except Conflict:
                return  # an earlier request has ended it
            except RotaApiError as error:
                self.log.refusals.append(Refusal(f"cancel {run}", repr(error)))
                return
            self.log.cancelled[run] = boottime()
            return

    def _watch_all(self) -> None:
        server = self._server()
        while not self._working.wait(_LOOK_SECONDS):
            known = [each.run for each in self.log.submissions[-_WATCHED:] if each.run]
            if known:
                self._look(server.next(), self._random.choice(known))

    def _look(self, client: Client, run: str) -> None:
        seen = self._ask(client, Client.get_run(run), f"show {run}")
        if seen is not None:
            self.log.sights.append(
                Sight(run, seen.state, seen.attempt, seen.ended_at, client.server.url)
            )

    def _ask(self, client: Client, call: Call[T], what: str) -> T | None:
        """Send a call; None: the result is unknown. Refusals are recorded."""
        try:
            return client.send(call)
        except AWAY:
            self.log.unanswered += 1
            self._working.wait(_LOOK_SECONDS)
        except RotaApiError as error:
            self.log.refusals.append(Refusal(what, repr(error)))
        return None
