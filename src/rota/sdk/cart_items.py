"""Items of a cart as they travel, and as a draft keeps them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.sdk.values import to_json


def encoded_item(
    key: str,
    inputs: Mapping[str, object],
    *,
    order: int | None = None,  # None: assigned by the cart's order
    job: str = "",  # "": the cart's
) -> msgspec.Raw:
    """The item as a line of JSON, which takes less memory than an object does."""
    given = {"key": key, "order": order, "with": inputs or None, "job": job or None}
    present = {name: value for name, value in given.items() if value is not None}
    return msgspec.Raw(to_json(present))
