"""Large files are parsed elsewhere, one at a time for each caller, and at bounded cost."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import ClientDisconnect

from rota.domain.access import Role
from rota.domain.carts.definition import CartTemplate
from rota.domain.errors import Invalid, Unavailable
from rota.domain.jobfile import JobFile, read_file
from rota.domain.jobfile.carts import CartEntry
from rota.domain.jobfile.read import JobEntry
from rota.operations.tokens import create_token
from rota.server.gateway import parsing_wire
from rota.server.gateway.parsers import (
    FileCheck,
    Header,
    ReadItems,
    WholeCart,
    check_job_file,
    parse_calendar,
    parse_cart,
    parse_header,
    parse_items,
    parse_job_file,
    parse_job_file_with_items,
)
from rota.server.gateway.parsing import ParsingLimits, ParsingPool, _Child
from rota.server.gateway.parsing_wire import Order, packed_order, packed_parts, read_part
from testkit.waiting import eventually
from tests.unit.docs.pages import ROOT
from tests.unit.server.gateway.hard_files import (
    babble,
    begun,
    dawdle,
    die,
    drone,
    grab,
    name_of_process,
    spin,
    variables,
)
from tests.unit.server.gateway.served import YAML, Served, job

pytestmark = pytest.mark.anyio

EVERYTHING = """
calendars:
  - {name: office, windows: ["Sat,Sun 00:00-06:00", "day 1,15,L"], timezone: Europe/Berlin}
jobs:
  - {name: a, schedule: [0 2 * * *, every 5m], calendars: [office], steps: [{run: x}]}
  - {name: b, after: [a], inputs: {host: {default: x}}, needs: {gpu: a100}, steps: [{run: x}]}
