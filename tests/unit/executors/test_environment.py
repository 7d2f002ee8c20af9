from __future__ import annotations

from pathlib import Path

from rota.domain.spec import Input, InputType, JobSpec, Step
from rota.executors.shell import attempt_variables, input_variables, step_variables
from rota.ports.executor import Assignment
from rota.ports.work import ATTEMPT_BITS, Work


def test_inputs_that_nobody_gave_have_their_defaults() -> None:
    inputs = {
        "host": Input(default="db1"),
        "force": Input(InputType.BOOLEAN, default=False),
        "count": Input(InputType.INTEGER, default=3),
        "note": Input(),
    }
    spec = JobSpec("backup", inputs=inputs)

    assert input_variables(spec, None, "/job") == {
        "INPUT_HOST": "db1",
        "INPUT_FORCE": "false",
        "INPUT_COUNT": "3",
    }
    assert input_variables(spec, {"host": "db2", "note": "by hand"}, "/job") == {
        "INPUT_HOST": "db2",
        "INPUT_FORCE": "false",
        "INPUT_COUNT": "3",
        "INPUT_NOTE": "by hand",
    }


def test_what_rota_tells_cannot_be_overridden_by_job_or_step() -> None:
    forged = {"ROTA_RUN_ID": "r_other", "ROTA_FENCE": "99", "ROTA_CART": "c_other", "SHAPE": "flat"}
    step = Step("ship", "true", env=forged | {"SHAPE": "round"})
    number = 3 << ATTEMPT_BITS | 2
    assignment = Assignment(
        Work("r_1", number, "j_1", 1, 0), JobSpec("tidy", env=forged, steps=(step,))
    )

    seen = step_variables(
        attempt_variables({}, assignment, "/job", Path("output"), Path("progress")), step
    )

    assert (seen["ROTA_RUN_ID"], seen["ROTA_FENCE"], seen["SHAPE"]) == (
        "r_1",
        str(number),
        "round",
    )
    assert seen["ROTA_ATTEMPT"] == "2"
    assert "ROTA_CART" not in seen
