"""What can be asked about the output of runs."""

from __future__ import annotations

from rota.api.output import LogMatches, LogWindow
from rota.sdk.exchange import Call, get, live, path_of
from rota.sdk.verbs import Verb


def get_log(
    run: str,
    *,
    attempt: int | None = None,
    first_line: int | None = None,
    limit: int | None = None,
    tail: int | None = None,
) -> Call[LogWindow]:
    """Some lines of a run's output; of its latest attempt unless one is named."""
    path = path_of("runs", run, "log")
    return get(LogWindow, path, attempt=attempt, first_line=first_line, limit=limit, tail=tail)


def search_log(
    run: str,
    text: str,
    *,
    attempt: int | None = None,
    after_line: int | None = None,
    limit: int | None = None,
) -> Call[LogMatches]:
    """Lines that contain a text, from a line on."""
    path = f"{path_of('runs', run, 'log')}:search"
    return get(LogMatches, path, q=text, attempt=attempt, after_line=after_line, limit=limit)


def raw_log(run: str, *, attempt: int | None = None) -> Call[bytes]:
    """The exact bytes an attempt printed; big ones are better streamed than sent."""
    return get(bytes, path_of("runs", run, "log", "raw"), attempt=attempt)


def log_stream(
    run: str, *, attempt: int | None = None, from_line: int | None = None
) -> Call[bytes]:
    path = path_of("runs", run, "log", "stream")
    return live(get(bytes, path, attempt=attempt, from_line=from_line))


class OutputVerbs:
    get_log = Verb(get_log)
    raw_log = Verb(raw_log)
    search_log = Verb(search_log)
