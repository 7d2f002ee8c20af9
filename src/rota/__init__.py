"""Rota, a distributed job scheduler.

The public names are those of the Python SDK. They are imported at first use, so that `import rota`
costs next to nothing; their types are in the stub beside this file.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_NAMES = {
    "app": ("App",),
    "cart_drafts": ("AsyncCartHandle", "CartDraft", "CartHandle"),
    "client": ("AsyncClient", "Client"),
    "context": ("Cancelled", "Context"),
    "errors": (
        "CartFailed",
        "CartPaused",
        "Conflict",
        "Denied",
        "Invalid",
        "NotFound",
        "NotRota",
        "RotaApiError",
        "RunNotCompleted",
        "Unavailable",
        "Unreachable",
    ),
    "external": ("AsyncExternalRun", "ExternalRun"),
    "executors": ("NotSubmitted", "RemoteRun", "Status"),
    "functions": ("DefinedJob", "JobFunction"),
    "options": ("Retry", "cron", "every"),
    "runs": ("AsyncRunHandle", "RunHandle", "RunResult"),
}
_MODULES = {name: f"rota.sdk.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
