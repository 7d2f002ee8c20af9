"""What the server says about carts as files define them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rota.sdk.answers import Answer


class CartTemplate(Answer, frozen=True, kw_only=True):
    """A cart that was applied, and can be submitted by its name."""

    name: str
    version: int = 0
    etag: str = ""
    words: str = ""  # what it does, and when it starts by itself; "": the server cannot read it
    next_at: datetime | None = None
    set_name: str = ""
    updated_by: str = ""
    updated_at: datetime | None = None


class CartTemplateDetail(CartTemplate, frozen=True, kw_only=True):
    document: Mapping[str, Any] = {}  # in the job file's own vocabulary
