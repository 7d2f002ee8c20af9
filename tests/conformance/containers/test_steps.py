from __future__ import annotations

from datetime import timedelta

import pytest

from rota.domain.output import Stream
from rota.domain.run import AttemptResult
from rota.domain.spec import Retry, Step, StepCondition
from tests.conformance.containers.bench import Bench, job

pytestmark = pytest.mark.anyio


class TestSteps:
    async def test_steps_share_a_container_and_their_folder(self, bench: Bench) -> None:
        spec = job("pwd; echo one > a; echo $0 > /tmp/b", "cat a /tmp/b; hostname")

        outcome, sink = await bench.run(spec)

        assert outcome.result == AttemptResult.COMPLETED, outcome.message
        assert [step.result for step in outcome.steps] == ["completed", "completed"]
        assert sink.text(Stream.STDOUT) == "/job\none\nsh\njob\n"
        assert [step for _, step, _ in sink.fed] == [0, 1] or len(sink.fed) > 2

    async def test_step_runs_in_its_folder_and_links_do_not_lead_out(self, bench: Bench) -> None:
        before = Step("make", "mkdir -p a/b; ln -s a/b in; ln -s /etc out")
        inside = Step("inside", "pwd", folder="in")
        outside = Step("outside", "pwd", folder="out")

        outcome, sink = await bench.run(job(before, inside, outside))

        assert sink.text(Stream.STDOUT) == "/job/a/b\n"
        assert outcome.message.endswith("the folder out leads out of its work folder")

    async def test_conditions_and_excuses_hold_as_for_processes(self, bench: Bench) -> None:
        spec = job(
            Step("a", "exit 1", continue_on_error=True),
            Step("b", "exit 2"),
            Step("c", "echo c", condition=StepCondition.FAILURE),
            Step("d", "echo d", condition=StepCondition.ALWAYS),
        )

        outcome, sink = await bench.run(spec)

        assert [step.result for step in outcome.steps] == [
            *("failed", "failed", "completed", "completed")
        ]
        assert (outcome.result, outcome.exit_code) == (AttemptResult.FAILED, 2)
        assert sink.text(Stream.STDOUT) == "c\nd\n"

    async def test_step_is_tried_again_with_what_its_try_left(self, bench: Bench) -> None:
        script = "echo x >> tries; test $(wc -l < tries) -eq 3"
        retry = Retry(attempts=3, delay=timedelta(0))

        outcome, _ = await bench.run(job(Step("a", script, retry=retry)))

        assert (outcome.result, outcome.steps[0].tries) == (AttemptResult.COMPLETED, 3)

    async def test_variables_of_job_step_and_run_are_there(self, bench: Bench) -> None:
        step = Step("a", "echo $A $B $ROTA_RUN_ID $ROTA_JOB $HOME; env", env={"B": "step"})
        spec = job(step, env={"A": "job", "B": "job", "ROTA_FENCE": "9"})

        _, sink = await bench.run(spec)

        assert sink.text().startswith("job step r_1 tidy /home/job\n")
        assert "ROTA_FENCE=1\n" in sink.text()

    async def test_list_of_arguments_needs_no_shell(self, bench: Bench) -> None:
        _, sink = await bench.run(job(Step("a", ("echo", "a b", "$HOME"))))

        assert sink.text() == "a b $HOME\n"

    async def test_long_script_comes_in_a_file(self, bench: Bench) -> None:
        script = f"# {'x' * 150_000}\necho done"

        _, sink = await bench.run(job(script))

        assert sink.text() == "done\n"

    async def test_what_cannot_be_executed_is_told(self, bench: Bench) -> None:
        outcome, _ = await bench.run(job(Step("a", ("/nothing",))))

        assert outcome.result == AttemptResult.FAILED
        assert "/nothing" in outcome.message
        assert "no such file" in outcome.message

    async def test_what_a_step_left_running_ends_before_the_next(self, bench: Bench) -> None:
        spec = job(
            "sleep 1000 & sleep 1000 & echo $!", "ps -o args | grep -c '[s]leep 1000' || true"
        )

        outcome, sink = await bench.run(spec)

        assert outcome.result == AttemptResult.COMPLETED, outcome.message
        assert sink.text().splitlines()[1] == "0"


class TestCommands:
    async def test_command_takes_the_place_of_steps(self, bench: Bench) -> None:
        outcome, sink = await bench.run(job(command=("sh", "-c", "pwd; exit 4")))

        assert (outcome.result, outcome.exit_code) == (AttemptResult.FAILED, 4)
        assert [step.name for step in outcome.steps] == ["command"]
        assert sink.text() == "/job\n"

    async def test_image_without_a_command_needs_one(self, bench: Bench) -> None:
        outcome, sink = await bench.run(job())

        assert outcome.result == AttemptResult.FAILED
        assert outcome.message == "rota-base:1 has no command of its own: write one"
        assert sink.text(Stream.ROTA) == f"{outcome.message}\n"
