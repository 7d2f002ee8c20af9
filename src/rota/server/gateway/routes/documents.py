"""Descriptions for programs and people: the API, and the job file."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse

from rota.domain.jobfile import json_schema
from rota.server.gateway.openapi import openapi_document
from rota.server.gateway.pages import docs_page
from rota.server.gateway.wiring import Settings, api_router

router = api_router("documents")


@router.get("/schema")
async def show_job_file_schema() -> dict[str, Any]:
    """The JSON Schema of the job file."""
    return _job_file_schema()


@cache
def _job_file_schema() -> dict[str, Any]:
    return dict(json_schema())


@router.get("/openapi.json")
async def show_openapi(request: Request, settings: Settings) -> dict[str, Any]:
    """This API, as OpenAPI 3.1."""
    return openapi_document(request.app, settings)


@router.get("/docs", response_class=HTMLResponse)
async def show_docs(request: Request, settings: Settings) -> str:
    """This API, for people."""
    return docs_page(openapi_document(request.app, settings))
