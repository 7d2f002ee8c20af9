"""Functions that behave as the conformance suite of executors asks for."""

# ruff: noqa: T201 (to print is what these functions are for)

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress

from rota import App, Context

app = App("conformance")
_HOUR = 3600
_LEFT_SECONDS = "987654321"  # that of the suite, which would bring pytest into the host


@app.job()
def succeed() -> None: ...


@app.job()
def speak() -> None:
    print("out 1")
    print("err 1", file=sys.stderr)
    print("out 2")


@app.job()
def fail() -> None:
    raise OSError("no water")


@app.job()
def result() -> dict[str, int]:
    return {"rows": 3}


@app.job()
async def hold() -> None:
    print("ready")
    try:
        await asyncio.sleep(_HOUR)  # noqa: TID251 (until it is cancelled)
    finally:
        print("tidy")


@app.job()
async def deaf() -> None:
    print("ready")
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(_HOUR)  # noqa: TID251 (and on)


@app.job()
async def progress(ctx: Context) -> None:
    ctx.progress(1, total=4, message="quarter")
    await asyncio.sleep(_HOUR)  # noqa: TID251 (until it is cancelled)


@app.job()
async def steps(ctx: Context) -> None:
    with ctx.step("one"):
        pass
    with ctx.step("two"):
        await hold()


@app.job()
def pour() -> None:
    for number in range(1, 500_001):
        print(number)


@app.job()
def leave() -> None:
    subprocess.Popen(["sleep", _LEFT_SECONDS], start_new_session=True)
