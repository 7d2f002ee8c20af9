"""Weights of shares, of all projects alike: list, set."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from rota.operations.limits import set_weight
from rota.server.gateway.auth import Admin
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.shapes.share import ShareBody, ShareShape
from rota.server.gateway.wiring import UsedBackends, api_router

_Share = Annotated[
    str,
    Path(
        pattern=r"^[^\x00-\x1f\x7f]{1,300}$",
        description="a project, a user in it (project/user), or the key that jobs name",
    ),
]

router = api_router("shares")


@router.get("/shares")
async def list_shares(backends: UsedBackends) -> Listing[ShareShape]:
    """Shares whose weight somebody has set; all others have 1."""
    found = await backends.store.share_weights()
    return Listing(items=[ShareShape.model_validate(share) for share in found])


@router.put("/shares/{share:path}")
async def put_share(
    actor: Admin, backends: UsedBackends, share: _Share, body: ShareBody
) -> ShareShape:
    """Set the weight of a share; the next claim goes by it."""
    saved = await set_weight(backends, share, body.weight, actor=actor.name)
    return ShareShape.model_validate(saved)
