"""What a step may do, and what becomes of the run."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from rota.sdk.client import Client
from testkit.processes import RotaUp, processes_of
from testkit.waiting import boottime
from tests.system.jobs import apply, execute, job, log_of, settle

pytestmark = pytest.mark.timeout(60)


class TestEndings:
    def test_all_steps_succeed(self, client: Client) -> None:
        run = execute(client, {"name": "one", "run": "echo 1"}, {"name": "two", "run": "echo 2"})

        assert (run.state, run.exit_code) == ("COMPLETED", 0)
        assert [(step.name, step.result) for step in run.attempts[0].steps] == [
            ("one", "completed"),
            ("two", "completed"),
        ]
        assert log_of(client, run.id) == "1\n2\n"

    def test_a_failed_step_says_what_it_complained_about_last(self, client: Client) -> None:
        run = execute(client, {"name": "ship", "run": "echo 'disk full' >&2; exit 3"})

        assert run.message == "step ship: exit 3: disk full"

    def test_a_step_without_name_that_complains_on_its_output_says_so_too(
        self, client: Client
    ) -> None:
        run = execute(client, "echo 'disk full'; exit 3")

        assert run.message == "step 1: exit 3: disk full"

    def test_exit_code_of_the_failing_step_is_the_runs(self, client: Client) -> None:
        run = execute(client, "echo before", "exit 7", "echo never")

        assert (run.state, run.cause, run.exit_code) == ("FAILED", "exit 7", 7)
        assert [step.result for step in run.attempts[0].steps] == ["completed", "failed", "skipped"]
        assert log_of(client, run.id) == "before\n"

    def test_script_stops_at_its_first_failing_command(self, client: Client) -> None:
        run = execute(client, "false\necho never")

        assert (run.state, run.exit_code) == ("FAILED", 1)

    def test_death_by_a_signal_is_told_apart(self, client: Client) -> None:
        run = execute(client, "kill -SEGV $$")

        assert (run.state, run.cause, run.exit_code, run.signal) == (
            "FAILED",
            "signal 11",
            None,
            11,
        )
        assert "SIGSEGV" in run.message

    def test_program_that_does_not_exist_is_named(self, client: Client) -> None:
        run = execute(client, {"name": "absent", "run": ["no-such-program"]})

        assert run.state == "FAILED"
        assert "no-such-program" in run.message
        assert "no-such-program" in log_of(client, run.id)

    def test_timeout_ends_the_run_and_says_so(self, client: Client) -> None:
        before = boottime()

        run = execute(client, "sleep 100", timeout="3s")

        assert (run.state, run.cause) == ("TIMED_OUT", "timeout")
        assert 3 <= boottime() - before < 15
        assert run.duration_seconds == pytest.approx(3, abs=2)

    def test_timeout_of_a_step_is_its_own(self, client: Client) -> None:
        run = execute(client, {"run": "sleep 100", "timeout": "500ms"}, timeout="60s")

        assert run.state == "TIMED_OUT"
        assert run.attempts[0].steps[0].result == "timed_out"

    def test_silence_ends_the_run_and_says_so(self, client: Client) -> None:
        run = execute(
            client, "for i in 1 2 3; do echo $i; sleep 1; done; sleep 100", stalled_after="2s"
        )

        assert (run.state, run.cause) == ("TIMED_OUT", "stalled")
        assert "printed nothing and told no progress for 2s" in run.message
        assert log_of(client, run.id) == "1\n2\n3\n"

    def test_usage_is_measured(self, client: Client) -> None:
        run = execute(client, {"run": "sum(range(3_000_000))", "shell": "python"})

        [attempt] = run.attempts
        [step] = attempt.steps
        assert attempt.cpu_seconds == step.cpu_seconds > 0.01
        assert attempt.max_memory_bytes == step.max_memory_bytes > 1_000_000
        assert step.cause == ""


class TestRules:
    def test_failure_can_be_excused(self, client: Client) -> None:
        run = execute(client, {"run": "exit 3", "continue_on_error": True}, "echo still here")

        assert run.state == "COMPLETED"
        assert [step.result for step in run.attempts[0].steps] == ["failed", "completed"]

    def test_conditions_choose_the_steps_after_a_failure(self, client: Client) -> None:
        run = execute(
            client,
            "exit 3",
            {"run": "echo on success", "if": "success"},
            {"run": "echo on failure", "if": "failure"},
            {"run": "echo always", "if": "always"},
        )

        assert run.exit_code == 3
        assert log_of(client, run.id) == "on failure\nalways\n"

    def test_conditions_choose_the_steps_after_success(self, client: Client) -> None:
        run = execute(
            client,
            "true",
            {"run": "echo on failure", "if": "failure"},
            {"run": "echo always", "if": "always"},
        )

        assert run.state == "COMPLETED"
        assert log_of(client, run.id) == "always\n"

    def test_cleaning_up_happens_after_a_timeout_too(self, client: Client) -> None:
        run = execute(client, "sleep 100", {"run": "echo tidied", "if": "always"}, timeout="500ms")

        assert run.state == "TIMED_OUT"
        assert log_of(client, run.id) == "tidied\n"

    def test_cleaning_up_cannot_outlast_the_grace(self, client: Client) -> None:
        before = boottime()

        run = execute(
            client,
            "sleep 100",
            {"run": "trap '' TERM; sleep 100; sleep 100", "if": "always"},
            timeout="500ms",
            grace="1s",
        )

        assert run.state == "TIMED_OUT"
        assert boottime() - before < 10

    def test_step_is_tried_again_within_its_attempt(self, client: Client, tmp_path: Path) -> None:
        tries = tmp_path / "tries"
        retry = {"attempts": 3, "delay": "50ms", "backoff": "fixed"}

        run = execute(
            client,
            {"run": f"echo x >>{tries}; test $(wc -l <{tries}) -ge 3", "retry": retry},
            "echo done",
        )

        assert run.state == "COMPLETED"
        assert run.attempt == 1
        assert run.attempts[0].steps[0].tries == 3

    def test_pause_between_tries_of_a_step_ends_with_the_timeout(self, client: Client) -> None:
        retry = {"attempts": 2, "delay": "1h", "backoff": "fixed", "max_delay": "1h"}

        run = execute(client, {"run": "exit 1", "retry": retry}, timeout="500ms")

        assert (run.state, run.attempts[0].steps[0].result) == ("TIMED_OUT", "timed_out")

    def test_job_is_tried_again_with_a_pause(self, client: Client) -> None:
        retry = {"attempts": 3, "delay": "300ms", "backoff": "fixed"}

        run = execute(client, "echo $ROTA_ATTEMPT; exit 5", retry=retry)

        assert (run.state, run.attempt, run.failures) == ("FAILED", 3, 3)
        starts = [attempt.started_at for attempt in run.attempts]
        ends = [attempt.ended_at for attempt in run.attempts]
        for ended, started in zip(ends, starts[1:], strict=False):
            assert ended is not None
            assert started is not None
            assert started - ended >= timedelta(milliseconds=300)
        assert [log_of(client, run.id, number) for number in (1, 2, 3)] == ["1\n", "2\n", "3\n"]


class TestSurroundings:
    def test_environment_is_clean(self, client: Client) -> None:
        run = execute(client, "env | cut -d= -f1 | grep -v -e '^ROTA_' -e '^_$' | sort")

        assert log_of(client, run.id).split() == ["HOME", "LANG", "PATH", "PWD", "TRACEPARENT"]

    def test_job_knows_who_it_is(self, client: Client) -> None:
        run = execute(
            client,
            "echo $ROTA_RUN_ID $ROTA_JOB $ROTA_PROJECT $ROTA_ATTEMPT $ROTA_FENCE",
            "echo $ROTA_DUE_AT",
            name="knowing",
        )

        who, due_at = log_of(client, run.id).splitlines()
        assert who == f"{run.id} knowing default 1 1"
        assert run.due_at is not None
        assert due_at == run.due_at.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def test_job_sees_nothing_of_the_servers_secrets(self, client: Client) -> None:
        run = execute(client, "env")

        assert "ROTA_TOKEN" not in log_of(client, run.id)
        assert "GUARDIAN" not in log_of(client, run.id)

    def test_inputs_are_variables_and_never_code(self, client: Client) -> None:
        run = execute(
            client,
            'echo "$INPUT_WHO $INPUT_TIMES $INPUT_LOUD"',
            inputs={
                "who": {"type": "string"},
                "times": {"type": "integer", "default": 3},
                "loud": {"type": "boolean", "default": True},
            },
            given={"who": "$(id) `id` \"'; id"},
        )

        assert log_of(client, run.id) == "$(id) `id` \"'; id 3 true\n"

    def test_variables_of_job_and_step(self, client: Client) -> None:
        run = execute(
            client,
            {"run": "echo $COLOUR $SHAPE", "env": {"SHAPE": "round"}},
            "echo $COLOUR $SHAPE",
            env={"COLOUR": "red", "SHAPE": "flat"},
        )

        assert log_of(client, run.id) == "red round\nred flat\n"

    def test_what_rota_tells_is_true_for_jobs_that_were_stored_with_a_forged_fence(
        self, rota: RotaUp
    ) -> None:
        apply(rota.client, job("old", {"run": "echo $ROTA_FENCE", "env": {"XOTA_FENCE": "99"}}))
        rota.stop()
        with closing(sqlite3.connect(rota.home / "rota.db")) as store, store:
            store.execute("UPDATE job_version SET document = replace(document, 'XOTA_', 'ROTA_')")

        rota.start()
        run = settle(rota.client, rota.client.trigger("old"))

        assert log_of(rota.client, run.id) == "1\n"

    def test_work_folder_is_fresh_and_shared_by_the_steps(self, client: Client) -> None:
        first = execute(client, "ls -A; echo text >file; pwd", "cat file", name="fresh")
        second = execute(client, "ls -A; pwd", name="fresh")

        folder, text = log_of(client, first.id).splitlines()
        assert text == "text"
        assert len(log_of(client, second.id).splitlines()) == 1
        assert not (Path(folder) / "file").exists()

    def test_source_path_is_where_it_works(self, client: Client, tmp_path: Path) -> None:
        run = execute(client, "pwd; touch left", source={"path": str(tmp_path)})

        assert log_of(client, run.id) == f"{tmp_path}\n"
        assert (tmp_path / "left").exists()

    def test_a_step_runs_in_its_folder(self, client: Client, tmp_path: Path) -> None:
        (tmp_path / "app").mkdir()

        fresh = execute(client, "mkdir -p a/b", {"run": "pwd", "folder": "a/b"})
        path = execute(client, {"run": "pwd", "folder": "app"}, source={"path": str(tmp_path)})

        assert log_of(client, fresh.id).endswith("/a/b\n")
        assert log_of(client, path.id) == f"{tmp_path}/app\n"

    @pytest.mark.parametrize(
        ("before", "told"),
        [
            ("ln -s /etc out", "the folder out leads out of its work folder"),
            ("ln -s ../.. out", "the folder out leads out of its work folder"),
            ("true", "there is no folder out in its work folder"),
        ],
    )
    def test_a_folder_that_is_not_in_the_work_folder_is_refused(
        self, client: Client, before: str, told: str
    ) -> None:
        run = execute(client, before, {"name": "in", "run": "pwd", "folder": "out"})

        assert run.message == f"step in: the step could not be started: {told}"
        assert log_of(client, run.id) == f"the step could not be started: {told}\n"

    def test_source_path_that_is_not_there_is_named(self, client: Client, tmp_path: Path) -> None:
        run = execute(client, "true", source={"path": str(tmp_path / "gone")})

        assert run.state == "FAILED"
        assert "gone" in run.message

    @pytest.mark.parametrize(
        ("step", "printed"),
        [
            ({"run": "set -o pipefail; echo ${BASH_VERSION%%.*}", "shell": "bash"}, "5\n"),
            ({"run": "print(6 * 7)", "shell": "python"}, "42\n"),
            ({"run": ["printf", "%s|", "a b", "$HOME", "*"]}, "a b|$HOME|*|"),
            ({"run": "BEGIN { print 6 * 7 }", "interpreter": ["awk", "-f"]}, "42\n"),
        ],
        ids=["bash", "python", "argv", "interpreter"],
    )
    def test_languages(self, client: Client, step: dict[str, object], printed: str) -> None:
        run = execute(client, step)

        assert (run.state, log_of(client, run.id)) == ("COMPLETED", printed)

    def test_pipe_that_fails_in_the_middle_fails_in_bash(self, client: Client) -> None:
        assert execute(client, {"run": "false | cat", "shell": "bash"}).state == "FAILED"


class TestResults:
    def test_outputs_are_kept(self, client: Client) -> None:
        run = execute(client, """echo '{"rows": 3, "ok": true}' >$ROTA_OUTPUT""")

        assert run.outputs == {"rows": 3, "ok": True}

    def test_outputs_that_are_not_json_are_refused_in_the_log(self, client: Client) -> None:
        run = execute(client, "echo nonsense >$ROTA_OUTPUT")

        assert (run.state, run.outputs) == ("COMPLETED", None)
        assert "not JSON" in log_of(client, run.id)

    def test_progress_is_passed_on(self, client: Client) -> None:
        run = execute(client, 'echo "3/10 third row" >$ROTA_PROGRESS; sleep 1.5')

        assert run.progress is not None
        assert (run.progress.done, run.progress.total) == (3, 10)
        assert run.progress.message == "third row"


class TestDaemons:
    def test_daemons_that_ignore_requests_end_with_their_step(self, client: Client) -> None:
        mark = f"mark-{os.urandom(8).hex()}"
        stubborn = f"trap '' TERM HUP INT; while :; do sleep 1; done; : {mark}"
        daemon = f'(env -i setsid sh -c "cd /; {stubborn}" &)'

        run = execute(client, "\n".join([daemon] * 5), "echo next")

        assert (run.state, log_of(client, run.id)) == ("COMPLETED", "next\n")
        assert processes_of(mark) == []
