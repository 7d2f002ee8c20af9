"""Carts as people look at them, and their templates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from operator import itemgetter

from rota.domain.carts.facts import ItemState
from rota.domain.errors import Conflict, StaleTransition
from rota.domain.ids import CartId, JobId, RunId, instant, micros, shard_of
from rota.domain.states import RunState
from rota.ports.carts import (
    Cart,
    CartLook,
    CartQuery,
    DueTemplate,
    FailureGroup,
    Item,
    ItemQuery,
    MissedCarts,
    NewTemplate,
    Overview,
    Selection,
    StrandedItem,
    Template,
    TemplateChanges,
    Wave,
)
from rota.store.rows import (
    by_kind,
    cart_from,
    cart_rules_from,
    from_json,
    item_from,
    like_pattern,
    optional_instant,
    optional_micros,
    project_filter,
    reasons_from,
    to_json,
)
from rota.store.script import Many, Query, Row, Script, query
from rota.store.sessions import served_pools
from rota.store.tx import Tx

_LATER_THAN_ALL = 2**62
_STRANDED_SHOWN = 10


def carts(wanted: CartQuery, /) -> Script[list[Cart]]:
    rows = yield _carts_query(wanted)
    return [cart_from(row) for row in rows]


def _carts_query(wanted: CartQuery) -> Query:
    if wanted.ids is not None:
        return query("select_carts_by_id", ids=wanted.ids, **project_filter(wanted.project))
    if wanted.id_prefix is not None:
        return query(
            "select_carts_by_prefix",
            id_from=wanted.id_prefix,
            id_to=wanted.id_prefix + "\x7f",  # sorts after all that an id can go on with
            project=wanted.project,
            limit=wanted.limit,
        )
    before = wanted.before
    filters = {
        "before_at": micros(before[0]) if before else _LATER_THAN_ALL,
        "before_id": before[1] if before else "",
        "name": wanted.name,
        "name_like": like_pattern(wanted.name_like),
        "any_state": int(not wanted.states),
        "states": wanted.states,
        "limit": wanted.limit,
    }
    if wanted.created_by is not None:
        among = project_filter(wanted.project)
        return query("select_carts_of_user", created_by=wanted.created_by, **among, **filters)
    if isinstance(wanted.project, str):
        return query("select_carts", project=wanted.project, **filters)
    return query("select_carts_of_projects", **project_filter(wanted.project), **filters)


def items(wanted: ItemQuery, /) -> Script[list[Item]]:
    served = yield from served_pools()
    rows = yield query(
        "select_items",
        cart=wanted.cart,
        after=wanted.after,
        any_state=int(not wanted.states),
        states=wanted.states,
        wave=wanted.wave,
        cause=wanted.cause,
        only_attempted=int(wanted.only_attempted),
        any_key=int(wanted.keys is None),
        keys=wanted.keys or (),
        limit=wanted.limit,
    )
    return [item_from(row, served) for row in rows]


def selected(cart: CartId, selection: Selection) -> dict[str, object]:
    """The parameters of statements about a selection of items."""
    return {
        "cart": cart,
        "states": [state.value for state in selection.states],
        "from_wave": selection.from_wave or 0,
        "any_key": int(selection.keys is None),
        "keys": list(selection.keys or ()),
        "cause": selection.cause,
    }


def versions(cart: CartId, selection: Selection) -> Script[list[tuple[JobId, int]]]:
    rows = yield query("versions_of_items", **selected(cart, selection))
    return [(JobId(row["job_id"]), row["job_version"]) for row in rows]


def waves(cart: CartId, after: int, limit: int) -> Script[list[Wave]]:
    counts: dict[int, dict[ItemState, int]] = defaultdict(dict)
    for row in (yield query("select_waves", cart=cart, after=after, limit=limit)):
        counts[row["wave"]][ItemState(row["state"])] = row["count"]
    return [Wave(number, counts[number]) for number in sorted(counts)]


def overview(cart: Cart, waves: int) -> Script[Overview]:
    opened = cart.current_wave or cart.wave
    states = yield query("item_states", cart=cart.id)
    [places] = yield query("wave_places", cart=cart.id, wave=opened)
    left = yield query("unfinished_waves", cart=cart.id, limit=waves)
    current = opened or (left[0]["wave"] if left else 0)
    in_wave = yield query("wave_states", cart=cart.id, wave=current)
    served = yield from served_pools()
    runs = yield query("open_runs_seen", cart=cart.id, served=served)
    return Overview(
        items={ItemState(row["state"]): row["count"] for row in states},
        in_wave={ItemState(row["state"]): row["count"] for row in in_wave},
        waves=places["total"],
        place=places["place"] if opened else 0,
        left=[row["count"] for row in left],
        next_wave=left[0]["wave"] if left else None,
        open_runs={RunState(row["seen"]): row["count"] for row in runs},
        stranded=(yield from _stranded(cart)) if cart.open else (),
    )


def _stranded(cart: Cart) -> Script[list[StrandedItem]]:
    rows = yield query("stranded_items", cart=cart.id, limit=_STRANDED_SHOWN)
    return [
        StrandedItem(
            row["key"],
            RunId(row["id"]),
            reasons_from(row["reasons"])[0].message,
            optional_instant(row["drop_at"]),
        )
        for row in rows
    ]


def failure_groups(cart: CartId, limit: int) -> Script[list[FailureGroup]]:
    rows = yield query("select_failure_groups", cart=cart, limit=limit)
    return [
        FailureGroup(row["cause"], row["count"], row["key"], row["run"], row["message"] or "")
        for row in rows
    ]


def cells(cart: CartId) -> Script[list[str]]:
    served = yield from served_pools()
    rows = yield query("select_cells", cart=cart, served=served)
    return [state for row in rows for state in row["states"].split()]


def to_advance(now: int, shards: Collection[int], limit: int) -> Script[list[CartLook]]:
    rows = yield query("carts_due", now=now, shards=shards, limit=limit)
    return [
        CartLook(CartId(row["id"]), row["project"], cart_rules_from(row["rules"]).calendars)
        for row in rows
    ]


def next_look() -> Script[datetime | None]:
    [row] = yield query("next_cart_look")
    return optional_instant(row["look_at"])


def save(tx: Tx, changes: TemplateChanges, actor: str) -> Script[None]:
    """Create, change and delete, all or none."""
    # New and removed ones together, by name: their rows are locked in one order.
    both: list[NewTemplate | Template] = [*changes.new, *changes.removed]
    for each in sorted(both, key=lambda each: (each.project, each.name)):
        try:
            yield _saved(tx.now, each, actor) if isinstance(each, NewTemplate) else _deleted(each)
        except StaleTransition as error:
            raise (yield from _conflict(each)) from error
    tx.effects.carts |= bool(both)
    for kind, names in (
        ("cart.defined", [(each.project, each.name) for each in changes.new]),
        ("cart.deleted", [(each.project, each.name) for each in changes.removed]),
    ):
        for project, same in by_kind(names, itemgetter(0)).items():
            tx.record_in(project, kind, [name for _, name in same], actor=actor)


def _saved(now: int, template: NewTemplate, actor: str) -> Many:
    told = (
        to_json(template.document),
        template.digest,
        template.set_name,
    )
    times = (optional_micros(template.next_at), micros(template.anchor))
    if not template.expected_version:
        shard = shard_of(f"{template.project}/{template.name}")
        values = (template.project, template.name, *told, shard, *times, actor, now)
        return Many("insert_template", [values])
    seen = (template.expected_version, optional_micros(template.expected_next_at))
    place = (template.project, template.name, *seen)
    return Many("update_template", [(*told, *times, actor, now, *place)])


def _deleted(template: Template) -> Many:
    return Many("delete_template", [(template.project, template.name, template.version)])


def _conflict(refused: NewTemplate | Template) -> Script[Conflict]:
    """Whether somebody changed a template meanwhile, or only its schedule went on."""
    expected = refused.version if isinstance(refused, Template) else refused.expected_version
    stands = yield from find(refused.project, [refused.name])
    if [each.version for each in stands] == [expected]:
        return Conflict(f"the cart {refused.name} became due meanwhile", code="schedule_moved")
    return Conflict(
        f"the cart {refused.name} was changed by someone else meanwhile",
        code="template_changed",
        hint="look at the new version and apply again",
    )


def find(project: str, names: Sequence[str] | None = None) -> Script[list[Template]]:
    rows = yield query(
        "select_templates", project=project, any_name=int(names is None), names=names or ()
    )
    return [_template(row) for row in rows]


def due(now: int, shards: Collection[int], limit: int) -> Script[list[Template]]:
    rows = yield query("due_templates", now=now, shards=shards, limit=limit)
    return [_template(row) for row in rows]


def next_due() -> Script[datetime | None]:
    [row] = yield query("next_due_template")
    return optional_instant(row["next_at"])


def pass_over(tx: Tx, due: DueTemplate, missed: MissedCarts) -> Script[None]:
    """Answer due times without a cart."""
    try:
        yield moved(due)
    except StaleTransition:
        return
    told: dict[str, object] = {
        "due_at": due.due_at.isoformat(),
        "last": missed.last.isoformat(),
        "count": missed.count,
        "cause": missed.cause,
    }
    if missed.message:
        told["message"] = missed.message
    tx.record_in(due.project, "cart.missed", [due.name], actor="scheduler", **told)


def moved(due: DueTemplate) -> Many:
    """A due time is answered; `StaleTransition` if somebody has done so."""
    next_at = optional_micros(due.next_at)
    return Many(
        "move_template", [(next_at, due.project, due.name, due.version, micros(due.due_at))]
    )


def _template(row: Row) -> Template:
    return Template(
        project=row["project"],
        name=row["name"],
        version=row["version"],
        document=from_json(row["document"]),
        digest=row["digest"],
        set_name=row["set_name"],
        next_at=optional_instant(row["next_at"]),
        anchor=instant(row["anchor"]),
        updated_by=row["updated_by"],
        updated_at=instant(row["updated_at"]),
    )
