from __future__ import annotations

from examples.app import app, check, nightly_backup
from rota.testing import inline


def test_example_does_what_it_says() -> None:
    with inline(app, now="2026-01-01T12:00", tz="Europe/Berlin") as t:
        t.advance("1d")

        assert t.submitted("heartbeat") == 24 * 60 * 2
        assert t.submitted("nightly_backup") == 1
        assert {run.state for run in t.runs} == {"COMPLETED"}
        assert nightly_backup.submit(target="orders").wait().output == 1
        assert check.submit(["a", "b.invalid"]).wait().output == {"a": True, "b.invalid": False}
