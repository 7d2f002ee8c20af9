"""What can be asked about carts as files define them, and how to undo one."""

from __future__ import annotations

from rota.sdk.answers import Page
from rota.sdk.cart_answers import Cart, CartPlan
from rota.sdk.cart_template_answers import CartTemplate, CartTemplateDetail
from rota.sdk.exchange import Call, get, path_of, post


def list_cart_templates(
    *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[CartTemplate]]:
    """Carts that were applied, by name."""
    return get(Page[CartTemplate], "/cart-templates", limit=limit, cursor=cursor)


def get_cart_template(template: str) -> Call[CartTemplateDetail]:
    """One of them, with its document."""
    return get(CartTemplateDetail, path_of("cart-templates", template))


def delete_cart_template(template: str, *, if_match: str | None = None) -> Call[None]:
    """Forget it; carts that were made of it go on."""
    call = Call(type(None), "DELETE", path_of("cart-templates", template))
    return call.if_match(if_match)


def rollback_cart(cart: str) -> Call[Cart]:
    """Run the rollback job of a stopped cart for what was started; answers with the new cart."""
    return post(Cart, f"{path_of('carts', cart)}:rollback")


def plan_rollback(cart: str) -> Call[CartPlan]:
    """What that would do."""
    return post(CartPlan, f"{path_of('carts', cart)}:rollback", plan=True)
