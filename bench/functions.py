"""The app whose functions are measured."""

from __future__ import annotations

from bench import stamps
from rota.sdk.app import App
from rota.sdk.context import Context

app = App("bench")


@app.job()
def noop() -> None:
    stamps.tick()


@app.job()
def mark(ctx: Context) -> None:
    stamps.mark(ctx.due_at.timestamp())
