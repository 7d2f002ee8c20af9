"""Carts as files define them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.operations.cart_templates import words_if_readable
from rota.ports.carts import Template
from rota.server.gateway.shapes.models import Answer


class CartTemplateShape(Answer):
    name: str
    version: int
    etag: str
    words: str  # its items, its order, what may fail, when it starts; "": it cannot be read
    next_at: datetime | None  # when it starts by itself; None: on demand only
    set_name: str
    updated_by: str
    updated_at: datetime

    @classmethod
    def of(cls, template: Template) -> CartTemplateShape:
        return cls(**_fields(template))


class CartTemplateDetail(CartTemplateShape):
    document: dict[str, Any]  # in the job file's own vocabulary

    @classmethod
    def of_template(cls, template: Template) -> CartTemplateDetail:
        return cls(**_fields(template), document=dict(template.document))


def _fields(template: Template) -> dict[str, Any]:
    return {
        "name": template.name,
        "version": template.version,
        "etag": template.digest,
        "words": words_if_readable(template),
        "next_at": template.next_at,
        "set_name": template.set_name,
        "updated_by": template.updated_by,
        "updated_at": template.updated_at,
    }
