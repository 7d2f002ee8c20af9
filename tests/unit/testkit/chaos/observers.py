"""An observer of a cluster that is not there."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from rota.sdk.answers import Page
from rota.sdk.errors import Unavailable
from rota.sdk.exchange import Call
from testkit.chaos.client import AnyServer

T = TypeVar("T")


class Told(AnyServer):
    """Answers every call with `answer`, or with nothing while it is `away`; notes what it does."""

    def __init__(self, answer: Any = None, *, away: int = 0) -> None:
        super().__init__([])
        self.answer = answer
        self.away = away  # calls that find no server
        self.asked: list[str] = []

    def besides(self, url: str) -> Told:
        return self

    def send(self, call: Call[T]) -> T:
        if self.away:
            self.away -= 1
            raise Unavailable("away")
        self.asked.append(call.method)
        return cast("T", self.answer)


def page(*items: Any) -> Page[Any]:
    return Page(items=items)
