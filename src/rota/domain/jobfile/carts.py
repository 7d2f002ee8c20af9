"""Carts of a job file: checked documents turned into templates, and templates into documents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from rota.domain.carts.definition import (
    Between,
    CartItem,
    CartRules,
    CartTemplate,
    Failures,
    ItemsFile,
    ItemSource,
    LiveWorkers,
    Matrix,
    OnBreach,
    Order,
    Scope,
    Share,
    parse_share,
)
from rota.domain.errors import Problem, did_you_mean, quoted
from rota.domain.jobfile.build import Document, build_schedule
from rota.domain.jobfile.cart_fields import CART, build_matrix, check_cart
from rota.domain.jobfile.rules import check_input, check_inputs
from rota.domain.jobfile.text import At, Position, Report, dotted
from rota.domain.quantities import format_duration, parse_duration
from rota.domain.spec import JobSpec

_SCHEDULE = ("schedule", "timezone")


class Referred(StrEnum):
    """Kind of thing that a name in a cart refers to."""

    JOB = "job"
    CALENDAR = "calendar"


@dataclass(frozen=True, slots=True)
class Reference:
    """A name for something that is defined elsewhere, where the cart uses it first."""

    kind: Referred
    name: str
    path: str
    position: Position | None = None  # None: it was not written in a file


@dataclass(frozen=True, slots=True)
class CartEntry:
    """One cart of a file."""

    template: CartTemplate
    line: int
    references: tuple[Reference, ...]  # each once


def build_cart(document: Document) -> CartTemplate:
    """Build the template of a document that has passed every check."""
    items = _item_source(document)
    template = CartTemplate(
        name=document["name"],
        rules=_rules(document),
        items=items,
        order_is_written="order" in document,
        job=document.get("job", ""),
        title=document.get("title", ""),
        description=document.get("description", ""),
        labels=document.get("labels", {}),
        schedule=build_schedule(_only(document, _SCHEDULE)) if "schedule" in document else None,
        rollback=document.get("rollback", ""),
        priority=document.get("priority"),
        matrix=build_matrix(document) if "matrix" in document else None,
    )
    return template.with_items(items) if isinstance(items, tuple) else template


def build_item(document: Document) -> CartItem:
    """Build the item of a document that has a valid key at least."""
    return CartItem(
        key=document["key"],
        order=document.get("order"),
        inputs=document.get("with", {}),
        job=document.get("job", ""),
        needs=document.get("needs", {}),
    )


def fit_inputs(item: CartItem, spec: JobSpec, at: At) -> CartItem:
    """Convert the item's inputs to the types of its job; report what does not fit."""
    values = check_inputs(spec, item.inputs, at)
    inputs = {name: values[name] for name in item.inputs if name in values}
    return replace(item, inputs=inputs)


def read_cart(document: Mapping[str, object]) -> CartTemplate:
    """Read the template of one cart, given as `cart_document` writes it."""
    report = Report()
    root = At.root(report)
    checked = CART.check(document, root)
    fields = checked if isinstance(checked, dict) else {}
    if isinstance(document, Mapping):
        check_cart(fields, document, root.within(CART.scope(document, root)))
    report.raise_errors("the cart")
    return build_cart(fields)


def check_inputs_of_items(template: CartTemplate, specs: Mapping[str, JobSpec], at: At) -> None:
    """Report inputs that the jobs of items do not take; `specs` has the jobs that are known.

    Missing inputs may still be given when the cart is submitted, unless it starts by itself.
    """
    if not isinstance(template.items, tuple):
        return
    may_lack = template.schedule is None
    if template.matrix is not None:
        _check_inputs_of_matrix(template, specs, at.child("matrix"), may_lack=may_lack)
        return
    for index, item in enumerate(template.items):
        if spec := specs.get(item.job or template.job):
            inputs = at.child("items").child(index).child("with")
            check_inputs(spec, item.inputs, inputs, may_lack=may_lack)


