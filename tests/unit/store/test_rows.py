from __future__ import annotations

from rota.domain.run import StepReport
from rota.store.rows import attempt_from


def test_steps_that_were_stored_with_fewer_fields_can_be_read() -> None:
    row = {
        "run_id": "r_1",
        "number": 1,
        "session": "w_1",
        "worker": "worker",
        "result": "COMPLETED",
        "claimed_at": 0,
        "started_at": 0,
        "ended_at": 0,
        "exit_code": 0,
        "signal": None,
        "message": "",
        "steps": '[["build","completed",0,null,1.5,2],["old","skipped"]]',
        "cpu_seconds": 0.0,
        "max_memory": 0,
        "output_state": "none",
        "output_bytes": 0,
        "output_lines": 0,
        "truncated": 0,
    }

    steps = attempt_from(row).steps

    assert steps == (
        StepReport("build", "completed", 0, None, 1.5, 2, cpu_seconds=0.0, max_memory_bytes=0),
        StepReport("old", "skipped", cause=""),
    )
