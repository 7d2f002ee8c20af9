"""What OpenAPI says of a cart that is handed in: the job file's own fields, and a few more."""

from __future__ import annotations

from typing import Any

from rota.domain.carts.definition import MAX_ITEMS
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM
from rota.server.gateway.cart_intake import JSON, NDJSON, NOT_HERE

_DEFINITIONS = {f"#/$defs/{part.title}": part for part in (BETWEEN, FAILURES, ITEM)}
_STARTS_AT = {
    "type": "string",
    "format": "date-time",
    "description": "When it begins; at once, unless given.",
}
_HEADER_EXAMPLE = {
    "name": "upgrade-pg16",
    "job": "upgrade-db",
    "order": "groups",
    "group_size": [1, 5, "10%"],
    "max_parallel": 20,
    "failures": {"allow": "2%"},
    "between": {"wait": "5m", "approve": "admin"},
}
_ITEM_EXAMPLES = [{"key": f"db-00{n}", "with": {"host": f"db-00{n}"}} for n in (1, 2)]
_LINES = """\
{"name": "upgrade-pg16", "job": "upgrade-db", "count": 2}
{"key": "db-001", "with": {"host": "db-001"}}
{"key": "db-002", "with": {"host": "db-002"}}
"""


def _inlined(schema: Any) -> Any:
    """The schema with the sections of a cart in the places that refer to them."""
    if isinstance(schema, list):
        return [_inlined(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if section := _DEFINITIONS.get(str(schema.get("$ref"))):
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        return _inlined(section.definition()) | rest
    return {name: _inlined(value) for name, value in schema.items()}


def _cart() -> dict[str, Any]:
    rows = [row for row in CART.available if row.name not in NOT_HERE]
    fields = {row.name: row.schema() for row in rows}
    return {
        "type": "object",
        "title": "a cart",
        "properties": _inlined(fields) | {"starts_at": _STARTS_AT},
        "required": [*(row.name for row in rows if row.required), "items"],
        "additionalProperties": False,
    }


_TEMPLATE = {
    "type": "object",
    "title": "a cart that was applied",
    "properties": {
        "template": {"type": "string", "description": "Its name."},
        "with": {"type": "object", "description": "Inputs for every item."},
        "starts_at": _STARTS_AT,
    },
    "required": ["template"],
    "additionalProperties": False,
}

CART_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A cart by the fields of a job file's `carts`. As lines of JSON, the first "
        f"has all but the items and says their `count`; then follow up to {MAX_ITEMS:,}, one a "
        "line, each of at most 1 MB.",
        "content": {
            JSON: {
                "schema": {"anyOf": [_cart(), _TEMPLATE]},
                "examples": {
                    "cart": {"value": {**_HEADER_EXAMPLE, "items": _ITEM_EXAMPLES}},
                    "template": {"value": {"template": "upgrade-pg16"}},
                },
            },
            NDJSON: {"schema": {"type": "string"}, "example": _LINES},
        },
    }
}
