"""What the server answers about carts. Fields that a newer server adds are ignored."""

from __future__ import annotations

from rota.api.carts import (
    FINAL_CART_STATES,
    Cart,
    CartBetween,
    CartDetail,
    CartFailures,
    CartGate,
    CartItem,
    CartPlan,
    CartProgress,
    CartWave,
    Cells,
    CommandedCart,
    FailureGroup,
    ordinal,
)

__all__ = [
    "FINAL_CART_STATES",
    "Cart",
    "CartBetween",
    "CartDetail",
    "CartFailures",
    "CartGate",
    "CartItem",
    "CartPlan",
    "CartProgress",
    "CartWave",
    "Cells",
    "CommandedCart",
    "FailureGroup",
    "ordinal",
]
