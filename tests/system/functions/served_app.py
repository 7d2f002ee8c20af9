"""The app whose functions the tests run in a host of its own process."""

# ruff: noqa: T201 (to print is what these functions are for)

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
from collections.abc import Iterable
from contextvars import copy_context

from rota import App, Context

app = App("served")


@app.job()
def nothing() -> None: ...


@app.job()
async def nothing_async() -> None: ...


@app.job()
def add(first: int, second: int = 10) -> int:
    return first + second


@app.job()
def count(hosts: list[str], extra: Iterable[int] = ()) -> dict[str, int]:
    return {host: len(host) for host in hosts}


@app.job()
def tell(ctx: Context) -> dict[str, object]:
    return {
        "run": ctx.run_id,
        "job": ctx.job,
        "project": ctx.project,
        "attempt": ctx.attempt,
        "fence": ctx.fence,
        "due_at": ctx.due_at,
        "inputs": dict(ctx.inputs),
    }


@app.job()
def talk(word: str) -> None:
    print(word)
    print(f"{word}!", file=sys.stderr)
    sys.stdout.buffer.write(b"\xff\n")


@app.job()
async def talk_async(word: str) -> None:
    print(word)
    await asyncio.sleep(0)  # noqa: TID251 (lets the others talk)
    print(word)


@app.job()
def work_in_steps(ctx: Context) -> None:
    ctx.progress(1, total=4, message="dumping")
    with ctx.step("dump"):
        ctx.log("dumped")
    with ctx.step("ship"):
        raise OSError("no room")


@app.job()
def fail() -> None:
    raise ValueError("a \ud800 in the works")


@app.job()
def leave() -> None:
    sys.exit(3)


@app.job()
def return_a_thread() -> object:
    return threading.current_thread()


@app.job()
def crash() -> None:
    ctypes.string_at(0)


@app.job()
def exit_hard(ctx: Context) -> None:
    ctx.progress(1)
    os._exit(7)


@app.job()
def wait(ctx: Context) -> None:
    ctx.progress(1)
    while True:
        threading.Event().wait(0.005)


@app.job()
async def wait_async(ctx: Context) -> None:
    ctx.progress(1)
    await asyncio.Event().wait()


@app.job()
def end_gracefully(ctx: Context) -> str:
    ctx.progress(1)
    try:
        while not ctx.cancelled:
            threading.Event().wait(0.005)
    except BaseException:  # noqa: BLE001 (whichever way it is told first)
        return "tidied up"
    return "tidied up"


@app.job()
def ignore_everything(ctx: Context) -> None:
    ctx.progress(1)
    while True:
        try:
            threading.Event().wait(0.005)
        except BaseException:  # noqa: BLE001 (what this function is for)
            continue


@app.job()
def spin() -> None:
    for _ in range(3_000):
        pass


@app.job()
async def spin_async() -> None:
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 (a point at which it can be cancelled)


@app.job()
def environment() -> list[str]:
    return sorted(name for name in os.environ if name.startswith("ROTA_"))


_released = threading.Event()
_left: list[threading.Thread] = []


@app.job()
def leave_a_thread(ctx: Context) -> None:
    def print_later() -> None:
        _released.wait()
        print("too late")
        ctx.progress(2)

    _left.append(threading.Thread(target=copy_context().run, args=[print_later]))
    _left[-1].start()


@app.job()
def release_the_thread() -> None:
    _released.set()
    _left[-1].join()


@app.job()
def flood(megabytes: int) -> None:
    line = "x" * 1023 + "\n"
    for _ in range(megabytes * 1024):
        print(line, end="")
