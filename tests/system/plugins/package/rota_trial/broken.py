"""Plug-ins that cannot be used, each for its own reason."""

from __future__ import annotations

from rota.plugins import Plugin, RemoteRun


class Nothing:
    def submit(self, run: RemoteRun) -> str:
        return run.id

    def status(self, handle: str) -> str:
        return "completed"


tomorrow = Plugin(api_version=2, type="tomorrow", executor=Nothing)
nameless = Plugin(api_version=1, type="other", executor=Nothing)
schemaless = Plugin(
    api_version=1,
    type="schemaless",
    executor=Nothing,
    schema={"type": "object", "patternProperties": {"^x": {}}},
)
