"""The few pages for people: plain HTML, no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from rota.server.gateway.auth import API


def start_page(version: str) -> str:
    return _page(
        "Rota is running",
        f"<p>Version {escape(version)}. The web interface is not part of this version.</p>"
        f'<p>The API is described in <a href="{API}/docs">{API}/docs</a>.</p>'
        "<p>In a terminal: <code>rota job list</code>, <code>rota run list</code>, "
        "<code>rota --help</code>.</p>",
    )


def message_page(title: str, text: str) -> str:
    return _page(title, f"<p>{escape(text)}</p>")


def docs_page(document: Mapping[str, Any]) -> str:
    """Every operation of an OpenAPI document."""
    rows = "".join(_rows(document))
    return _page(
        f"{document['info']['title']} {document['info']['version']}",
        f'<p>For programs: <a href="{API}/openapi.json">openapi.json</a> (OpenAPI 3.1).</p>'
        f"<table><tr><th>method</th><th>path</th><th>role</th><th>what</th></tr>{rows}</table>",
    )


def _rows(document: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            what = operation.get("description") or operation.get("summary", "")
            cells = (method.upper(), path, operation.get("x-rota-role", "–"), what)
            yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"</head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
