"""What people ask of a cart that is under way, in their words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rota.domain.carts.commands import Approver
from rota.domain.carts.definition import CartRules, Share, parse_share
from rota.domain.carts.states import (
    FAILED_ITEM_STATES,
    FINAL_ITEM_STATES,
    ItemState,
)
from rota.domain.errors import Conflict, Invalid, NotFound, Problem
from rota.domain.jobfile import parse_inputs
from rota.domain.jobfile.cart_fields import BETWEEN, CART, FAILURES, ITEM
from rota.domain.jobfile.carts import Reference, Referred
from rota.domain.jobfile.report import At, Report
from rota.domain.jobfile.sections import Section
from rota.domain.spec import JobSpec
from rota.operations.backends import Backends
from rota.operations.cart_causes import cause_meant
from rota.operations.cart_references import require_known
from rota.operations.cart_versions import newer_versions
from rota.operations.carts import command
from rota.ports.carts import (
    Cart,
    Commanded,
    EditCart,
    EditedItem,
    Item,
    ItemQuery,
    RetryItems,
    Selection,
)

# Which items of those that have ended a word means.
SELECTED: Mapping[str, frozenset[ItemState]] = {
    "failed": FAILED_ITEM_STATES,
    "failed+skipped": FINAL_ITEM_STATES - {ItemState.COMPLETED},  # all that did not complete
    "all": FINAL_ITEM_STATES,
}


@dataclass(frozen=True, slots=True)
class ItemChange:
    """A change of an item whose wave is not open yet."""

    key: str
    order: int | None = None  # None: as it was
    inputs: Mapping[str, Any] | None = None  # None: as they were
    skip: bool = False


@dataclass(frozen=True, slots=True)
class CartChange:
    """What is to be different; the words of `failures` and `between` are the job file's."""

    max_parallel: int | None = None  # None: as it was
    failures: Mapping[str, object] = field(default_factory=dict)  # what is left out stays
    between: Mapping[str, object] = field(default_factory=dict)
    items: Sequence[ItemChange] = ()


async def edit(backends: Backends, cart: Cart, change: CartChange, *, by: Approver) -> Commanded:
    """Change the cart just as it was seen: `Conflict` if somebody else did so meanwhile."""
    rules = _changed_rules(cart.rules, change)
    if change.between.get("check"):
        named = Reference(Referred.JOB, rules.between.check, "between.check")
        await require_known(backends, cart.project, [named])
    items = await _edited_items(backends, cart, change.items)
    return await command(backends, cart, EditCart(rules, items, cart.version, by), actor=by.name)


async def retry(backends: Backends, cart: Cart, selection: Selection, *, actor: str) -> Commanded:
    """Run items that have ended once more, by the jobs of now as far as their inputs fit these."""
    await _require_items(backends, cart, selection.keys or ())
    meant = replace(selection, cause=await cause_meant(backends, cart, selection.cause))
    versions = await newer_versions(backends, cart, meant)
    return await command(backends, cart, RetryItems(meant, versions), actor=actor)


async def _require_items(backends: Backends, cart: Cart, keys: Collection[str]) -> None:
    query = ItemQuery(cart.id, keys=list(keys), limit=max(1, len(keys)))
    found = {item.key for item in await backends.store.items(query)} if keys else set()
    for key in keys:
        if key not in found:
            raise _no_item(key)


def allowance(written: object) -> Share:
    """How many may fail, as written: 5 or `3%`; `Invalid` says what is wrong with it."""
    report = Report()
    checked = _checked(FAILURES, {"allow": written}, At.root(report))
    report.raise_errors("the allowance")
    return parse_share(str(checked["allow"]))


def _changed_rules(rules: CartRules, change: CartChange) -> CartRules:
    report = Report()
    root = At.root(report)
    failures = _checked(FAILURES, change.failures, root.child("failures"))
    between = _checked(BETWEEN, change.between, root.child("between"))
    if change.max_parallel is not None:
        CART.by_name["max_parallel"].kind.check(change.max_parallel, root.child("max_parallel"))
    for place, item in enumerate(change.items):
        if item.order is not None:
            at = root.child("items").child(place).child("order")
            ITEM.by_name["order"].kind.check(item.order, at)
    report.raise_errors("the change")
    document = rules.to_document()
    document["failures"] |= failures
    document["failures"]["allow"] = str(document["failures"]["allow"])
    document["between"] |= between
    changed = CartRules.from_document(document)
    return replace(changed, max_parallel=change.max_parallel or rules.max_parallel)


def _checked(section: Section, given: Mapping[str, object], at: At) -> dict[str, Any]:
    checked = section.check(given, at)
    return checked if isinstance(checked, dict) else {}


async def _edited_items(
    backends: Backends, cart: Cart, changes: Sequence[ItemChange]
) -> list[EditedItem]:
    found = await _named(backends, cart, changes)
    specs = await backends.specs.find(
        backends.store, {(item.job_id, item.job_version) for item in found.values()}
    )
    edited: list[EditedItem] = []
    problems: list[Problem] = []
    for place, change in enumerate(changes):
        item = found[change.key]
        inputs: Mapping[str, Any] | None = None
        try:
            if change.inputs is not None:
                inputs = _fitted(specs.get((item.job_id, item.job_version)), change.inputs)
        except Invalid as error:
            where = f"items[{place}] ({change.key})"
            wrong = [problem.message for problem in error.problems] or [error.message]
            problems += [Problem(message, where) for message in wrong]
        edited.append(EditedItem(change.key, change.order, inputs, change.skip))
    if problems:
        raise Invalid("inputs of items do not fit their jobs", problems)
    return edited


def _fitted(spec: JobSpec | None, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    if spec is None:
        raise Invalid("the definition of its job cannot be read by this version of Rota")
    return parse_inputs(spec, inputs)


async def _named(
    backends: Backends, cart: Cart, changes: Sequence[ItemChange]
) -> Mapping[str, Item]:
    """The items by their keys; all of them are there, once, and may still be changed."""
    keys = [change.key for change in changes]
    for key, count in Counter(keys).items():
        if count > 1:
            raise Invalid(f'the item "{key}" is there {count} times', code="duplicate_key")
    query = ItemQuery(cart.id, keys=keys, limit=max(1, len(keys)))
    found = {item.key: item for item in await backends.store.items(query)} if keys else {}
    for key in keys:
        if key not in found:
            raise _no_item(key)
        item = found[key]
        if item.wave > cart.wave and item.state in FINAL_ITEM_STATES:
            raise Conflict(
                f'the item "{key}" is {item.state} already',
                code="item_ended",
                hint="retry it first: then it can be changed until its wave opens",
            )
    return found


def _no_item(key: str) -> NotFound:
    return NotFound(f'the cart has no item "{key}"', code="item_not_found")
