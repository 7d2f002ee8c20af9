"""One call of the API without a transport: request, answer, and values as JSON.

A `Call` is data, so that both clients, blocking and async, share every verb and differ only in how
they send it. `request_for` and `read` are the two ends of sending; below them is the conversion of
Python values, which functions use for arguments and results as well: by their annotations for
JSON's own types, dataclasses, enums, dates and the like; Pydantic models by their own methods, so
that Pydantic need not be installed.
"""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from rota import __version__
from rota.api.answers import ProblemReport
from rota.sdk.errors import BY_STATUS, NotRota, RotaApiError
from rota.sdk.server import Server

T = TypeVar("T")
Query = Mapping[str, object]
Inputs = Mapping[str, object]
Instant = datetime | str  # text: RFC 3339
Body = bytes | Iterable[bytes]  # in pieces: sent as they come, and never held together

NDJSON = {"Content-Type": "application/x-ndjson"}

EVENT_STREAM = "text/event-stream"
CHECK_ADDRESS = (
    "check the address: --url, ROTA_URL or url in rota.toml; `rota up` prints that of its server"
)
_OF_PROXIES = frozenset(
    {413, 429, 502, 503, 504}
)  # what may stand before a server answers so for it
_PROBLEM = "urn:rota:problem:"
_SHOWN = 60  # bytes of what something else answered
_API = "/api/v1"
_JSON = {"Content-Type": "application/json"}
_YAML = {"Content-Type": "application/yaml"}
_USER_AGENT = f"rota-python/{__version__} Python/{platform.python_version()}"
_NO_TOKEN = "set ROTA_TOKEN and ROTA_URL; `rota token create` makes a token"  # noqa: S105 (a hint, no secret)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """Call of the API, and the type of its answer."""

    answer: type[T]
    method: str
    path: str  # below the API's prefix, quoted
    query: Query = field(default_factory=dict)  # None: left out; a sequence: repeated
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Body | None = None

    @property
    def is_repeatable(self) -> bool:
        """Return whether the call can be sent twice with the effect of once."""
        is_harmless = self.method != "POST" or "Idempotency-Key" in self.headers
        return is_harmless and not isinstance(self.body, Iterator)

    def with_query(self, **query: object) -> Call[T]:
        return replace(self, query={**self.query, **query})

    def with_file(self, text: str) -> Call[T]:
        """Return the call with a job file as its body, or a part of one: YAML or JSON."""
        return replace(self, headers=_YAML, body=text.encode())

    def with_key(self, key: str | None) -> Call[T]:
        """Return the call with an idempotency key, generated if not given: it can be sent twice."""
        return self._with_header("Idempotency-Key", key or secrets.token_urlsafe(18))

    def if_match(self, etag: str | None) -> Call[T]:
        """Return the call to be refused if the thing has changed since it had this etag."""
        if etag is None:
            return self
        quoted = etag if etag.startswith(('"', "W/")) or etag == "*" else f'"{etag}"'
        return self._with_header("If-Match", quoted)

    def _with_header(self, name: str, value: str) -> Call[T]:
        return replace(self, headers={**self.headers, name: value})


@dataclass(frozen=True, slots=True)
class Request:
    """Call as it is sent."""

    method: str
    target: str  # path and query
    headers: Mapping[str, str]
    body: Body | None
    is_repeatable: bool


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes
    address: str = ""  # of whoever answered
    media_type: str = ""  # of the body; "": it was not told
    location: str = ""  # where a redirect leads; "": it is none

    @property
    def is_event_stream(self) -> bool:
        return self.media_type.startswith(EVENT_STREAM)


def get(answer: type[T], path: str, **query: object) -> Call[T]:
    return Call(answer, "GET", path, query)


def post(answer: type[T], path: str, document: object = None, **query: object) -> Call[T]:
    if document is None:
        return Call(answer, "POST", path, query)
    return Call(answer, "POST", path, query, _JSON, msgspec.json.encode(document))


def put(answer: type[T], path: str, document: object, **query: object) -> Call[T]:
    return Call(answer, "PUT", path, query, _JSON, msgspec.json.encode(document))


def patch(answer: type[T], path: str, document: object) -> Call[T]:
    return Call(answer, "PATCH", path, {}, _JSON, msgspec.json.encode(document))


