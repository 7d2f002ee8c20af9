"""Carts behind a gateway: handed in, advanced as their keeper would, and worked on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from rota.domain.access import Role
from rota.domain.ids import CartId
from tests.unit.server.gateway.served import Served, job

NDJSON = {"Content-Type": "application/x-ndjson"}
UPGRADE = job("upgrade", inputs={"host": {"type": "string", "default": "here"}})
SMOKE = job("smoke")


def item(key: str, **fields: object) -> dict[str, object]:
    return {"key": key, **fields}


def items(count: int) -> list[dict[str, object]]:
    """`db-0`, `db-1`, …"""
    return [item(f"db-{number}") for number in range(count)]


def cart(count: int = 3, /, **fields: object) -> dict[str, object]:
    return {"name": "rollout", "job": "upgrade", "items": items(count), **fields}


def header(count: int, /, **fields: object) -> dict[str, object]:
    """A cart whose items come line by line."""
    return {"name": "rollout", "job": "upgrade", "count": count, **fields}


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in documents)


@dataclass(frozen=True, slots=True)
class CartScene:
    """A gateway whose jobs are defined."""

    served: Served

    @classmethod
    async def set(cls, served: Served) -> CartScene:
        await served.apply(UPGRADE, SMOKE)
        return cls(served)

    async def send(
        self, document: dict[str, object], *, key: str = "", plan: bool = False
    ) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        params = {"plan": plan}
        return await self.served.post(
            "carts", Role.OPERATOR, json=document, headers=headers, params=params
        )

    async def stream(self, content: bytes, *, plan: bool = False) -> httpx.Response:
        params = {"plan": plan}
        return await self.served.post(
            "carts", Role.OPERATOR, content=content, headers=NDJSON, params=params
        )

    async def submit(self, count: int = 3, **fields: object) -> str:
        """The id of a cart that was taken; it has not begun yet."""
        answer = await self.send(cart(count, **fields))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    async def started(self, count: int = 3, **fields: object) -> str:
        """The same, with its first wave open."""
        made = await self.submit(count, **fields)
        await self.advance(made)
        return made

    async def advance(self, made: str) -> None:
        """Until it has nothing more to do by itself."""
        store = self.served.engine.store
        while (await store.advance_cart(CartId(made), None)).has_more:
            pass

    async def work(self, made: str, failing: Sequence[str] = ()) -> list[str]:
        """Do what is queued, and let the cart go on; returns the keys."""
        worker = await self.served.worker()
        done = await worker.claim()
        for work in done:
            await worker.finish(work, "FAILED" if work.item in failing else "COMPLETED")
        await self.advance(made)
        return [str(work.item) for work in done]

    async def play(self, made: str, failing: Sequence[str] = ()) -> dict[str, Any]:
        """Work until it ends or stands still."""
        await self.advance(made)
        while await self.work(made, failing):
            pass
        return await self.show(made)

    async def show(self, made: str = "rollout") -> dict[str, Any]:
        answer = await self.served.get(f"carts/{made}", Role.VIEWER)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def command(
        self, what: str, body: object = None, role: Role = Role.OPERATOR, of: str = "rollout"
    ) -> httpx.Response:
        return await self.served.post(f"carts/{of}:{what}", role, json=body)

    async def edit(self, body: object, **kwargs: Any) -> httpx.Response:
        return await self.served.patch("carts/rollout", json=body, **kwargs)

    async def keys(self, **params: Any) -> Sequence[str]:
        answer = await self.served.get("carts/rollout/items", Role.VIEWER, params=params)
        assert answer.status_code == 200, answer.text
        return [str(each["key"]) for each in answer.json()["items"]]


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["code"])


def faults(answer: httpx.Response) -> list[tuple[str, int | None]]:
    """Where something is wrong: path and line."""
    return [(each["path"], each["line"]) for each in answer.json()["errors"]]
