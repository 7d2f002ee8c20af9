"""Jobs of type `http`: requests that are built from a job, and what answers to them mean.

    submit ──▶ answer ──▶ handle (kept before the first look) ──▶ status ──▶ … ──▶ the end
                  └─ no `status`: this answer is the end

There is no expression language. A value is written as it is, or is taken whole from somewhere:
`{input: NAME}`, `{answer: /pointer}`, `{header: NAME}`, `{run: id}`, `{secret: NAME}`. What is
taken becomes one segment of a path, one value of a query, one header or one value of JSON: it can
never become another host, another header or another key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from rota.domain.addresses import MAX_URL, Target, parse_target
from rota.domain.errors import Invalid, quoted, shown
from rota.domain.identity import at_pointer
from rota.domain.spec import Http, HttpCall, HttpMethod, HttpResult, HttpState, HttpValue

MAX_BODY = 1024 * 1024  # bytes of a request
MAX_ANSWER = 4 * 1024 * 1024  # bytes of an answer that are read
MAX_HANDLE = 4 * 1024  # bytes of JSON
LONGEST_PAUSE = timedelta(hours=1)  # that another system may ask for
KEY_HEADER = "Idempotency-Key"
# Requests that change nothing may be sent again without asking.
SAFE = frozenset({HttpMethod.GET, HttpMethod.HEAD})
# What follows from the request itself, or would change who is asked.
OWN_HEADERS = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "accept-encoding"),
        *("upgrade", "te", "trailer", "keep-alive", "proxy-authorization", "proxy-connection"),
        *("expect", "http2-settings"),
    }
)
RUN_FACTS = ("id", "job", "project", "due_at", "attempt")
SOURCES = ("input", "answer", "header", "run", "secret")  # of a value, by field of `HttpValue`
_GONE = (404, 410)  # of a status: what was submitted is not known there
_LATER = (408, 425, 429)  # besides 5xx: an answer, but not about the work
# Gateways answer so for a server that did not: nobody knows what that has done.
NOBODY_KNOWS = frozenset({502, 504})
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_SHOWN = 200  # characters of what another system says

Json = Any


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that values of requests are taken from."""

    inputs: Mapping[str, Any]
    run: Mapping[str, str]  # by `RUN_FACTS`
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    taken: Mapping[str, str] = field(default_factory=dict)  # of the answer to `submit`, see `take`


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of another system, with as much of its body as was read."""

    status: int
    headers: Mapping[str, str]  # by name in lower case
    body: bytes
    is_cut: bool = False

    def json(self) -> Json:
        """Return the body; raise `Invalid` if it is no JSON."""
        if self.is_cut:
            raise Invalid(f"the answer has more than {MAX_ANSWER // 1024 // 1024} MiB")
        try:
            return json.loads(self.body, parse_constant=_no_number)
        except (ValueError, RecursionError):
            found = quoted(self.body[:40].decode("utf-8", "replace"))
            raise Invalid(f"the answer is no JSON: {found}") from None


@dataclass(frozen=True, slots=True)
class WorkStatus:
    """How the work stands, as an answer says."""

    state: HttpState | None  # None: it does not say, ask again
    message: str = ""
    progress: float | None = None  # 0 to 100
    outputs: Mapping[str, Json] | None = None  # None: there are none


@dataclass(frozen=True, slots=True)
class Built:
    """A request that is ready to be sent."""

    method: HttpMethod
    target: Target
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)


# --- requests


def build(call: HttpCall, facts: Facts, base: Target | None = None) -> Built:
    """Build a request; raise `Invalid` for what cannot be sent.

    `base` is where a URL is relative to that an answer gave.
    """
    target = _target(call, facts, base)
    headers = {name: _header(name, value, facts) for name, value in call.headers.items()}
    body = b""
    if call.body is not None:
        body, kind = encoded(call.body, facts)
        if not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = kind
        if len(body) > MAX_BODY:
            size = f"{len(body):,} bytes are more than {MAX_BODY // 1024 // 1024} MiB"
            raise Invalid(f"the body is too large: {size}")
    return Built(call.method, target, headers, body)


def _target(call: HttpCall, facts: Facts, base: Target | None) -> Target:
    url = text_of(call.url, facts)
    if base is not None and url.startswith("/") and not url.startswith("//"):
        url = base.origin + url
    target = parse_target(url)
    path, question, query = target.path.partition("?")
    for segment in call.path:
        # A segment of dots would be read as another folder by whoever gets it.
        text = text_of(segment, facts)
        if text in ("", ".", ".."):
            raise Invalid(f"{shown(text)} cannot be a part of a path")
        path = f"{path.rstrip('/')}/{quote(text, safe='')}"
    pairs = [
        f"{quote(name, safe='')}={quote(text_of(value, facts), safe='')}"
        for name, value in call.query.items()
    ]
    whole = "&".join([*([query] if query else []), *pairs])
    built = f"{target.origin}{path}{'?' if question or pairs else ''}{whole}"
    if len(built) > MAX_URL:  # said without it: its query may have secrets
        raise Invalid(f"{target.shown}: with path and query it has more than {MAX_URL} characters")
    return parse_target(built)


def _header(name: str, value: HttpValue, facts: Facts) -> str:
    text = text_of(value, facts)
    if not _HEADER_VALUE.fullmatch(text):
        raise Invalid(f"the header {name} would have a line break or another control character")
    return text.strip()


def text_of(value: HttpValue, facts: Facts) -> str:
    """Return a value as text; raise `Invalid` if it is not there."""
    return value.prefix + _text(_found(value, facts) if _source(value) else value.text)


def _source(value: HttpValue) -> str:
    return next((name for name in SOURCES if getattr(value, name)), "")


def _found(value: HttpValue, facts: Facts) -> Json:
    source = _source(value)
    name = getattr(value, source)
    match source:
        case "input":
            known: Mapping[str, Any] = facts.inputs
        case "run":
            known = facts.run
        case "secret":
            known = facts.secrets
        case _:
            known, name = facts.taken, taken_as(value)
    if name not in known:
        raise Invalid(f"there is no {source} {quoted(getattr(value, source))}")
    return known[name]


def _text(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise Invalid(f"{shown(value)} is not a single value")


def encoded(body: Json, facts: Facts) -> tuple[bytes, str]:
    """Return a body as bytes, with what kind it is: text, or JSON."""
    filled = _filled(body, facts)
    if isinstance(filled, str):
        return filled.encode("utf-8", "replace"), "text/plain; charset=utf-8"
    return json.dumps(filled, ensure_ascii=False).encode("utf-8", "replace"), "application/json"


def _filled(body: Json, facts: Facts) -> Json:
    if isinstance(body, Mapping):
        value = value_in(body)
        if value is None:
            return {name: _filled(item, facts) for name, item in body.items()}
        found = _found(value, facts)
        return value.prefix + _text(found) if value.prefix else found
    if isinstance(body, list | tuple):
        return [_filled(item, facts) for item in body]
    return body


def value_in(body: Mapping[str, Json]) -> HttpValue | None:
    """Return the value that a mapping in a body stands for; None: it is a mapping like any."""
    sources = [name for name in SOURCES if name in body]
    is_value = (
        len(sources) == 1
        and body.keys() <= {sources[0], "prefix"}
        and all(isinstance(each, str) for each in body.values())
        and bool(body[sources[0]])
    )
    return HttpValue(**body) if is_value else None


def values_of(call: HttpCall) -> Iterator[HttpValue]:
    """Yield all values of a request."""
    yield call.url
    yield from call.path
    yield from call.query.values()
    yield from call.headers.values()
    yield from _values_in(call.body)


def _values_in(body: Json) -> Iterator[HttpValue]:
    if isinstance(body, Mapping):
        value = value_in(body)
        if value is not None:
            yield value
        else:
            for item in body.values():
                yield from _values_in(item)
    elif isinstance(body, list | tuple):
        for item in body:
            yield from _values_in(item)


def calls_of(http: Http) -> Iterator[tuple[str, HttpCall]]:
    """Yield the calls of a job, by name."""
    yield "submit", http.submit
    if http.status is not None:
        yield "status", http.status
    if http.cancel is not None:
        yield "cancel", http.cancel


def secrets_of(http: Http) -> tuple[str, ...]:
    """List the values of workers that a job names."""
    values = (value for _, call in calls_of(http) for value in values_of(call))
    return tuple(sorted({value.secret for value in values if value.secret}))


# --- handles


def taken_as(value: HttpValue) -> str:
    """Return the name under which what an answer said is kept."""
    return f"answer:{value.answer}" if value.answer else f"header:{value.header.lower()}"


def take(http: Http, answer: Answer) -> dict[str, str]:
    """Return what later calls need of the answer to `submit`; raise `Invalid` if it lacks it."""
    later = [call for name, call in calls_of(http) if name != "submit"]
    wanted = [v for call in later for v in values_of(call) if v.answer or v.header]
    taken: dict[str, str] = {}
    document = answer.json() if any(value.answer for value in wanted) else None
    for value in wanted:
        if value.header:
            found: Json = answer.headers.get(value.header.lower())
            where = f"no header {value.header}"
        else:
            found = at_pointer(document, value.answer)
            where = f"nothing at {value.answer}"
        if found is None or found == "":
            raise Invalid(f"the answer has {where}, which names the work there")
        taken[taken_as(value)] = _text(found)
    return taken


def to_handle(taken: Mapping[str, str]) -> bytes:
    """Encode what names the work elsewhere; raise `Invalid` if it is too long."""
    data = json.dumps({"taken": dict(taken)}, ensure_ascii=False).encode("utf-8", "replace")
    if len(data) > MAX_HANDLE:
        raise Invalid(f"what names the work there has more than {MAX_HANDLE // 1024} KiB")
    return data


def from_handle(data: bytes) -> dict[str, str]:
    """Decode a handle; raise `Invalid` if it is none of ours."""
    try:
        taken = json.loads(data)["taken"]
        return {str(name): str(text) for name, text in taken.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Invalid("what an earlier attempt kept cannot be read") from None


# --- answers


def is_among(status: int, codes: Sequence[str]) -> bool:
    """Return whether a status is one of these codes: `202`, or `2xx` for all of a hundred."""
    text = str(status)
    return any(code == text or (code[1:] == "xx" and code[0] == text[0]) for code in codes)


def read_submit(http: Http, answer: Answer) -> WorkStatus:
    """Read how the work stands from the answer to `submit`."""
    if http.status is None:
        return read_result(http.result, answer)
    if is_among(answer.status, ("2xx",)):
        return WorkStatus(HttpState.RUNNING)
    return WorkStatus(HttpState.FAILED, _complaint(http.result, answer))


def read_status(result: HttpResult, answer: Answer) -> WorkStatus:
    """Read how the work stands from an answer to `status`; the state is None if it says nothing."""
    status = answer.status
    is_named = is_among(status, (*result.completed, *result.running))
    if not is_named and (status >= 500 or status in _LATER):
        return WorkStatus(None, f"answered {status}")
    if not is_named and status in _GONE:
        return WorkStatus(HttpState.FAILED, f"what was submitted is not known there ({status})")
    try:
        return read_result(result, answer)
    except Invalid as error:  # half an answer, or a page of a gateway: the next one may be better
        return WorkStatus(None, error.message)


def read_result(result: HttpResult, answer: Answer) -> WorkStatus:
    """Read how the work stands; raise `Invalid` for an answer that cannot be read as it must be."""
    state, message = _state(result, answer)
    if state is HttpState.RUNNING:
        return WorkStatus(state, progress=_progress(result, answer))
    if state is HttpState.FAILED:
        return WorkStatus(state, message)
    return WorkStatus(state, outputs=_outputs(result, answer))


def _state(result: HttpResult, answer: Answer) -> tuple[HttpState, str]:
    if is_among(answer.status, result.running):
        return HttpState.RUNNING, ""
    if not is_among(answer.status, result.completed):
        return HttpState.FAILED, _complaint(result, answer)
    if not result.pointer:
        return HttpState.COMPLETED, ""
    found = at_pointer(answer.json(), result.pointer)
    if isinstance(found, dict | list):
        raise Invalid(f"{result.pointer} of the answer is {shown(found)}, no single value")
    word = "" if found is None else _text(found)
    state = result.values.get(word)
    if state is None:
        state = result.otherwise
        if state is HttpState.FAILED:
            return state, f"{result.pointer} of the answer is {shown(found)}, which is not named"
    if state is HttpState.FAILED:
        told = _told(result, answer)
        return state, f"{result.pointer} is {quoted(word)}" + (f": {told}" if told else "")
    return state, ""


def _complaint(result: HttpResult, answer: Answer) -> str:
    told = _told(result, answer)
    return f"answered {answer.status}" + (f": {told}" if told else "")


def _told(result: HttpResult, answer: Answer) -> str:
    """Return what the other system says about a failure, in a line."""
    try:
        document = answer.json()
    except Invalid:
        text = answer.body[: 4 * _SHOWN].decode("utf-8", "replace")
        found: Json = "" if text.lstrip().startswith("<") else text
    else:
        pointers = (result.message, "/detail", "/message", "/error/message", "/error")
        found = next((at_pointer(document, each) for each in pointers if each), None)
        for each in pointers:
            if each and isinstance(at_pointer(document, each), str):
                found = at_pointer(document, each)
                break
    line = " ".join(str(found).split()) if isinstance(found, str | int | float) else ""
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


def _progress(result: HttpResult, answer: Answer) -> float | None:
    if not result.progress:
        return None
    try:
        found = at_pointer(answer.json(), result.progress)
    except Invalid:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(min(max(found, 0), 100))  # compared as it is: it may be too large for a float


def _outputs(result: HttpResult, answer: Answer) -> dict[str, Json] | None:
    if not result.outputs:
        return None
    document = answer.json()
    found = {name: at_pointer(document, pointer) for name, pointer in result.outputs.items()}
    for name, value in found.items():
        if value is None:
            raise Invalid(f"the answer has nothing at {result.outputs[name]}, for output {name}")
    return found


def _no_number(text: str) -> float:
    raise ValueError(text)


def wait_asked_for(answer: Answer, now: datetime) -> timedelta | None:
    """Return how long the other system asks to wait (`Retry-After`); None: it does not."""
    text = answer.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        wait = timedelta(seconds=int(text))
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        wait = at - _date(answer, now)
    return min(max(wait, timedelta(0)), LONGEST_PAUSE)


def _date(answer: Answer, now: datetime) -> datetime:
    """Return when an answer was given by the clock of who gave it."""
    try:
        at = parsedate_to_datetime(answer.headers.get("date", ""))
    except (ValueError, TypeError, IndexError, OverflowError):
        return now
    return at if at.tzinfo else at.replace(tzinfo=UTC)
