"""Templates of carts, and their due times."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rota.adapters.store.rows import from_json, optional_instant, optional_micros, to_json
from rota.adapters.store.script import Many, Row, Script, query
from rota.adapters.store.scripts.effects import record
from rota.domain.errors import Conflict, StaleTransition
from rota.domain.ids import instant, micros, shard_of
from rota.ports.carts import DueTemplate, NewTemplate, Template
from rota.ports.records import Wakes


def save(
    now: int, new: Sequence[NewTemplate], removed: Sequence[Template], actor: str
) -> Script[Wakes]:
    """Create, change and delete, all or none."""
    for template in sorted(new, key=lambda each: (each.project, each.name)):
        try:
            yield _saved(now, template, actor)
        except StaleTransition as error:
            raise _changed_meanwhile(template.name) from error
    for gone in sorted(removed, key=lambda each: (each.project, each.name)):
        try:
            yield Many("delete_template", [(gone.project, gone.name, gone.version)])
        except StaleTransition as error:
            raise _changed_meanwhile(gone.name) from error
    for kind, names in (
        ("cart.defined", [each.name for each in new]),
        ("cart.deleted", [each.name for each in removed]),
    ):
        if names:
            yield record(kind, now, names, actor=actor)
    return Wakes(carts=True)


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
    place = (template.project, template.name, template.expected_version)
    return Many("update_template", [(*told, *times, actor, now, *place)])


def _changed_meanwhile(name: str) -> Conflict:
    return Conflict(
        f"the cart {name} was changed meanwhile", code="changed_meanwhile", hint="plan again"
    )


def find(project: str, names: Sequence[str] | None) -> Script[list[Template]]:
    rows = yield query(
        "select_templates", project=project, any_name=int(names is None), names=names or ()
    )
    return [_template(row) for row in rows]


def due(now: int, shards: Collection[int], limit: int) -> Script[list[Template]]:
    rows = yield query("due_templates", now=now, shards=shards, limit=limit)
    return [_template(row) for row in rows]


def pass_over(now: int, due: DueTemplate, cause: str) -> Script[None]:
    """Answer a due time without a cart."""
    try:
        yield moved(due)
    except StaleTransition:
        return
    told = {"due_at": due.due_at.isoformat(), "cause": cause}
    yield record("cart.missed", now, [due.name], actor="scheduler", **told)


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
