"""Templates of carts, and their due times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from rota.domain.errors import Conflict, StaleTransition
from rota.domain.ids import instant, micros, shard_of
from rota.ports.carts import DueTemplate, MissedCarts, NewTemplate, Template, TemplateChanges
from rota.store.rows import from_json, optional_instant, optional_micros, to_json
from rota.store.script import Many, Row, Script, query
from rota.store.tx import Tx


def save(tx: Tx, changes: TemplateChanges, actor: str) -> Script[None]:
    """Create, change and delete, all or none."""
    both: list[NewTemplate | Template] = [*changes.new, *changes.removed]
    for each in sorted(both, key=lambda each: (each.project, each.name)):
        try:
            yield _saved(tx.now, each, actor) if isinstance(each, NewTemplate) else _deleted(each)
        except StaleTransition as error:
            raise (yield from _conflict(each)) from error
    for kind, names in (
        ("cart.defined", [each.name for each in changes.new]),
        ("cart.deleted", [each.name for each in changes.removed]),
    ):
        if names:
            yield tx.record(kind, names, actor=actor)
            tx.effects.carts = True


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
    yield tx.record("cart.missed", [due.name], actor="scheduler", **told)


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
