"""Templates written as documents that read back unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rota.domain.carts.definition import Between, CartRules, Failures, Share
from rota.domain.carts.template import CartItem, CartTemplate, ItemsFile, ItemSource, LiveWorkers
from rota.domain.durations import format_duration

_T = TypeVar("_T")


def cart_document(template: CartTemplate) -> dict[str, Any]:
    """The template in the file's vocabulary, without what is left at its default."""
    schedule, rules = template.schedule, template.rules
    return _written(
        {
            "name": template.name,
            "description": template.description,
            "labels": dict(template.labels),
            "job": template.job,
            **_source(template.items),
            "rollback": template.rollback,
            "priority": template.priority,
            "schedule": _one_or_list(schedule.expressions) if schedule else None,
            "timezone": schedule.timezone if schedule and schedule.timezone != "UTC" else None,
            "calendars": list(rules.calendars),
            "order": str(rules.order) if template.order_is_written else None,
            **_rules(rules),
        }
    )


def _rules(rules: CartRules) -> dict[str, Any]:
    return {
        "group_size": _one_or_list([_share(size) for size in rules.group_sizes]),
        "max_parallel": rules.max_parallel,
        "failures": _failures(rules.failures),
        "between": _between(rules.between),
    }


def _source(items: ItemSource) -> dict[str, Any]:
    match items:
        case ItemsFile(path):
            return {"items_from": path}
        case LiveWorkers(labels):
            return {"items_from": {"workers": dict(labels)}}
        case _:
            return {"items": [_item(item) for item in items]}


def _item(item: CartItem) -> dict[str, Any]:
    return _written(
        {"key": item.key, "order": item.order, "with": dict(item.inputs), "job": item.job}
    )


def _share(share: Share) -> int | str:
    return str(share) if share.is_percent else int(share.value)


def _failures(failures: Failures) -> dict[str, Any]:
    usual = Failures()
    return _written(
        {
            "allow": _share(failures.allow) if failures.allow != usual.allow else None,
            "of": str(failures.scope) if failures.scope != usual.scope else None,
            "then": str(failures.then) if failures.then != usual.then else None,
            "strict": failures.strict or None,
        }
    )


def _between(between: Between) -> dict[str, Any]:
    wait = format_duration(between.wait) if between.wait else None
    return _written({"wait": wait, "check": between.check, "approve": between.approve})


def _one_or_list(values: Sequence[_T]) -> _T | list[_T]:
    return values[0] if len(values) == 1 else list(values)


def _written(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
