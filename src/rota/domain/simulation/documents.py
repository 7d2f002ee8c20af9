"""A report as plain data, for programs; times are seconds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rota.domain.simulation.report import Report


def report_document(report: Report) -> dict[str, Any]:
    """JSON-able; things that have a name are lists of mappings with it."""
    document = asdict(report)
    document["jobs"] = [{"name": name, **each} for name, each in document["jobs"].items()]
    document["shares"] = [{"name": name, **each} for name, each in document["shares"].items()]
    document["priorities"] = [
        {"priority": priority, **each} for priority, each in document["priorities"].items()
    ]
    return document
