"""Jobs of type `http` against a real HTTP server: what is asked, kept, told and reported."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from rota.clock import SystemClock
from rota.domain.addresses import parse_target
from rota.domain.jobfile import read_job
from rota.domain.run import AttemptResult
from rota.domain.spec import JobSpec
from rota.executors.http import HttpExecutor, HttpGround
from rota.executors.http_secrets import WorkerSecret, WorkerSecrets, read_secrets
from rota.outgoing import Outgoing
from rota.ports.executor import JobBatch
from rota.ports.work import Fence, Outcome, StepOutcome, Work, WorkBatch
from testkit.http_service import BREAKS, HANGS, HttpService, Reply, http_service, reply
from tests.unit.executors.test_pipes import Sink

pytestmark = pytest.mark.anyio

RUN = "r_1"
SOON = timedelta(milliseconds=20)
HERE = (ip_network("127.0.0.1/32"),)
SECRET = "s3cret-of-the-worker"
TOKEN = WorkerSecret("TOKEN", SECRET, projects=("default",))


@dataclass
class Told:
    """Implements `AttemptReports` and `RemoteWork`, and remembers what it was told."""

    sink: Sink = field(default_factory=Sink)
    steps: list[tuple[str, str]] = field(default_factory=list)
    progress: list[float] = field(default_factory=list)
    handles: list[str] = field(default_factory=list)
    is_fenced: bool = False
    goes_on: bool = False
    ends: asyncio.Queue[Outcome] = field(default_factory=asyncio.Queue)
    order: list[str] = field(default_factory=list)

    def store_micros(self) -> int:
        return 1_000_000

    def output(self, fence: Fence) -> Sink:
        return self.sink

    def progressed(self, fence: Fence, done: float, total: float | None, message: str) -> None:
        self.progress.append(done)

    def stepped(self, fence: Fence, number: int, step: StepOutcome) -> StepOutcome:
        self.steps.append((step.name, step.result))
        return step

    def completed(self, completions: object) -> None:
        raise AssertionError("its ends have more to tell")

    def ended(self, outcomes: Any) -> None:
        for outcome in outcomes:
            self.ends.put_nowait(outcome)

    async def keep_handle(self, fence: Fence, handle: str) -> bool:
        self.handles.append(handle)
        return not self.is_fenced

    def goes_on_elsewhere(self, fence: Fence) -> bool:
        return self.goes_on

    def printed(self, stream: str) -> str:
        return b"".join(data for kind, _, data in self.sink.fed if kind == stream).decode()


class Bench:
    """An executor, another system, and what the executor told."""

    def __init__(self, service: HttpService, secrets: tuple[WorkerSecret, ...] = (TOKEN,)) -> None:
        self.service = service
        self.told = Told()
        self.may_start = True
        here = (parse_target(service.url).origin,)
        named = {each.name: replace(each, origins=each.origins or here) for each in secrets}
        ground = HttpGround(Outgoing(HERE), WorkerSecrets(named), lambda: self.may_start)
        self.executor = HttpExecutor(self.told, self.told, SystemClock(), ground)

    def spec(self, http: dict[str, Any], **fields: Any) -> JobSpec:
        spec = read_job({"name": "pay", "type": "http", "http": http, **fields})
        assert spec.http is not None
        return replace(spec, http=replace(spec.http, every=SOON))

    def start(self, spec: JobSpec, handle: str | None = None, **inputs: Any) -> None:
        work = Work(RUN, 1, "j_1", 1, 1_700_000_000_000_000, inputs or None, handle=handle)
        self.executor.start([JobBatch(spec, WorkBatch.of([work]), [work.fence])])

    async def end(self) -> Outcome:
        async with asyncio.timeout(20):
            return await self.told.ends.get()

    async def outcome(self, spec: JobSpec, handle: str | None = None, **inputs: Any) -> Outcome:
        self.start(spec, handle, **inputs)
        return await self.end()

    def cancel(self) -> None:
        self.executor.cancel([Fence(RUN, 1)])


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with http_service() as service:
        bench = Bench(service)
        yield bench
        await bench.executor.close()


def call(bench: Bench, **fields: Any) -> dict[str, Any]:
    return {"url": f"{bench.service.url}/pay", "method": "POST", **fields}


def watched(bench: Bench, **fields: Any) -> dict[str, Any]:
    """Return a payout that is looked after, and can be stopped."""
    result = {"pointer": "/state", "values": {"paid": "completed", "no": "failed", "…": "running"}}
    status = {"url": f"{bench.service.url}/pay", "path": [{"answer": "/id"}]}
    cancel = {"url": {"header": "Location"}, "method": "DELETE"}
    http = {"submit": call(bench), "status": status, "cancel": cancel, "result": result}
    return {**http, **fields}


def accepted(bench: Bench) -> None:
    bench.service.on("POST", "/pay", reply({"id": 7}, 202, Location="/pay/7"))


class TestOneRequest:
    async def test_a_good_status_is_the_end(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", Reply(body=b"done"))

        outcome = await bench.outcome(bench.spec({"submit": call(bench, body={"a": 1})}))

        assert outcome.result == AttemptResult.COMPLETED
        assert bench.told.printed("stdout") == "done\n"
        assert "→ 200 OK" in bench.told.printed("rota")
        assert bench.told.steps == [("submit", "running"), ("submit", "completed")]
        [asked] = bench.service.asked
        assert asked.headers["idempotency-key"] == RUN
        assert asked.headers["content-type"] == "application/json"
        assert asked.json() == {"a": 1}

    async def test_a_bad_status_is_a_failure_with_its_reason(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", reply({"error": {"message": "too much"}}, 422))

        outcome = await bench.outcome(bench.spec({"submit": call(bench)}))

        assert (outcome.result, outcome.cause) == (AttemptResult.FAILED, "remote")
        assert outcome.message == "submit: answered 422: too much"

    async def test_values_are_put_where_they_belong_and_nowhere_else(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay/a%2F..%2Fb", Reply())
        submit = call(
            bench,
            path=[{"input": "name"}],
            query={"q": {"input": "name"}, "n": 1},
            headers={"X-Name": {"input": "plain"}, "X-Run": {"run": "id", "prefix": "run "}},
            body={"amount": {"input": "amount"}, "note": {"input": "name"}, "list": [True, None]},
        )
        inputs = {"name": {}, "plain": {}, "amount": {"type": "integer"}}

        outcome = await bench.outcome(
            bench.spec({"submit": submit}, inputs=inputs), name="a/../b", plain="x", amount=5
        )

        assert outcome.message == ""
        [asked] = bench.service.asked
        assert asked.path == "/pay/a%2F..%2Fb?q=a%2F..%2Fb&n=1"
        assert (asked.headers["x-name"], asked.headers["x-run"]) == ("x", f"run {RUN}")
        assert asked.json() == {"amount": 5, "note": "a/../b", "list": [True, None]}

    @pytest.mark.parametrize(
        ("given", "why"),
        [
            ("a\r\nX-Evil: 1", "line break"),
            ("..", None),
        ],
    )
    async def test_values_cannot_break_out(self, bench: Bench, given: str, why: str | None) -> None:
        where = {"headers": {"X": {"input": "it"}}} if why else {"path": [{"input": "it"}]}
        spec = bench.spec({"submit": call(bench, **where)}, inputs={"it": {}})

        outcome = await bench.outcome(spec, it=given)

        assert (outcome.result, outcome.cause) == (AttemptResult.FAILED, "request")
        assert (why or "cannot be a part of a path") in outcome.message
        assert bench.service.asked == []

    async def test_outputs_are_taken_from_the_answer(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", reply({"receipt": {"id": "A1"}, "sum": 5}))
        result = {"outputs": {"receipt": "/receipt/id", "sum": "/sum"}}

        outcome = await bench.outcome(bench.spec({"submit": call(bench), "result": result}))

        assert outcome.outputs == {"receipt": "A1", "sum": 5}

    async def test_a_huge_answer_is_cut(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", Reply(body=b"x" * (5 * 1024 * 1024)))

        outcome = await bench.outcome(bench.spec({"submit": call(bench)}))

        assert outcome.result == AttemptResult.COMPLETED
        assert len(bench.told.printed("stdout")) == 4 * 1024 * 1024 + 1
        assert "longer than 4 MiB" in bench.told.printed("rota")

    @pytest.mark.parametrize(
        ("body", "complaint"),
        [
            (b'{"id": 123456789012345678901234567890}', "64 bits"),
            (b'{"id": "\\ud800"}', "half a character"),
            (b'{"id": 1e999}', "not finite"),
            (b'{"id": ' + b"[" * 500 + b"]" * 500 + b"}", "deeper"),
            (b'{"id": "' + b"x" * 1024 * 1024 + b'"}', "over 1 MiB"),
        ],
    )
    async def test_outputs_that_nobody_could_carry_are_told(
        self, bench: Bench, body: bytes, complaint: str
    ) -> None:
        """The end of the attempt would never be reported."""
        bench.service.on("POST", "/pay", Reply(body=body))

        outcome = await bench.outcome(
            bench.spec({"submit": call(bench), "result": {"outputs": {"it": "/id"}}})
        )

        assert (outcome.result, outcome.outputs) == (AttemptResult.COMPLETED, None)
        assert complaint in bench.told.printed("rota")

    async def test_a_huge_body_is_not_sent(self, bench: Bench) -> None:
        spec = bench.spec({"submit": call(bench, body=[{"input": "it"}] * 20)}, inputs={"it": {}})

        outcome = await bench.outcome(spec, it="x" * 60_000)

        assert "the body is too large" in outcome.message
        assert bench.service.asked == []


class TestSecrets:
    async def test_a_secret_is_sent_and_not_shown(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", Reply(403, f"bad token {SECRET}".encode()))
        headers = {"Authorization": {"secret": "TOKEN", "prefix": "Bearer "}}

        outcome = await bench.outcome(bench.spec({"submit": call(bench, headers=headers)}))

        assert bench.service.asked[0].headers["authorization"] == f"Bearer {SECRET}"
        assert outcome.message == "submit: answered 403: bad token ***"
        assert SECRET not in bench.told.printed("stdout") + bench.told.printed("rota")

    async def test_it_is_not_kept_as_the_name_of_the_work(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", reply({}, 202, Location=f"/pay/7?k={SECRET}"))
        submit = call(bench, query={"k": {"secret": "TOKEN"}})
        status = {"url": {"header": "Location"}}

        end = await bench.outcome(bench.spec({"submit": submit, "status": status}))

        assert (end.result, bench.told.handles) == (AttemptResult.FAILED, [])
        assert "repeats a secret" in end.message

    async def test_it_is_not_among_the_outputs(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", reply({"you": {"sent": [f"Bearer {SECRET}", 1]}}))
        headers = {"Authorization": {"secret": "TOKEN", "prefix": "Bearer "}}
        result = {"outputs": {"echo": "/you"}}

        outcome = await bench.outcome(
            bench.spec({"submit": call(bench, headers=headers), "result": result})
        )

        assert outcome.outputs == {"echo": {"sent": ["Bearer ***", 1]}}

    @pytest.mark.parametrize(
        ("secret", "why"),
        [
            (replace(TOKEN, origins=("http://pay.example.org",)), "is not for http://127.0.0.1:"),
            (replace(TOKEN, origins=("https://127.0.0.1",)), "its hosts are https://127.0.0.1"),
            (replace(TOKEN, origins=("http://127.0.0.1",)), "is not for http://127.0.0.1:"),
            (replace(TOKEN, projects=("other",)), "is not for the project default"),
            (replace(TOKEN, name="ELSE"), "no secret TOKEN is in the file that http_secrets names"),
        ],
    )
    async def test_it_goes_where_it_may_only(self, secret: WorkerSecret, why: str) -> None:
        async with http_service() as service:
            bench = Bench(service, (secret,))
            headers = {"Authorization": {"secret": "TOKEN"}}

            outcome = await bench.outcome(bench.spec({"submit": call(bench, headers=headers)}))

            assert why in outcome.message
            assert service.asked == []
            await bench.executor.close()

    async def test_an_answer_does_not_lead_it_elsewhere(self, bench: Bench) -> None:
        """The same host, at another port: whoever listens there is somebody else."""
        elsewhere = "http://127.0.0.1:1/pay/7"
        bench.service.on("POST", "/pay", reply({"id": 7}, 202, Location=elsewhere))
        secret = {"Authorization": {"secret": "TOKEN"}}
        status = {"url": {"header": "Location"}, "headers": secret}
        result = {"pointer": "/state", "values": {"paid": "completed"}}
        http = {"submit": call(bench), "status": status, "result": result}

        outcome = await bench.outcome(bench.spec(http))

        assert "the secret TOKEN is not for http://127.0.0.1:1" in outcome.message

    @pytest.mark.parametrize(
        ("written", "origin"),
        [
            ("pay.example.org", "https://pay.example.org"),
            ("Pay.example.org:8443", "https://pay.example.org:8443"),
            ("https://pay.example.org:443/", "https://pay.example.org"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ],
    )
    async def test_a_host_is_one_of_https_unless_it_says_otherwise(
        self, tmp_path: Path, written: str, origin: str
    ) -> None:
        file = secrets_file(tmp_path, written)

        assert read_secrets(file)["TOKEN"].origins == (origin,)

    @pytest.mark.parametrize(
        ("written", "why"),
        [
            ("https://pay.example.org/v1", "a path is not looked at"),
            ("ssh://pay.example.org", "ssh is not https or http"),
            ("*.example.org", "is not the name of a host"),
            ("me@pay.example.org", "a user or password"),
        ],
    )
    async def test_what_is_no_host_is_told(self, tmp_path: Path, written: str, why: str) -> None:
        file = secrets_file(tmp_path, written)

        with pytest.raises(ValueError, match=re.escape(why)):
            read_secrets(file)


def secrets_file(folder: Path, host: str) -> Path:
    file = folder / "secrets.toml"
    file.write_text(f'[TOKEN]\nvalue = "{SECRET}"\nhosts = ["{host}"]\nprojects = ["default"]\n')
    file.chmod(0o600)
    return file


class TestLookingAfter:
    async def test_work_is_looked_after_until_it_ends(self, bench: Bench) -> None:
        accepted(bench)
        bench.service.on(
            "GET",
            "/pay/7",
            reply({"state": "…", "percent": 10}),
            reply({"state": "…", "percent": 60}, Retry_After="0"),
            reply({"state": "paid", "receipt": "A1"}),
        )
        result = watched(bench)["result"]
        result |= {"progress": "/percent", "outputs": {"receipt": "/receipt"}}

        outcome = await bench.outcome(bench.spec(watched(bench, result=result)))

        assert outcome.result == AttemptResult.COMPLETED
        assert outcome.outputs == {"receipt": "A1"}
        assert bench.told.progress == [10.0, 60.0]
        assert [name for name, result in bench.told.steps if result == "running"] == [
            "submit",
            "status",
        ]
        taken = {"answer:/id": "7", "header:location": "/pay/7"}
        assert [json.loads(handle) for handle in bench.told.handles] == [{"taken": taken}]

    async def test_nothing_is_asked_before_the_handle_is_kept(self, bench: Bench) -> None:
        accepted(bench)
        bench.told.is_fenced = True

        await bench.outcome(bench.spec(watched(bench)))

        assert [asked.method for asked in bench.service.asked] == ["POST"]

    async def test_the_next_attempt_goes_on_with_the_same_work(self, bench: Bench) -> None:
        bench.service.on("GET", "/pay/7", reply({"state": "paid"}))
        handle = json.dumps({"taken": {"answer:/id": "7", "header:location": "/pay/7"}})

        outcome = await bench.outcome(bench.spec(watched(bench)), handle)

        assert outcome.result == AttemptResult.COMPLETED
        assert bench.service.of("POST") == []

    async def test_a_failure_there_lets_the_next_attempt_begin_anew(self, bench: Bench) -> None:
        accepted(bench)
        bench.service.on("GET", "/pay/7", reply({"state": "no", "detail": "no funds"}))

        outcome = await bench.outcome(bench.spec(watched(bench)))

        assert outcome.message == 'status: /state is "no": no funds'
        assert bench.told.handles[-1] == ""

    async def test_trouble_passes(self, bench: Bench) -> None:
        """Breaks, errors of a gateway, bad JSON and a restart are no end of the work."""
        accepted(bench)
        bench.service.on(
            "GET",
            "/pay/7",
            BREAKS,
            Reply(502, b"<html>"),
            Reply(200, b"{half"),
            Reply(429, headers={"Retry-After": "0"}),
            reply({"state": "paid"}),
        )

        outcome = await bench.outcome(bench.spec(watched(bench)))

        assert outcome.result == AttemptResult.COMPLETED
        said = bench.told.printed("rota")
        assert "the answer is no JSON" in said
        assert "answered 502" in said

    async def test_a_restart_is_waited_for(self, bench: Bench) -> None:
        accepted(bench)
        bench.service.on("GET", "/pay/7", reply({"state": "…"}))
        bench.start(bench.spec(watched(bench)))
        await bench.service.wait_for(1, "GET")

        await bench.service.close()
        bench.service.on("GET", "/pay/7", reply({"state": "paid"}))
        await bench.service.open()

        assert (await bench.end()).result == AttemptResult.COMPLETED

    async def test_silence_is_a_failure_after_a_while(self, bench: Bench) -> None:
        accepted(bench)
        bench.service.on("GET", "/pay/7", Reply(500))
        spec = bench.spec(watched(bench))
        assert spec.http is not None
        patient = replace(spec.http, patience=timedelta(milliseconds=200))

        outcome = await bench.outcome(replace(spec, http=patient))

        assert (outcome.result, outcome.cause) == (AttemptResult.FAILED, "silent")
        assert "the work there may go on" in outcome.message
        assert bench.told.handles[-1] != ""  # the next attempt goes on with it

    async def test_work_that_is_unknown_there_has_failed(self, bench: Bench) -> None:
        accepted(bench)

        outcome = await bench.outcome(bench.spec(watched(bench)))

        assert outcome.message == "status: what was submitted is not known there (404)"

    async def test_an_answer_that_names_nothing_is_a_failure(self, bench: Bench) -> None:
        bench.service.on("POST", "/pay", reply({"no": "id"}, 202))

        outcome = await bench.outcome(bench.spec(watched(bench)))

        assert outcome.result == AttemptResult.FAILED
        assert "the answer has nothing at /id" in outcome.message

    async def test_an_address_from_an_answer_gets_no_credentials_elsewhere(
        self, bench: Bench
    ) -> None:
        async with http_service() as other:
            bench.service.on("POST", "/pay", Reply(202, headers={"Location": f"{other.url}/x"}))
            other.on("GET", "/x", reply({"state": "paid"}))
            status = {"url": {"header": "Location"}, "headers": {"X-Key": "k"}}
            http = watched(bench, status=status)
            del http["cancel"]

            outcome = await bench.outcome(bench.spec(http))

            assert outcome.result == AttemptResult.COMPLETED
            assert "x-key" not in other.asked[0].headers


class TestDoubt:
    """What becomes of a run when nobody knows whether its work was begun."""

    @pytest.mark.parametrize(
        ("said", "cause"),
        [(BREAKS, "no_answer"), (Reply(504), "gateway"), (reply({}, 202), "answer")],
    )
    @pytest.mark.parametrize(
        ("delivery", "result"), [("at_least_once", "FAILED"), ("at_most_once", "LOST")]
    )
    async def test_what_may_have_been_received(
        self, bench: Bench, said: Reply, cause: str, delivery: str, result: str
    ) -> None:
        bench.service.on("POST", "/pay", said)

        outcome = await bench.outcome(bench.spec(watched(bench), delivery=delivery))

        assert (outcome.result, outcome.cause) == (result, cause)
        assert len(bench.service.asked) == 1

    @pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
    async def test_what_was_never_sent_is_a_plain_failure(
        self, bench: Bench, delivery: str
    ) -> None:
        await bench.service.close()

        outcome = await bench.outcome(bench.spec(watched(bench), delivery=delivery))

        assert (outcome.result, outcome.cause) == (AttemptResult.FAILED, "unreachable")

    async def test_nothing_is_sent_after_the_lease(self, bench: Bench) -> None:
        bench.may_start = False

        outcome = await bench.outcome(bench.spec({"submit": call(bench)}))

        assert "the worker's lease is over" in outcome.message
        assert bench.service.asked == []

    async def test_a_request_to_come_later_is_followed(self, bench: Bench) -> None:
        bench.service.on(
            "POST", "/pay", Reply(503, headers={"Retry-After": "0"}), Reply(body=b"done")
        )

        outcome = await bench.outcome(bench.spec({"submit": call(bench)}, delivery="at_most_once"))

        assert outcome.result == AttemptResult.COMPLETED
        assert "it asks to be asked again" in bench.told.printed("rota")

    @pytest.mark.parametrize(
        ("delivery", "result"), [("at_most_once", "LOST"), ("at_least_once", "FAILED")]
    )
    @pytest.mark.parametrize("location", ["http://10.0.0.1/receipt", "ftp://127.0.0.1/", "/pay"])
    async def test_a_redirect_that_is_not_followed_may_answer_what_was_done(
        self, bench: Bench, location: str, delivery: str, result: str
    ) -> None:
        bench.service.on("POST", "/pay", Reply(307, headers={"Location": location}))

        end = await bench.outcome(bench.spec({"submit": call(bench)}, delivery=delivery))

        assert (end.result, end.cause) == (result, "address")
        assert "redirect" in end.message or "must not be reached" in end.message

    @pytest.mark.parametrize(
        ("delivery", "result"), [("at_most_once", "LOST"), ("at_least_once", "FAILED")]
    )
    async def test_a_fault_of_ours_while_it_is_submitted_is_no_word_of_the_other_system(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, delivery: str, result: str
    ) -> None:
        accepted(bench)

        async def fail(*_: object) -> None:
            raise ArithmeticError("odd")

        monkeypatch.setattr(bench.executor, "_print", fail)

        end = await bench.outcome(bench.spec(watched(bench), delivery=delivery))

        assert (end.result, end.cause) == (result, "error")

    async def test_a_private_address_is_a_failure_with_the_setting_that_opens_it(
        self, bench: Bench
    ) -> None:
        spec = bench.spec({"submit": {"url": "http://127.0.0.2/", "method": "POST"}})

        outcome = await bench.outcome(spec)

        assert (outcome.result, outcome.cause) == (AttemptResult.FAILED, "address")
        assert "outgoing_networks = 127.0.0.2/32" in outcome.message


class TestStopping:
    async def test_a_cancel_is_passed_on(self, bench: Bench) -> None:
        accepted(bench)
        bench.service.on("GET", "/pay/7", reply({"state": "…"}))
        bench.service.on("DELETE", "/pay/7", Reply(204))
        bench.start(bench.spec(watched(bench)))
        await bench.service.wait_for(1, "GET")

        bench.cancel()
        outcome = await bench.end()

        assert outcome.result == AttemptResult.CANCELLED
        assert outcome.message == "cancelled: the work there was told to stop"
        assert len(bench.service.of("DELETE")) == 1
        assert bench.told.handles[-1] == ""

    async def test_a_timeout_is_passed_on(self, bench: Bench) -> None:
        accepted(bench)
        bench.service.on("GET", "/pay/7", reply({"state": "…"}))
        bench.service.on("DELETE", "/pay/7", Reply(409))

        outcome = await bench.outcome(bench.spec(watched(bench), timeout="300ms"))

        assert outcome.result == AttemptResult.TIMED_OUT
        assert "was answered 409 Conflict" in outcome.message
        assert bench.told.handles[-1] != ""  # it may go on there

    async def test_a_worker_that_stops_leaves_the_work_to_the_next(self, bench: Bench) -> None:
        accepted(bench)
        bench.service.on("GET", "/pay/7", reply({"state": "…"}))
        bench.start(bench.spec(watched(bench)))
        await bench.service.wait_for(1, "GET")

        bench.told.goes_on = True
        bench.cancel()
        await bench.end()

        assert bench.service.of("DELETE") == []
        assert bench.told.handles[-1] != ""

    async def test_a_cancel_waits_for_the_answer_to_submit(self, bench: Bench) -> None:
        bench.service.on(
            "POST", "/pay", Reply(202, b'{"id": 7 }', {"Location": "/pay/7"}, pieces=2, pause=0.2)
        )
        bench.service.on("DELETE", "/pay/7", Reply(204))
        bench.start(bench.spec(watched(bench)))
        await bench.service.wait_for(1, "POST")

        bench.cancel()
        outcome = await bench.end()

        assert outcome.result == AttemptResult.CANCELLED
        assert len(bench.service.of("DELETE")) == 1

    @pytest.mark.parametrize(
        ("delivery", "result"), [("at_least_once", "CANCELLED"), ("at_most_once", "LOST")]
    )
    async def test_a_cancel_of_what_hangs(self, bench: Bench, delivery: str, result: str) -> None:
        bench.service.on("POST", "/pay", HANGS)
        bench.start(bench.spec(watched(bench), delivery=delivery, grace="100ms"))
        await bench.service.wait_for(1, "POST")

        bench.cancel()

        assert (await bench.end()).result == result
