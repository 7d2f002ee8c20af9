"""What jobs print is kept byte for byte, and cannot hurt the server."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator

import pytest

from rota.sdk.answers import LogWindow, OutputSummary
from rota.sdk.client import Client
from testkit.evidence import Evidence
from testkit.waiting import boottime, eventually
from tests.system.conftest import Up
from tests.system.jobs import apply, execute, job, log_of, settle

MEGABYTE = 1_000_000
SLOWEST_ANSWER = 2.0  # seconds, on a machine that is busy with the output itself


def slowest_answer_while(client: Client, run: str) -> float:
    """The longest that anybody waited for a page while the run went on."""
    slowest = 0.0
    while not client.get_run(run).is_settled:
        before = boottime()
        client.list_jobs()
        slowest = max(slowest, boottime() - before)
    return slowest


def digest_of(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def stored_output(client: Client, run: str) -> OutputSummary:
    """Return what is known of a run's output once all of it has come: that may be after its end."""

    def known() -> OutputSummary:
        return client.get_run(run).attempts[0].output

    eventually(lambda: known().state == "stored")
    return known()


class TestFloods:
    def test_server_answers_while_a_step_prints_200_megabytes(self, client: Client) -> None:
        line = "0123456789" * 10
        flood = f"yes {line} | head -c {200 * MEGABYTE}"
        apply(client, job("flood", flood, log_limit="300MB"))
        run = client.trigger("flood")

        assert slowest_answer_while(client, run.id) < SLOWEST_ANSWER

        ended = client.get_run(run.id)
        assert (ended.state, ended.losses) == ("COMPLETED", 0)
        output = stored_output(client, run.id)
        assert (output.bytes, output.truncated) == (200 * MEGABYTE, False)
        window = client.get_log(run.id, first_line=1_500_000, limit=1)
        assert window.lines[0].text == line

    def test_line_of_50_megabytes_is_kept(self, client: Client) -> None:
        apply(client, job("line", f"head -c {50 * MEGABYTE} /dev/zero | tr '\\0' x; echo"))
        run = client.trigger("line")

        assert slowest_answer_while(client, run.id) < SLOWEST_ANSWER

        assert client.get_run(run.id).state == "COMPLETED"
        stored_output(client, run.id)
        expected = hashlib.sha256(b"x" * 50 * MEGABYTE + b"\n").hexdigest()
        assert digest_of(client.stream(Client.raw_log(run.id))) == expected
        window = client.get_log(run.id, limit=2)
        assert window.lines[0].continues

    def test_output_over_the_limit_is_cut_with_a_mark(self, client: Client) -> None:
        run = execute(client, "yes line | head -n 10000", log_limit="10kB")

        assert run.state == "COMPLETED"
        assert run.attempts[0].output.truncated
        kept, _, remark = log_of(client, run.id).rpartition("line\n")
        assert 9_000 < len(kept) <= 10_000
        assert "cut" in remark


class TestFaithfulness:
    def test_streams_keep_their_order_steps_and_times(self, client: Client) -> None:
        run = execute(client, "echo out; sleep 0.1; echo err >&2; sleep 0.1; echo out", "echo two")

        lines = client.get_log(run.id).lines
        assert [(line.stream, line.step, line.text) for line in lines] == [
            ("stdout", 0, "out"),
            ("stderr", 0, "err"),
            ("stdout", 0, "out"),
            ("stdout", 1, "two"),
        ]
        times = [line.at for line in lines]
        assert len(times) == 4
        assert times == sorted(times)

    @pytest.mark.parametrize("count", [10, 200_000], ids=["inline", "stored"])
    def test_numbered_lines_come_back_with_their_digest(self, client: Client, count: int) -> None:
        script = f"seq {count} | tee numbers; sha256sum <numbers | cut -d' ' -f1 >$ROTA_OUTPUT.new"
        quoted = """echo "\\"$(cat $ROTA_OUTPUT.new)\\"" >$ROTA_OUTPUT"""

        run = execute(client, script, quoted, name=f"numbered-{count}")

        assert run.state == "COMPLETED"
        assert digest_of(client.stream(Client.raw_log(run.id))) == run.outputs
        assert run.attempts[0].output.lines == count
        [line] = client.get_log(run.id, first_line=count - 3, limit=1).lines
        assert line.text == str(count - 2)

    def test_bytes_that_are_no_text_are_kept(self, client: Client) -> None:
        run = execute(client, r"printf '\377\000\033[31mred\n\r\200'")

        assert client.raw_log(run.id) == b"\xff\x00\x1b[31mred\n\r\x80"

    def test_output_is_seen_while_the_job_runs(self, client: Client) -> None:
        apply(client, job("live", "echo first; sleep 100"))
        run = client.trigger("live")

        windows = (part for part in client.follow_log(run.id) if isinstance(part, LogWindow))
        first = next(line for window in windows for line in window.lines)

        assert first.text == "first"
        assert client.get_run(run.id).state in ("CLAIMED", "PROCESSING")
        client.cancel_run(run.id)
        settle(client, run)


class TestLoss:
    def test_torn_output_is_marked_and_attempts_do_not_mix(
        self, up: Up, evidence: Evidence
    ) -> None:
        rota = up(lease="3s")
        endless = "echo attempt $ROTA_ATTEMPT; [ $ROTA_ATTEMPT = 2 ] || { seq 100000; sleep 100; }"
        apply(rota.client, job("torn", evidence.script(endless)))
        run = rota.client.trigger("torn")
        eventually(lambda: rota.client.get_log(run.id).total_lines)

        os.kill(rota.worker_pid(), signal.SIGKILL)

        ended = settle(rota.client, run)
        assert ended.state == "COMPLETED"
        first, second = ended.attempts
        assert (first.result, first.output.state) == ("LOST", "torn")
        assert second.output.state == "inline"
        assert log_of(rota.client, run.id, 1).startswith("attempt 1\n1\n2\n")
        assert log_of(rota.client, run.id, 2) == "attempt 2\n"
