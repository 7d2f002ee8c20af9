"""Entity tags: a change is refused if the thing is no longer what its author saw."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header

from rota.domain.errors import Conflict

IfMatch = Annotated[
    str, Header(alias="If-Match", max_length=200, description="the ETag that must still hold")
]


def quote(etag: str) -> str:
    """The tag as the header ETag carries it."""
    return f'"{etag}"'


def unquote(if_match: str) -> str:
    """The tag that If-Match names; "" if any will do."""
    tag = if_match.strip().removeprefix("W/").strip('"')
    return "" if tag == "*" else tag


def require_match(if_match: str, etag: str) -> None:
    """`Conflict` if the caller saw another version."""
    if (wanted := unquote(if_match)) and wanted != etag:
        raise Conflict(
            "it changed since you looked at it", code="etag_mismatch", hint="look at it again"
        )
