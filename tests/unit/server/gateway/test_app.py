from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rota.server import gateway
from rota.server.gateway.app import api_routers
from rota.server.gateway.parameters import Router

ROUTES = '''
from rota.server.gateway.parameters import api_router

router = api_router("guests")


@router.get("/guests")
async def list_guests() -> dict[str, str]:
    """Whoever is here."""
    return {}
'''


def paths(routers: list[Router]) -> set[str]:
    return {getattr(route, "path", "") for router in routers for route in router.routes}


def test_module_that_is_added_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guests.py").write_text(ROUTES)
    monkeypatch.setattr(gateway, "__path__", [*gateway.__path__, str(tmp_path)])
    # What the import leaves behind is taken away with the patches.
    monkeypatch.setattr(gateway, "guests", None, raising=False)
    monkeypatch.setitem(sys.modules, "rota.server.gateway.guests", None)
    del sys.modules["rota.server.gateway.guests"]
    api_routers.cache_clear()

    try:
        found = list(api_routers())
    finally:
        api_routers.cache_clear()

    assert "/api/v1/guests" in paths(found)


def test_busy_routes_are_tried_first() -> None:
    first, *_ = api_routers()

    assert "/api/v1/jobs/{job}/runs" in paths([first])
