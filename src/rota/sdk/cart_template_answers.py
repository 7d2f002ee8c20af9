"""What the server says about carts as files define them."""

from __future__ import annotations

from rota.api.carts import CartTemplate, CartTemplateDetail

__all__ = [
    "CartTemplate",
    "CartTemplateDetail",
]
