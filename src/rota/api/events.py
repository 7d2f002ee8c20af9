"""Events as CloudEvents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rota.api.answers import UNSENT, Answer, Instant


class Event(Answer, frozen=True, kw_only=True):
    """A CloudEvent of the history."""

    specversion: Literal["1.0"] = "1.0"
    id: str  # grows; give the last one seen as `after` to go on
    source: str = ""
    type: str = ""  # rota.run.finished, rota.job.created, …
    time: Instant = UNSENT
    datacontenttype: Literal["application/json"] = "application/json"
    subject: str | None = None  # what it is about; None: several things
    data: Mapping[str, Any] = {}  # ids, names of some of them, actor, and what else was recorded