def _check_inputs_of_matrix(
    template: CartTemplate, specs: Mapping[str, JobSpec], at: At, *, may_lack: bool
) -> None:
    """Check each value once, where it is written, and not once for each item that has it."""
    spec = specs.get(template.job)
    if spec is None or template.matrix is None:
        return
    lists = template.matrix.lists
    firsts = {name: values[0] for name, values in lists.items()}
    check_inputs(spec, firsts, at, may_lack=may_lack)
    for name, values in lists.items():
        for index, value in enumerate(values[1:], 1):
            if name in spec.inputs:
                check_input(spec.inputs[name], name, value, at.child(name).child(index))


def cart_entry(document: Document, at: At) -> CartEntry:
    """Build the entry of a cart of a file that has passed every check."""
    template = build_cart(document)
    return CartEntry(template, _position(at).line, tuple(_references(template, at)))


def unknown_references(
    references: Iterable[Reference], known: Mapping[Referred, Collection[str]]
) -> list[Problem]:
    """Report unknown names that a cart uses, given those that its project has."""
    return [
        _unknown(each, known[each.kind]) for each in references if each.name not in known[each.kind]
    ]


def _unknown(reference: Reference, known: Collection[str]) -> Problem:
    message = f"there is no {reference.kind} {quoted(reference.name)}"
    line, column = reference.position or (None, None)
    return Problem(message, reference.path, line, column, hint=did_you_mean(reference.name, known))


def _references(template: CartTemplate, at: At) -> Iterator[Reference]:
    seen: set[tuple[Referred, str]] = set()
    for kind, name, position in _names(template, at):
        if name and (kind, name) not in seen:
            seen.add((kind, name))
            yield Reference(kind, name, dotted(position.path), _position(position))


def _names(template: CartTemplate, at: At) -> Iterator[tuple[Referred, str, At]]:
    between = template.rules.between
    yield Referred.JOB, template.job, at.child("job")
    if isinstance(template.items, tuple):
        for index, item in enumerate(template.items):
            if item.job:
                yield Referred.JOB, item.job, at.child("items").child(index).child("job")
    yield Referred.JOB, between.check, at.child("between").child("check")
    yield Referred.JOB, template.rollback, at.child("rollback")
    for index, name in enumerate(template.rules.calendars):
        yield Referred.CALENDAR, name, at.child("calendars").child(index)


def _position(at: At) -> Position:
    return at.position or Position(1, 1)


def _only(document: Document, names: Iterable[str]) -> dict[str, Any]:
    return {name: document[name] for name in names if name in document}


def _item_source(document: Document) -> ItemSource:
    if "items" in document:
        return tuple(map(build_item, document["items"]))
    if "matrix" in document:
        return build_matrix(document).items()
    source = document["items_from"]
    return ItemsFile(source) if isinstance(source, str) else LiveWorkers(source["workers"])


def _rules(document: Document) -> CartRules:
    sizes = document.get("group_size", [])
    return CartRules(
        order=Order(document.get("order", Order.SERIAL)),
        group_sizes=tuple(map(_share, sizes if isinstance(sizes, list) else [sizes])),
        max_parallel=document.get("max_parallel"),
        failures=_failures(document.get("failures", {})),
        between=_between(document.get("between", {})),
        calendars=tuple(document.get("calendars", ())),
        within=parse_duration(document["within"]) if "within" in document else None,
    )


def _share(value: int | str) -> Share:
    return parse_share(str(value))


def _failures(document: Document) -> Failures:
    return Failures(
        allow=_share(document.get("allow", 0)),
        scope=Scope(document.get("of", Scope.CART)),
        then=OnBreach(document.get("then", OnBreach.PAUSE)),
        strict=document.get("strict", False),
    )


def _between(document: Document) -> Between:
    return Between(
        wait=parse_duration(document.get("wait", "0s")),
        check=document.get("check", ""),
        approve=document.get("approve", ""),
    )


_T = TypeVar("_T")