def live(call: Call[bytes], after: str = "") -> Call[bytes]:
    """Return the call as a live stream of events, which goes on after one; "": from its begin."""
    position = {"Last-Event-ID": after} if after else {}
    return replace(call, headers={"Accept": EVENT_STREAM, **position})


def path_of(*parts: str) -> str:
    """Build a path of free texts, each quoted as one segment."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def request_for(call: Call[Any], server: Server, project: str | None) -> Request:
    headers = {"Accept": "application/json", "User-Agent": _USER_AGENT, **call.headers}
    if server.token:
        headers["Authorization"] = f"Bearer {server.token}"
    query = {"project": project, **call.query}
    encoded = urlencode([pair for name, value in query.items() for pair in _pairs(name, value)])
    target = f"{_API}{call.path}" + (f"?{encoded}" if encoded else "")
    return Request(call.method, target, headers, call.body, call.is_repeatable)


def read(call: Call[T], reply: Reply) -> T:
    """Decode the answer as its type, or raise the error it is."""
    refuse_error(reply)
    if call.answer is bytes:
        return reply.body  # type: ignore[return-value]  # T is bytes
    try:
        return msgspec.json.decode(reply.body or b"null", type=call.answer)
    except msgspec.MsgspecError as error:
        raise not_rota(reply) from error


def not_rota(reply: Reply) -> NotRota:
    """Build the error of an answer that no Rota server gives, with what it is."""
    start = " ".join(reply.body[:_SHOWN].decode(errors="replace").split())
    parts = (
        f"status {reply.status}",
        reply.media_type,
        f"a redirect to {reply.location}" if reply.location else "",
        f'"{start} …"' if len(reply.body) > _SHOWN else f'"{start}"' if start else "",
    )
    told = ", ".join(part for part in parts if part)
    message = f"{reply.address or 'the server'} does not answer like a Rota server: {told}"
    return NotRota(message, status=reply.status, hint=CHECK_ADDRESS)


def read_as(answer: type[T], body: bytes | str) -> T:
    try:
        return msgspec.json.decode(body, type=answer)
    except msgspec.MsgspecError as error:
        hint = "is it a Rota server, and is this client recent enough?"
        raise RotaApiError(
            f"the server's answer cannot be read: {error}", code="bad_answer", hint=hint
        ) from error


def refuse_error(reply: Reply) -> None:
    """Raise the error that an answer is; an API of Rota never redirects."""
    if reply.status < 300:
        return
    report = _report_in(reply)
    if report is None:
        raise _foreign_error(reply)
    hint = report.hint or (_NO_TOKEN if reply.status == 401 else "")
    raise BY_STATUS.get(reply.status, RotaApiError)(
        report.detail or report.title,
        code=report.code,
        status=reply.status,
        hint=hint,
        errors=report.errors,
        trace_id=report.trace_id or "",
    )


def _foreign_error(reply: Reply) -> RotaApiError:
    """Build the error that something else answered with: a proxy, or whoever has that address."""
    error = not_rota(reply)
    if reply.status not in _OF_PROXIES:
        return error
    hint = f"if a proxy stands before the server, look there; else {error.hint}"
    kind = BY_STATUS.get(reply.status, RotaApiError)
    return kind(error.message, status=reply.status, hint=hint)


def _report_in(reply: Reply) -> ProblemReport | None:
    """Return the report of an error; None: no Rota server wrote it."""
    try:
        report = msgspec.json.decode(reply.body, type=ProblemReport)
    except msgspec.MsgspecError:
        return None
    return report if report.type.startswith(_PROBLEM) else None


def _pairs(name: str, value: object) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [pair for each in value for pair in _pairs(name, each)]
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    return [(name, value.isoformat() if isinstance(value, datetime) else str(value))]


def to_json(value: object) -> bytes:
    """Encode as JSON; raise TypeError naming what JSON cannot carry."""
    return msgspec.json.encode(value, enc_hook=_dump)


def from_json(text: str | bytes) -> Any:
    return msgspec.json.decode(text)


def to_plain(value: object) -> Any:
    """Convert to JSON's own types."""
    return from_json(to_json(value))


def from_plain(value: object, annotation: Any) -> Any:
    """Convert to the type of the annotation; unchanged without one."""
    if annotation in (Any, None, object):
        return value
    return msgspec.convert(value, annotation, dec_hook=_load)


def _dump(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} cannot be carried as JSON")
    return dump(mode="json")


def _load(kind: type, value: object) -> object:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"a {kind.__name__} cannot be made from JSON")
    return validate(value)
