from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest

from rota.cli.runs import write_run
from rota.cli.terminal import Terminal
from rota.cli.watching import Transcript
from rota.sdk.answers import Attempt, RunDetail
from rota.sdk.client import Client

PRESENT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def terminal() -> Terminal:
    return Terminal(io.StringIO(), io.StringIO(), has_colour=False, is_plain=False, width=None)


def run(**fields: Any) -> RunDetail:
    known: dict[str, Any] = {"id": "r_1", "job": "tidy", "state": "COMPLETED", "attempt": 1}
    return RunDetail(**known | fields)


def page_of(run: RunDetail) -> dict[str, str]:
    """The names and values on a run's page."""
    target = io.StringIO()
    write_run(
        Terminal(target, io.StringIO(), has_colour=False, is_plain=False, width=None), run, PRESENT
    )
    pairs = (line.partition("  ") for line in target.getvalue().splitlines())
    return {name: value.strip() for name, _, value in pairs}


@pytest.mark.parametrize(
    ("attempts", "text"),
    [
        ({"attempt": 2, "max_attempts": 3}, "completed · attempt 2 of 3"),
        ({"attempt": 2, "max_attempts": 1, "losses": 1}, "completed · attempt 2 (1 lost)"),
        ({"attempt": 3, "losses": 2, "is_alone": True}, "completed · attempt 3 (2 lost) · alone"),
    ],
)
def test_attempts_are_counted_against_the_limit_unless_some_were_lost(
    attempts: dict[str, int], text: str
) -> None:
    assert page_of(run(**attempts))["state"] == text


def test_values_are_shown_as_programs_write_them() -> None:
    page = page_of(run(inputs={"target": "orders", "all": True}, outputs={"größe": [1, None]}))

    assert page["inputs"] == "target=orders all=true"
    assert page["outputs"] == '{"größe": [1, null]}'


def test_transcript_counts_no_lost_attempt_against_the_limit() -> None:
    stream = io.StringIO()
    lost = Attempt(number=1, worker="w", result="LOST", started_at=PRESENT)
    going = Attempt(number=2, worker="w", started_at=PRESENT)
    client = Client("http://127.0.0.1:1", "token")

    Transcript(client, terminal(), stream).take(
        run(state="PROCESSING", attempt=2, losses=1, attempts=(lost, going))
    )

    assert "  attempt 1 lost\n" in stream.getvalue()