carts: [{name: c, job: b, items: [{key: k, with: {host: y}}], failures: {allow: 10%}}]
"""
TEXTS = {
    name: (ROOT / "examples" / name).read_text()
    for name in ("jobs.yaml", "scarce.yaml", "welcome.yaml")
} | {"everything": EVERYTHING}
_CART = {
    "name": "c",
    "job": "b",
    "order": "groups",
    "group_size": [1, "12.5%"],
    "failures": {"allow": "2.5%"},
    "between": {"wait": "5m"},
    "priority": 3,
}
_ITEMS = [{"key": "k", "with": {"n": 1, "x": 1.5, "is": True, "t": "é"}}, {"key": "l", "job": "x"}]
_LINES = "\n".join(json.dumps(each) for each in [*_ITEMS, {"ky": "m"}]).encode()
# A function, what it is given, and its options.
BODIES: dict[str, tuple[Callable[..., object], bytes, dict[str, Any]]] = {
    "calendar": (parse_calendar, b"windows: [Dec 24]\nholidays: {country: DE}", {"name": "x"}),
    "checked file": (check_job_file, EVERYTHING.encode(), {"name": None, "project": "default"}),
    "file with carts": (
        parse_job_file,
        b"carts: [{name: c, job: x, items_from: a.csv}, {name: d, job: x, schedule: 0 2 * * *,"
        b" items_from: {workers: {site: fra}}}]",
        {"name": None, "project": "shop"},
    ),
    "file with items": (
        parse_job_file_with_items,
        json.dumps("carts: [{name: c, job: x, items_from: a.csv}]").encode()
        + b'\n{"cart": "c", "key": "k", "order": 3}',
        {"name": None, "project": "default"},
    ),
    "whole cart": (parse_cart, json.dumps({**_CART, "items": _ITEMS}).encode(), {}),
    "template": (
        parse_cart,
        b'{"template": "c", "with": {"n": 5}, "starts_at": "2999-01-01T00:00:00Z"}',
        {},
    ),
    "header": (parse_header, json.dumps({**_CART, "count": 3}).encode(), {"line": 1}),
    "items": (parse_items, _LINES, {"line": 7, "seen": 5, "count": 9}),
}
LIMITS = ParsingLimits(in_place=100, processes=1, waiting=1, waiting_of_caller=1)
AT_ONCE = 5  # seconds: a refusal waits for nothing
FINE = FileCheck(frozenset({"default"}), ())  # of a file without warnings
NDJSON = {"Content-Type": "application/x-ndjson"}
HERE: dict[str, Any] = {"name": None, "project": "default"}


def file_of(jobs: int, **fields: object) -> bytes:
    named = [job(f"job-{number}", **fields) for number in range(jobs)]
    return json.dumps({"jobs": named}).encode()


def lines_of(cart: str, items: int) -> bytes:
    header = {"name": cart, "job": "tidy", "count": items}
    return "\n".join(
        [json.dumps(header), *(f'{{"key": "k{number}"}}' for number in range(items))]
    ).encode()


@asynccontextmanager
async def pool_with(limits: ParsingLimits = LIMITS) -> AsyncIterator[ParsingPool]:
    pool = ParsingPool(limits)
    try:
        yield pool
    finally:
        await pool.close()
        assert pool.pids == []


@pytest.fixture
async def pool(anyio_backend: str) -> AsyncIterator[ParsingPool]:
    async with pool_with() as pool:
        yield pool


async def soon(claim: Callable[[], object]) -> None:
    """Wait for something that this event loop brings about."""
    await asyncio.to_thread(eventually, claim)


class TestChildren:
    @pytest.mark.parametrize("name", TEXTS)
    async def test_what_they_parse_is_what_would_be_parsed_here(
        self, pool: ParsingPool, name: str
    ) -> None:
        text = TEXTS[name]

        parsed = await pool.parse(parse_job_file, text.encode(), name="shop", project="default")

        assert isinstance(parsed, JobFile)
        assert parsed == read_file(text, name="shop", project="default")
        assert len(pool.pids) == 1

    @pytest.mark.parametrize("name", BODIES)
    async def test_so_is_all_else_that_they_parse(self, pool: ParsingPool, name: str) -> None:
        function, body, options = BODIES[name]

        parsed = await pool.parse(function, body + b" " * 100, **options)

        here = function(body, **options)
        assert (type(parsed), parsed) == (type(here), here)
        assert len(pool.pids) == 1

    async def test_a_long_answer_comes_in_parts_that_are_short(self, pool: ParsingPool) -> None:
        steps = [{"run": f"echo {number} " + "x" * 500} for number in range(200)]
        items = [{"key": f"{number}" + "k" * 50} for number in range(5_000)]
        carts = [{"name": "many", "job": "job-1", "items": items}]
        document = {"jobs": [job(f"job-{n}", steps=steps) for n in range(10)], "carts": carts}
        file = read_file(json.dumps(document), name="shop")

        parts = list(packed_parts(file))

        assert max(map(len, parts)) < 256 * 1024
        assert len(parts) > 10
        body = json.dumps(document).encode()
        assert await pool.parse(parse_job_file, body, name="shop", project="default") == file

    async def test_a_child_that_does_not_speak_as_agreed_is_given_up(
        self, pool: ParsingPool
    ) -> None:
        with pytest.raises(Unavailable) as lost:
            await pool.parse(babble, b"x" * 101)

        assert lost.value.code == "reader_died"
        assert await pool.parse(check_job_file, file_of(3), **HERE) == FINE

    async def test_an_answer_without_an_end_is_given_up(self) -> None:
        async with pool_with(replace(LIMITS, found=4 * 1024 * 1024)) as pool:
            with pytest.raises(Unavailable, match="bytes") as lost:
                await pool.parse(drone, b"x" * 101)

            assert lost.value.code == "reader_died"
            assert len(pool.pids) == 0

    async def test_one_whose_answer_nobody_reads_is_killed_all_the_same(self) -> None:
        child = await _Child.start(LIMITS.memory)
        process: Any = child._process
        for part in (packed_order(Order.of(drone, {}, 60.0, 0)), b"x"):
            process.stdin.write(len(part).to_bytes(4, "big") + part)
        await soon(lambda: not process.stdout._transport.is_reading())

        async with asyncio.timeout(AT_ONCE):
            await child.kill()

        assert not child.is_alive

    async def test_defaults_that_are_written_out_in_thousands_of_jobs_are_bounded(self) -> None:
        defaults = {"env": {"A": "x" * 5_000}}
        named = [job(f"job-{number}") for number in range(1_000)]
        body = json.dumps({"defaults": defaults, "jobs": named}).encode()

        async with pool_with(replace(LIMITS, found=4 * 1024 * 1024)) as pool:
            with pytest.raises(Invalid, match="defaults") as refused:
                await pool.parse(parse_job_file, body, **HERE)

            assert refused.value.code == "too_large"
            assert await pool.parse(check_job_file, body, **HERE) == FINE

    @pytest.mark.parametrize(
        ("told", "domain", "apart"),
        [
            (parsing_wire._Job, JobEntry, set()),
            (parsing_wire._File, JobFile, {"jobs", "carts", "declarations"}),
            (parsing_wire._Template, CartTemplate, {"items"}),
            (parsing_wire._Cart, CartEntry, set()),
            (parsing_wire._Header, Header, set()),
            (parsing_wire._WholeCart, WholeCart, set()),
            (parsing_wire._ReadItems, ReadItems, {"items"}),
        ],
    )
    def test_nothing_of_what_is_parsed_is_left_out(
        self, told: type[msgspec.Struct], domain: Any, apart: set[str]
    ) -> None:
        names = [field.name for field in fields(domain) if field.name not in apart]

        assert [name for name in told.__struct_fields__ if name in names] == names

    def test_no_part_of_an_answer_can_be_anything_else(self) -> None:
        for data in (b"", b"\x80\x04}.", b"\x93\xa5_File"):
            with pytest.raises(msgspec.MsgspecError):
                read_part(data)

    async def test_problems_keep_their_places(self, pool: ParsingPool) -> None:
        text = "jobs:\n" + "  - name: a\n    stepz: []\n" * 5

        with pytest.raises(Invalid) as refused:
            await pool.parse(parse_job_file, text.encode(), **HERE)
        with pytest.raises(Invalid) as here:
            read_file(text, name=None)

        assert refused.value.problems == here.value.problems
        assert (refused.value.code, refused.value.hint) == (here.value.code, here.value.hint)

    async def test_small_files_need_none(self, pool: ParsingPool) -> None:
        assert await pool.parse(check_job_file, b"jobs: []", **HERE) == FINE
        assert await pool.parse(name_of_process, b"x" * 100) == os.getpid()
        assert pool.pids == []

    async def test_one_serves_file_after_file(self, pool: ParsingPool) -> None:
        seen = {await pool.parse(name_of_process, b"x" * 101) for _ in range(3)}

        assert seen == set(pool.pids)
        assert os.getpid() not in seen

    async def test_they_end_when_there_is_nothing_to_do(self) -> None:
        async with pool_with(replace(LIMITS, idle=timedelta(milliseconds=50))) as pool:
            first = await pool.parse(name_of_process, b"x" * 101)
            await soon(lambda: pool.pids == [])

            assert await pool.parse(name_of_process, b"x" * 101) != first

    async def test_they_see_no_secret_of_the_server(
        self, pool: ParsingPool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ROTA_SECRETS_KEY", "rk1:…")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "…")

        seen = await pool.parse(variables, b"x" * 101)

        assert "PATH" in seen
        assert not [name for name in seen if "SECRET" in name]


class TestLimits:
    async def test_a_file_that_takes_too_long_is_refused_and_the_next_one_parsed(self) -> None:
        async with pool_with(replace(LIMITS, cpu=timedelta(milliseconds=200))) as pool:
            with pytest.raises(Invalid, match="longer than 1 s") as refused:
                await pool.parse(spin, b"x" * 101)

            assert refused.value.code == "too_large"
            assert await pool.parse(check_job_file, file_of(3), **HERE) == FINE

    async def test_larger_files_may_take_longer(self) -> None:
        assert ParsingLimits().cpu_seconds(4 * 1024 * 1024) == 5
        assert ParsingLimits().cpu_seconds(64 * 1024 * 1024) == 80

    async def test_a_file_that_takes_too_much_memory_is_refused(self, pool: ParsingPool) -> None:
        with pytest.raises(Invalid, match="more memory") as refused:
            await pool.parse(grab, b"x" * 101)

        assert refused.value.code == "too_large"
        assert await pool.parse(check_job_file, file_of(3), **HERE) == FINE

    async def test_a_child_that_dies_costs_its_file_only(self, pool: ParsingPool) -> None:
        with pytest.raises(Unavailable) as lost:
            await pool.parse(die, b"x" * 101)

        assert lost.value.code == "reader_died"
        assert await pool.parse(check_job_file, file_of(3), **HERE) == FINE

    async def test_a_caller_that_gives_up_leaves_no_answer_behind(
        self, pool: ParsingPool, tmp_path: Path
    ) -> None:
        file = tmp_path / "go"
        given_up = asyncio.ensure_future(pool.parse(dawdle, b"x" * 101, file=str(file)))
        await soon(begun(file).exists)

        given_up.cancel()
        await asyncio.wait([given_up])

        assert given_up.cancelled()
        assert await pool.parse(check_job_file, file_of(3), **HERE) == FINE

    async def test_more_than_may_wait_are_told_to_come_back(
        self, pool: ParsingPool, tmp_path: Path
    ) -> None:
        file = tmp_path / "go"
        parsing = [
            asyncio.ensure_future(pool.parse(dawdle, b"x" * 101, file=str(file))) for _ in range(2)
        ]
        await soon(begun(file).exists)

        with pytest.raises(Unavailable) as refused:
            async with asyncio.timeout(AT_ONCE):
                await pool.parse(dawdle, b"x" * 101, file=str(file))
        await asyncio.to_thread(file.touch)

        assert refused.value.code == "too_many_files"
        assert refused.value.facts["retry_after_seconds"] == 3
        assert await asyncio.gather(*parsing) == [None, None]

    async def test_what_has_begun_waits_however_many_others_do(
        self, pool: ParsingPool, tmp_path: Path
    ) -> None:
        file = tmp_path / "go"
        parsing = [
            asyncio.ensure_future(pool.parse(dawdle, b"x" * 101, file=str(file))) for _ in range(2)
        ]
        await soon(begun(file).exists)

        begun_one = asyncio.ensure_future(
            pool.parse(check_job_file, file_of(3), is_begun=True, **HERE)
        )
        await asyncio.to_thread(file.touch)

        assert await begun_one == FINE
        assert await asyncio.gather(*parsing) == [None, None]

    async def test_nothing_is_parsed_for_a_client_that_left(
        self, pool: ParsingPool, tmp_path: Path
    ) -> None:
        async def gone() -> None:
            raise ClientDisconnect

        with pytest.raises(ClientDisconnect):
            await pool.parse(dawdle, b"x" * 101, refuse_gone=gone, file=str(tmp_path / "go"))

        assert pool.pids == []


async def test_a_pool_that_is_closed_starts_no_child(tmp_path: Path) -> None:
    file = tmp_path / "go"
    async with pool_with() as pool:
        parsing = [
            asyncio.ensure_future(pool.parse(dawdle, b"x" * 101, file=str(file))) for _ in range(2)
        ]
        await soon(begun(file).exists)

    first, second = await asyncio.gather(*parsing, return_exceptions=True)

    assert isinstance(first, Unavailable)
    assert isinstance(second, Unavailable)
    assert {first.code, second.code} == {"reader_died", "not_ready"}
    assert pool.pids == []


class TestTurns:
    async def test_files_of_one_caller_come_one_after_another(self, pool: ParsingPool) -> None:
        order: list[str] = []

        async def take(name: str, until: asyncio.Event) -> None:
            async with pool.turn("ada"):
                order.append(name)
                await until.wait()

        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(take("first", over))
            group.create_task(take("second", over))
            await soon(lambda: order == ["first"])
            async with pool.turn("grace"):
                order.append("another's")
            over.set()

        assert order == ["first", "another's", "second"]

    async def test_too_many_of_one_caller_are_refused_and_no_others(
        self, pool: ParsingPool
    ) -> None:
        async def take() -> None:
            async with pool.turn("ada"):
                pass

        async with asyncio.TaskGroup() as group, pool.turn("ada"):
            group.create_task(take())
            async with asyncio.timeout(AT_ONCE):
                refused = await group.create_task(_refused(take))
            async with pool.turn("grace"):
                pass

        assert refused == "too_many_files"

    async def test_callers_that_are_done_are_forgotten(self, pool: ParsingPool) -> None:
        for name in ("ada", "grace"):
            async with pool.turn(name):
                pass

        assert pool._turns.callers == []


async def _refused(act: Callable[[], Awaitable[None]]) -> str:
    with pytest.raises(Unavailable) as refused:
        await act()
    return refused.value.code


class TestRequests:
    @pytest.mark.parametrize("path", ["jobs:validate", "jobs:apply", "submit_job"])
    async def test_large_files_are_parsed_by_a_child(self, served: Served, path: str) -> None:
        answer = await served.post(path, content=file_of(200), headers=YAML)

        assert answer.status_code in (200, 201), answer.text
        assert len(served.app.state.parsing.pids) == 1

    async def test_carts_and_calendars_are_too(self, served: Served) -> None:
        await served.apply(job("tidy"))
        items = [{"key": f"k{number}"} for number in range(1_000)]
        cart = {"name": "many", "job": "tidy", "items": items}
        calendar = json.dumps({"windows": ["Dec 24"]}) + " " * 10_000
        client = await served.client()

        made = await served.post("carts", json=cart)
        put = await client.put("/api/v1/calendars/busy", content=calendar, headers=YAML)

        assert made.status_code == 202, made.text
        assert put.status_code in (200, 201), put.text
        assert len(served.app.state.parsing.pids) == 1

    async def test_a_job_file_with_items_is_too(self, served: Served) -> None:
        carts = [{"name": "many", "job": "tidy", "items_from": "items.jsonl"}]
        text = json.dumps({"jobs": [job("tidy")], "carts": carts})
        items = [json.dumps({"cart": "many", "key": f"k{number}"}) for number in range(1_000)]
        body = "\n".join([json.dumps(text), *items])

        answer = await served.post("jobs:apply", content=body, headers=NDJSON)

        assert answer.status_code == 200, answer.text
        assert len(served.app.state.parsing.pids) == 1

    async def test_a_cart_line_by_line_is_too(self, served: Served) -> None:
        await served.apply(job("tidy"))

        answer = await served.post("carts", content=lines_of("many", 1_000), headers=NDJSON)

        assert answer.status_code == 202, answer.text
        assert len(served.app.state.parsing.pids) == 1
        shown = (await served.get("carts/many")).json()
        assert shown["items"] == 1_000

    async def test_too_many_carts_of_one_caller_are_a_429(self, served: Served) -> None:
        await served.apply(job("tidy"))

        answers = await asyncio.gather(
            *(
                served.post("carts", content=lines_of(f"c-{number}", 1_000), headers=NDJSON)
                for number in range(12)
            ),
        )

        refused = [each for each in answers if each.status_code == 429]
        assert {each.status_code for each in answers} == {202, 429}
        assert len(refused) == 12 - 5
        assert {each.json()["code"] for each in refused} == {"too_many_files"}
        assert {each.headers["retry-after"] for each in refused} == {"3"}
        assert len((await served.get("carts")).json()["items"]) == 5

    async def test_a_cart_that_takes_too_long_leaves_nothing(self, served: Served) -> None:
        await served.apply(job("tidy"))
        pool: ParsingPool = served.app.state.parsing
        pool.limits = replace(pool.limits, cpu=timedelta(milliseconds=1))

        answer = await served.post("carts", content=lines_of("many", 20_000), headers=NDJSON)

        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert (await served.get("carts")).json()["items"] == []

    async def test_too_many_of_one_caller_are_a_429(self, served: Served) -> None:
        _, ours = await create_token(
            served.engine.store, name="flood", role=Role.VIEWER, actor="test"
        )
        flooding = await served.browser({"Authorization": f"Bearer {ours}", **YAML})
        body = file_of(2_000)

        answers = await asyncio.gather(
            *(flooding.post("/api/v1/jobs:validate", content=body) for _ in range(12)),
            served.post("jobs:validate", content=body, headers=YAML),
        )

        *ours_answers, other = answers
        refused = [each for each in ours_answers if each.status_code == 429]
        assert other.status_code == 200
        assert len(refused) == 12 - 5
        assert {each.json()["code"] for each in refused} == {"too_many_files"}
        assert {each.headers["retry-after"] for each in refused} == {"3"}
        assert sum(each.status_code == 200 for each in ours_answers) == 5
