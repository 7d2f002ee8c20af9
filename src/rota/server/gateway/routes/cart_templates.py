"""Carts as files define them: list, look, delete. `POST /carts` submits one."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Depends, Path
from starlette.responses import Response

from rota.operations.cart_templates import delete_template, find_template
from rota.ports.carts import Template
from rota.server.gateway.auth import Editor
from rota.server.gateway.etags import IfMatch, quote, require_match
from rota.server.gateway.paging import Cursor, Limit, decode_cursor, encode_cursor, listing
from rota.server.gateway.shapes.cart_template import CartTemplateDetail, CartTemplateShape
from rota.server.gateway.shapes.models import Listing
from rota.server.gateway.wiring import NAME, Project, UsedBackends, api_router

router = api_router("carts")


async def _template(
    backends: UsedBackends,
    project: Project,
    template: Annotated[str, Path(pattern=NAME, description="name")],
) -> Template:
    return await find_template(backends, template, project=project)


_NamedTemplate = Annotated[Template, Depends(_template)]


@router.get("/cart-templates")
async def list_cart_templates(
    backends: UsedBackends, project: Project, limit: Limit = 100, cursor: Cursor = None
) -> Listing[CartTemplateShape]:
    """Carts that were applied, by name."""
    after = decode_cursor("cart_templates", cursor, "")
    found = [each for each in await backends.store.templates(project) if each.name > after]
    # Templates with thousands of items take seconds to read, and leases are renewed on this loop.
    return await asyncio.to_thread(
        listing,
        found,
        limit,
        CartTemplateShape.of,
        lambda template: encode_cursor("cart_templates", template.name),
    )


@router.get("/cart-templates/{template}")
async def show_cart_template(template: _NamedTemplate, response: Response) -> CartTemplateDetail:
    """One of them, with its document."""
    response.headers["ETag"] = quote(template.digest)
    return await asyncio.to_thread(CartTemplateDetail.of_template, template)


@router.delete("/cart-templates/{template}", status_code=204)
async def delete_cart_template(
    actor: Editor, backends: UsedBackends, template: _NamedTemplate, if_match: IfMatch = ""
) -> None:
    """Forget it; carts that were made of it go on."""
    require_match(if_match, template.digest)
    await delete_template(backends, template, actor=actor.name)
