from __future__ import annotations

from rota.domain.spec import Input, InputType, JobSpec
from rota.executors.shell import given_inputs


def test_inputs_that_nobody_gave_have_their_defaults() -> None:
    inputs = {
        "host": Input(default="db1"),
        "force": Input(InputType.BOOLEAN, default=False),
        "count": Input(InputType.INTEGER, default=3),
        "note": Input(),
    }
    spec = JobSpec("backup", inputs=inputs)

    assert given_inputs(spec, None) == {
        "INPUT_HOST": "db1",
        "INPUT_FORCE": "false",
        "INPUT_COUNT": "3",
    }
    assert given_inputs(spec, {"host": "db2", "note": "by hand"}) == {
        "INPUT_HOST": "db2",
        "INPUT_FORCE": "false",
        "INPUT_COUNT": "3",
        "INPUT_NOTE": "by hand",
    }
