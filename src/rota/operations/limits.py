"""Rate limits, named resources and quotas: how they stand, and changing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from rota.domain.errors import Invalid, NotFound, did_you_mean
from rota.domain.jobfile.declarations import declaration_document, declaration_in_words
from rota.domain.jobfile.export import Change, differences
from rota.domain.keys import KINDS, Declaration, Limit, Quota, Resource, Sharing, keys_of, name_of
from rota.domain.resources import NAMES_OF_WORKERS
from rota.operations.engine import Engine
from rota.ports.forecasts import ShareWeight
from rota.ports.records import Declared, KeyUse

D = TypeVar("D", Limit, Resource, Quota)


@dataclass(frozen=True, slots=True)
class Standing(Generic[D]):
    """A declaration, and how the keys behind it stand."""

    declaration: D
    updated_by: str
    updated_at: datetime
    uses: Mapping[str, KeyUse]  # by name; none of a limit with a bucket for each job or user
    now: datetime


@dataclass(frozen=True, slots=True)
class DeclarationChange:
    """Effect of saving a declaration."""

    name: str
    change: Change
    words: str
    differences: tuple[str, ...] = ()  # of a changed one: "tokens  10 → 20"


def in_words(declaration: Declaration) -> str:
    """Describe what a declaration allows, in a line."""
    if not isinstance(declaration, Quota):
        return declaration_in_words(declaration)
    parts = [
        f"{most:,} {name.replace('_', ' ')}"
        for name, most in _parts(declaration).items()
        if most is not None
    ]
    return ", ".join(parts) or "as much as it likes"


async def list_standings(
    engine: Engine, kind: type[D], project: str, *, after: str, limit: int
) -> list[Standing[D]]:
    """List declarations of one kind by name, those after a name."""
    found = await _declared(engine, kind, project)
    names = [name for name in found if name > after]
    return await _standings(engine, kind, [found[name] for name in names[:limit]])


async def find_standing(engine: Engine, kind: type[D], project: str, name: str) -> Standing[D]:
    """Find the limit or resource of a name."""
    found = await _declared(engine, kind, project)
    if name not in found:
        raise _unknown(kind, project, name, found)
    [standing] = await _standings(engine, kind, [found[name]])
    return standing


async def find_quota(engine: Engine, project: str) -> Standing[Quota] | None:
    """Find the quota of a project; None: it has no bound."""
    found = await _declared(engine, Quota, project)
    standings = await _standings(engine, Quota, list(found.values()))
    return standings[0] if standings else None


async def plan_declaration(engine: Engine, new: Declaration) -> DeclarationChange:
    """Return what saving it would change; write nothing."""
    _refuse_names_of_workers(new)
    found = await _declared(engine, type(new), new.project)
    old = found.get(new.name)
    return change_of(new, old.declaration if old else None)


def change_of(new: Declaration, old: Declaration | None) -> DeclarationChange:
    """Compare a declaration with the one it replaces, if there is one."""
    words = in_words(new)
    if old is None:
        return DeclarationChange(new.name, Change.NEW, words)
    if old == new:
        return DeclarationChange(new.name, Change.UNCHANGED, words)
    lines = differences(_document(old), _document(new))
    return DeclarationChange(new.name, Change.CHANGED, words, tuple(lines))


async def save_declaration(engine: Engine, new: Declaration, *, actor: str) -> DeclarationChange:
    """Create or replace it; waiting runs follow it at once."""
    change = await plan_declaration(engine, new)
    if change.change is not Change.UNCHANGED:
        await engine.store.save_declarations([new], actor=actor)
    return change


async def delete_declaration(
    engine: Engine, kind: type[Declaration], project: str, name: str, *, actor: str
) -> None:
    """Delete it, and release the runs that waited for it. `Conflict`: jobs use this resource."""
    was_there = await engine.store.delete_declaration(KINDS[kind], project, name, actor=actor)
    if not was_there:
        raise _unknown(kind, project, name, await _declared(engine, kind, project))


async def _declared(engine: Engine, kind: type[Declaration], project: str) -> dict[str, Declared]:
    found = await engine.store.declarations(project, KINDS[kind])
    return {each.declaration.name: each for each in found}


async def _standings(engine: Engine, kind: type[D], found: Sequence[Declared]) -> list[Standing[D]]:
    keys = [key for each in found for key in keys_of(each.declaration)]
    uses = await engine.store.key_uses(keys) if keys else {}
    now = await engine.store.now()
    return [
        Standing(
            each.declaration,
            each.updated_by,
            each.updated_at,
            {name_of(key): uses[key] for key in keys_of(each.declaration) if key in uses},
            now,
        )
        for each in found
        if isinstance(each.declaration, kind)
    ]


def _document(declaration: Declaration) -> dict[str, Any]:
    if isinstance(declaration, Quota):
        return {
            name: "unlimited" if most is None else most
            for name, most in _parts(declaration).items()
        }
    if isinstance(declaration, Resource):
        return {"kind": str(Sharing.COUNTED), **declaration_document(declaration)}
    return declaration_document(declaration)


def _parts(quota: Quota) -> dict[str, Any]:
    return {
        "jobs": quota.jobs,
        "queued": quota.queued,
        "running": quota.running,
        "runs_per_minute": quota.runs_per_minute,
        "output_bytes_per_day": quota.output_bytes_per_day,
        "file_bytes": quota.file_bytes,
    }


def _refuse_names_of_workers(new: Declaration) -> None:
    if isinstance(new, Resource) and new.name in NAMES_OF_WORKERS:
        raise Invalid(
            f"{new.name} is what workers offer",
            code="name_of_workers",
            hint="give it another name",
        )


def _unknown(
    kind: type[Declaration], project: str, name: str, known: Mapping[str, Declared]
) -> NotFound:
    if kind is Quota:
        return NotFound(f"project {project} has no quota", code="quota_not_found")
    word = "limit" if kind is Limit else "resource"
    return NotFound(
        f"no {word} named {name!r} in project {project}",
        code=f"{word}_not_found",
        hint=did_you_mean(name, known) or f"rota {word} list shows them",
    )


async def set_weight(engine: Engine, share: str, weight: float, *, actor: str) -> ShareWeight:
    """Set the weight of a share from the next claim on; 1 is the default."""
    await engine.store.set_share_weight(share, weight, actor=actor)
    [saved] = [each for each in await engine.store.share_weights() if each.share == share]
    return saved
