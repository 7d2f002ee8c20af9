"""Rate limits and named resources that a file declares: their tables, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from rota.domain.jobfile.build import Document
from rota.domain.jobfile.demands import MOST_TOKENS
from rota.domain.jobfile.kinds import INVALID, Choice, Duration, Integer
from rota.domain.jobfile.parts import SHORTEST
from rota.domain.jobfile.sections import NAME, Field, ListOf, Section
from rota.domain.jobfile.slips import LIMIT_ADVICE, RESOURCE_ADVICE
from rota.domain.jobfile.text import At, refuse_repeated
from rota.domain.keys import READERS, Each, Limit, Resource, Sharing
from rota.domain.quantities import format_duration, parse_duration
from rota.domain.resources import NAMES_OF_WORKERS

Shared: TypeAlias = Limit | Resource

MAX_DECLARATIONS = 1_000
MOST_TOTAL = READERS - 1  # so many units and more are a read/write group

LIMIT = Section(
    "limit",
    (
        Field("name", NAME, "Unique among the limits of its project.", required=True),
        Field("tokens", Integer(1, MOST_TOKENS), "How many tokens come.", required=True),
        Field(
            "per",
            Duration(SHORTEST),
            "The time in which they come.",
            examples=("1s",),
            required=True,
        ),
        Field(
            "burst",
            Integer(1, MOST_TOKENS),
            "How many may be taken at once after a rest; as many as `tokens`, unless given.",
        ),
        Field(
            "each",
            Choice(tuple(each for each in Each if each)),
            "Every run of the project takes a token, or as many as its job says, and each job, "
            "user or the project has tokens of its own; without it only the jobs that name the "
            "limit take some, and share them.",
        ),
    ),
    advice=LIMIT_ADVICE,
)

RESOURCE = Section(
    "resource",
    (
        Field("name", NAME, "Unique among the resources of its project.", required=True),
        Field(
            "total",
            Integer(1, MOST_TOTAL),
            "How many units there are; needed where they are counted.",
            examples=(4,),
        ),
        Field(
            "kind",
            Choice(Sharing),
            "Whether units are counted, one run has it all, or many read or one writes.",
            "counted",
        ),
    ),
    advice=RESOURCE_ADVICE,
)

DECLARATIONS = (
    Field(
        "limits",
        ListOf(LIMIT, most=MAX_DECLARATIONS),
        "Rate limits: in any t seconds at most burst + tokens ÷ per × t tokens are taken.",
        examples=([{"name": "s3-put", "tokens": 10, "per": "1s", "burst": 10}],),
    ),
    Field(
        "resources",
        ListOf(RESOURCE, most=MAX_DECLARATIONS),
        "Named resources that runs share, whatever worker they are on.",
        examples=([{"name": "pg-license", "total": 4}, {"name": "catalog", "kind": "read_write"}],),
    ),
)


def check_declarations(file: Document, written: Any, root: At) -> None:
    """Apply what a table of fields cannot say to the limits and resources of a file.

    `file` has passed its table; `written` is the same before that.
    """
    _refuse_repeated_names(file, root, "limits")
    _refuse_repeated_names(file, root, "resources")
    for index, document in enumerate(file.get("resources", ())):
        if document is not INVALID:
            _check_resource(
                document, written["resources"][index], root.child("resources").child(index)
            )


def build_declarations(file: Document, project: str) -> tuple[Shared, ...]:
    """Build the limits and resources of a file that has passed every check."""
    limits = [build_limit(document, project) for document in file.get("limits", ())]
    resources = [build_resource(document, project) for document in file.get("resources", ())]
    return (*limits, *resources)


def build_limit(document: Document, project: str) -> Limit:
    return Limit(
        project=project,
        name=document["name"],
        tokens=document["tokens"],
        per=parse_duration(document["per"]),
        burst=document.get("burst", document["tokens"]),
        each=Each(document.get("each", Each.NOBODY)),
    )


def build_resource(document: Document, project: str) -> Resource:
    sharing = Sharing(document.get("kind", Sharing.COUNTED))
    return Resource(project, document["name"], document.get("total", 1), sharing)


def declaration_document(declaration: Shared) -> dict[str, Any]:
    """Write the declaration in the file's vocabulary."""
    if isinstance(declaration, Resource):
        is_counted = declaration.sharing is Sharing.COUNTED
        amount = {"total": declaration.total} if is_counted else {"kind": str(declaration.sharing)}
        return {"name": declaration.name, **amount}
    return {
        "name": declaration.name,
        "tokens": declaration.tokens,
        "per": format_duration(declaration.per),
        "burst": declaration.burst,
        **({"each": str(declaration.each)} if declaration.each else {}),
    }


def declaration_in_words(declaration: Shared) -> str:
    """Describe what it allows, in a line."""
    match declaration:
        case Limit():
            return _limit_in_words(declaration)
        case Resource(sharing=Sharing.COUNTED):
            return f"{declaration.total:,} in all"
        case Resource(sharing=Sharing.MUTEX):
            return "one run at a time"
        case Resource():
            return "many read, or one writes"


def _limit_in_words(limit: Limit) -> str:
    tokens = "1 token" if limit.tokens == 1 else f"{limit.tokens:,} tokens"
    whose = f" for each {limit.each}" if limit.each else ""
    return f"{tokens} per {format_duration(limit.per)}{whose}, burst {limit.burst:,}"


def _refuse_repeated_names(file: Document, root: At, field: str) -> None:
    first: dict[str, At] = {}
    for index, document in enumerate(file.get(field, ())):
        if document is not INVALID and (name := document.get("name")):
            at = root.child(field).child(index).child("name")
            refuse_repeated(f"{field[:-1]} {name}", name, at, first)


def _check_resource(document: Document, written: Mapping[str, object], at: At) -> None:
    name, kind = document.get("name"), document.get("kind", Sharing.COUNTED)
    if name in NAMES_OF_WORKERS:
        at.child("name").refuse(f"{name} is what workers offer", "give it another name")
    if written.get("kind") not in (None, kind):
        return
    has_total = written.get("total") is not None
    if kind == Sharing.COUNTED and not has_total:
        at.refuse(f'{RESOURCE.scope(written, at)} has no "total"', "or write its kind")
    if kind != Sharing.COUNTED and has_total:
        at.child("total").refuse_key(f'"total" does not go with kind {kind}', "leave one out")
