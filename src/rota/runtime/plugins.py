"""Plug-ins that the worker's settings name, and executor classes of its app: how they are loaded.

Nothing is loaded that is not named: what is installed beside Rota need not be meant for it. What is
wrong with one is the reason of its offer, and the worker goes on without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import structlog

from rota.domain.errors import RotaError
from rota.domain.json_schema import SchemaRefused, checked_schema
from rota.domain.spec import TYPE_NAME, is_plugin_type
from rota.domain.walls import OfferKind
from rota.executors.hosted import HostedCalls, HostedExecutor
from rota.plugins import API_VERSION, ENTRY_POINTS, Place, Plugin
from rota.ports.executor import Executor
from rota.ports.work import JobTypeNote, Offer, storable
from rota.sdk.app import PLUGIN, explain_import
from rota.sdk.host.wire import HostedType

log = structlog.get_logger()

_LONGEST_REASON = 1_000  # characters
_MOST_TYPES = 50  # of a worker: its hello has room for a hundred offers in all


class _Unusable(Exception):
    """A plug-in that cannot be used, and why."""


@dataclass(slots=True)
class Brought:
    """Types of plug-ins and of an app that a worker tried to have."""

    executors: dict[str, Executor] = field(default_factory=dict)
    offers: list[Offer] = field(default_factory=list)
    notes: list[JobTypeNote] = field(default_factory=list)

    def has(self, name: str, executor: Executor, version: int, schema: Mapping[str, Any]) -> None:
        self.executors[name] = executor
        self.offers.append(Offer(OfferKind.TYPE, name))
        self.notes.append(JobTypeNote(name, version, json.dumps(schema, sort_keys=True)))

    def lacks(self, name: str, reason: str) -> None:
        """Note why it is not there, in words that fit a hello whatever a plug-in raised."""
        told = storable(" ".join(reason.split()))[:_LONGEST_REASON]
        log.error("worker.without_type", type=name, reason=told)
        self.offers.append(Offer(OfferKind.TYPE, name, told))


async def bring_plugins(brought: Brought, names: Sequence[str], place: Place) -> None:
    """Load the plug-ins of these names."""
    installed = {point.name: point for point in entry_points(group=ENTRY_POINTS)} if names else {}
    for name in names[:_MOST_TYPES]:
        try:
            await _bring(brought, name, installed, place)
        except _Unusable as error:
            brought.lacks(name, str(error))
        except Exception as error:  # noqa: BLE001 - of strangers: it never stops the worker
            brought.lacks(name, f"it cannot be used: {type(error).__name__}: {error}")


async def _bring(
    brought: Brought, name: str, installed: Mapping[str, EntryPoint], place: Place
) -> None:
    plugin = _loaded(name, installed)
    if plugin.build is not None:
        schema = _checked(plugin.schema or {})
        brought.has(name, _built(plugin, place), plugin.api_version, schema)
        return
    calls = HostedCalls(place.reports, place.spawner, f"{PLUGIN}{name}={installed[name].value}")
    try:
        [hosted] = await calls.ready()
        schema = _checked(json.loads(hosted.schema) if plugin.schema is None else plugin.schema)
    except RotaError as error:
        await calls.close()
        raise _Unusable(str(error)) from error
    except Exception:
        await calls.close()  # else its host would stay
        raise
    executor = HostedExecutor(place.reports, place.remote, place.clock, calls, hosted)
    brought.has(name, executor, plugin.api_version, schema)


def _loaded(name: str, installed: Mapping[str, EntryPoint]) -> Plugin:
    if not TYPE_NAME.fullmatch(name) or not is_plugin_type(name):
        raise _Unusable("no plug-in can have this name: it is one of Rota's, or not in lower case")
    if name not in installed:
        others = f"; installed are {', '.join(sorted(installed))}" if installed else ""
        raise _Unusable(f"no installed package has the entry point {ENTRY_POINTS} {name}{others}")
    point = installed[name]
    try:
        plugin = point.load()
    except (Exception, SystemExit) as error:
        raise _Unusable(f"it cannot be loaded: {explain_import(point.value, error)}") from error
    version = getattr(plugin, "api_version", None)
    if version != API_VERSION:
        raise _Unusable(f"it has api_version {version}, and this release of Rota has {API_VERSION}")
    if not isinstance(plugin, Plugin):
        raise _Unusable(f"{point.value} is no rota.plugins.Plugin but a {type(plugin).__name__}")
    if plugin.type != name:
        raise _Unusable(
            f"its entry point is {name}, and its type {plugin.type}: they must be equal"
        )
    if (plugin.build is None) == (plugin.executor is None):
        raise _Unusable("it must have either an executor class or a function that builds one")
    return plugin


def _built(plugin: Plugin, place: Place) -> Executor:
    assert plugin.build is not None
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        built = plugin.build(place)
    except Exception as error:
        raise _Unusable(f"it cannot be built: {type(error).__name__}: {error}") from error
    for name in ("start", "cancel", "close"):
        if not callable(getattr(built, name, None)):
            raise _Unusable(f"what it builds has no {name}(), which an executor needs")
    return built


def _checked(schema: object) -> dict[str, Any]:
    try:
        return checked_schema(schema)
    except SchemaRefused as error:
        raise _Unusable(f"its schema cannot be used: {error}") from error


async def bring_classes(
    brought: Brought, types: Sequence[HostedType], app: str, place: Place
) -> None:
    """Serve the executor classes of an app, in a host beside that of its functions."""
    if not types:
        return
    calls = HostedCalls(place.reports, place.spawner, app)
    hosted = await calls.ready()
    taken = {offer.name for offer in brought.offers}
    for each in hosted[:_MOST_TYPES]:
        if each.name in taken:
            log.error("worker.type_twice", type=each.name, app=app)
            continue
        try:
            schema = _checked(json.loads(each.schema))
        except _Unusable as error:
            brought.lacks(each.name, str(error))
            continue
        executor = HostedExecutor(place.reports, place.remote, place.clock, calls, each)
        brought.has(each.name, executor, API_VERSION, schema)
