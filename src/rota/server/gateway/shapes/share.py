"""Shares of pools, and their weights."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from rota.server.gateway.shapes.models import Answer, Body


class ShareShape(Answer):
    """How much of a pool a share gets against others."""

    share: str  # a project, a user in it (project/user), or the key that jobs name
    weight: float
    updated_by: str
    updated_at: datetime


class ShareBody(Body):
    weight: Annotated[float, Field(strict=True, ge=0.001, le=1_000, allow_inf_nan=False)]
