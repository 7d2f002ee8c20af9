"""What a type checker sees of the SDK; nothing here is ever run, only checked with all code.

Every wrong use carries the error it must give: an ignore that is not needed is an error too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import assert_type

from rota import (
    App,
    AsyncCartHandle,
    AsyncClient,
    CartHandle,
    Client,
    Context,
    Retry,
    RunHandle,
    cron,
    every,
)
from rota.sdk.answers import Event, JobDetail, Page, Run, RunDetail
from rota.sdk.exchange import Call

app = App("typed")


@app.job(schedule=cron("0 2 * * *", tz="Europe/Berlin"), retry=Retry(3), timeout="1h")
def backup(ctx: Context, target: str = "all") -> int:
    return len(target)


@app.job(schedule=every("10s"))
async def poll(url: str, *, tries: int) -> list[str]:
    return [url] * tries


@app.job()
async def watch(ctx: Context, url: str) -> bool:
    return ctx.cancelled


@app.job()
def tidy() -> None: ...


async def right_uses(client: Client, loop: AsyncClient) -> None:
    assert_type(backup("orders"), int)
    assert_type(backup.submit(target="orders"), RunHandle[int])
    assert_type(backup.submit().wait(timeout=60).output, int)
    assert_type(await poll("u", tries=1), list[str])
    assert_type(poll.submit("u", tries=1).wait().output, list[str])
    assert_type((await (await watch.asubmit("u")).wait()).output, bool)
    assert_type(backup.with_options(priority=8).submit("a").id, str)
    assert_type(client.get_job("tidy"), JobDetail)
    assert_type(client.trigger("tidy", {"a": 1}, priority=3), Run)
    assert_type(await loop.trigger("tidy", {"a": 1}, priority=3), Run)
    assert_type(Client.list_runs(job="tidy"), Call[Page[Run]])
    assert_type(client.wait("r_1", timeout_seconds=3), RunDetail)
    assert_type(await loop.wait("r_1"), RunDetail)
    assert_type(client.follow_events(after=3), Generator[Event, None, None])
    assert_type(loop.follow_events(), AsyncGenerator[Event, None])
    tidy.submit()
    cart = app.cart("roll-out", order="groups", group_size=[1, "10%"], failures={"allow": "2%"})
    cart.add(backup, key="a", target="orders")
    cart.add(poll, key="b", order=2, url="u", tries=3)
    cart.add("by-name", key="c", anything=1)
    assert_type(cart.submit(), CartHandle)
    assert_type(cart.submit().retry(skipped=True), int)
    assert_type(await cart.asubmit(), AsyncCartHandle)
    assert_type(await (await cart.asubmit()).retry(keys=["a"]), int)


async def wrong_uses(client: Client, loop: AsyncClient) -> None:
    backup.submit(target=3)  # type: ignore[arg-type]
    backup.submit(tarket="orders")  # type: ignore[call-arg]
    poll.submit("u")  # type: ignore[call-arg]
    await watch.asubmit(1)  # type: ignore[arg-type]
    tidy.submit(1)  # type: ignore[call-arg]
    client.get_job(1)  # type: ignore[arg-type]
    await loop.get_job(1)  # type: ignore[arg-type]
    client.get_job("tidy", limit=3)  # type: ignore[call-arg]
    client.wait("r_1", "long")  # type: ignore[arg-type]
    loop.follow_log("r_1", from_line="first")  # type: ignore[arg-type]
    app.job(scedule="@daily")  # type: ignore[call-arg]
    app.job(overlap="never")  # type: ignore[arg-type]
    cart = app.cart("roll-out", order="backwards")  # type: ignore[arg-type]
    cart.add(backup, key="a", target=3)  # type: ignore[call-overload]
    cart.add(poll, key="b", url="u")  # type: ignore[call-overload]
    cart.add("by-name")  # type: ignore[call-overload]
    cart.submit().cancel("later")  # type: ignore[arg-type]
    await (await cart.asubmit()).resume(alow=3)  # type: ignore[call-arg]