def cart_document(template: CartTemplate) -> dict[str, Any]:
    """Write the template in the file's vocabulary, without what is left at its default."""
    schedule, rules = template.schedule, template.rules
    return _written(
        {
            "name": template.name,
            "title": template.title,
            "description": template.description,
            "labels": dict(template.labels),
            "job": template.job,
            **(_matrix_document(template.matrix) if template.matrix else _source(template.items)),
            "rollback": template.rollback,
            "priority": template.priority,
            "schedule": _one_or_list(schedule.expressions) if schedule else None,
            "timezone": schedule.timezone if schedule and schedule.timezone != "UTC" else None,
            "calendars": list(rules.calendars),
            "order": str(rules.order) if template.order_is_written else None,
            **_rules_document(rules),
        }
    )


def _rules_document(rules: CartRules) -> dict[str, Any]:
    return {
        "group_size": _one_or_list([_share_document(size) for size in rules.group_sizes]),
        "max_parallel": rules.max_parallel,
        "failures": _failures_document(rules.failures),
        "between": _between_document(rules.between),
        "within": None if rules.within is None else format_duration(rules.within),
    }


def _source(items: ItemSource) -> dict[str, Any]:
    match items:
        case ItemsFile(path):
            return {"items_from": path}
        case LiveWorkers(labels):
            return {"items_from": {"workers": dict(labels)}}
        case _:
            return {"items": [_item(item) for item in items]}


def _matrix_document(matrix: Matrix) -> dict[str, Any]:
    return {
        "matrix": {name: list(values) for name, values in matrix.lists.items()},
        "exclude": [dict(each) for each in matrix.exclude],
    }


def _item(item: CartItem) -> dict[str, Any]:
    return _written(
        {
            "key": item.key,
            "order": item.order,
            "with": dict(item.inputs),
            "job": item.job,
            "needs": dict(item.needs),
        }
    )


def _share_document(share: Share) -> int | str:
    return str(share) if share.is_percent else int(share.value)


def _failures_document(failures: Failures) -> dict[str, Any]:
    usual = Failures()
    return _written(
        {
            "allow": _share_document(failures.allow) if failures.allow != usual.allow else None,
            "of": str(failures.scope) if failures.scope != usual.scope else None,
            "then": str(failures.then) if failures.then != usual.then else None,
            "strict": failures.strict or None,
        }
    )


def _between_document(between: Between) -> dict[str, Any]:
    wait = format_duration(between.wait) if between.wait else None
    return _written({"wait": wait, "check": between.check, "approve": between.approve})


def _one_or_list(values: Sequence[_T]) -> _T | list[_T]:
    return values[0] if len(values) == 1 else list(values)


def _written(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


ItemDocuments: TypeAlias = Sequence[Mapping[str, Any]]


def fill_carts(written: Any, items: Mapping[str, ItemDocuments], root: At) -> Any:
    """Return the file as if its carts had these items written in it; report what fits no cart."""
    if not items:
        return written
    carts = written.get("carts") if isinstance(written, Mapping) else None
    found = carts if isinstance(carts, list) else []
    lacking = {cart["name"] for cart in found if _names_file(cart)}
    for name in sorted(items.keys() - lacking):
        message = f"items came for the cart {quoted(name)}, which names no file of them"
        root.child("carts").refuse(message)
    filled = [_filled(cart, items) if _names_file(cart) else cart for cart in found]
    return {**written, "carts": filled} if found else written


def _names_file(cart: Any) -> bool:
    if not isinstance(cart, Mapping):
        return False
    return isinstance(cart.get("name"), str) and isinstance(cart.get("items_from"), str)


def _filled(cart: Mapping[str, Any], items: Mapping[str, ItemDocuments]) -> Mapping[str, Any]:
    if cart["name"] not in items:
        return cart
    rest = {name: value for name, value in cart.items() if name != "items_from"}
    return {**rest, "items": list(items[cart["name"]])}
