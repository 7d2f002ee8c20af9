"""What a template does, in words for people who are about to apply it."""

from __future__ import annotations

from typing import assert_never

from rota.domain.carts.definition import CartRules, Failures, Order, Scope
from rota.domain.carts.template import CartTemplate, ItemsFile, LiveWorkers


def template_in_words(template: CartTemplate) -> str:
    """`500 items in groups of 1, 5, 20, … · up to 2% may fail`, without its times."""
    return f"{_items(template)} {_order(template)} · {_failures(template.rules.failures)}"


def _items(template: CartTemplate) -> str:
    match template.items:
        case ItemsFile(path):
            return f"the items of {path}"
        case LiveWorkers(labels):
            wanted = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
            return f"each live worker with {wanted}" if wanted else "each live worker"
        case items:
            return "1 item" if len(items) == 1 else f"{len(items):,} items"


def _order(template: CartTemplate) -> str:
    rules = template.rules
    match rules.order:
        case Order.SERIAL:
            return "one after another"
        case Order.PARALLEL:
            return f"all at once{_at_most(rules)}"
        case Order.GROUPS:
            sizes = ", ".join(str(size) for size in rules.group_sizes)
            return f"in groups of {sizes}, …{_at_most(rules)}"
        case Order.EXPLICIT:
            return f"in the order of their numbers{_at_most(rules)}"
        case _:
            assert_never(rules.order)


def _at_most(rules: CartRules) -> str:
    return f", {rules.max_parallel:,} in flight" if rules.max_parallel else ""


def _failures(failures: Failures) -> str:
    scope = " of each wave" if failures.scope is Scope.WAVE else ""
    if not failures.allow.value:
        return f"none{scope} may fail"
    return f"up to {failures.allow}{scope} may fail"
